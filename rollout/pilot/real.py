"""The load pilot over a real pool: the same trajectories as in a run, their records in a run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollout.admission.budgets import Budget
from rollout.admission.limits import STORAGE, Limits
from rollout.books import Books
from rollout.record import Trajectory
from rollout.running.draft import Ticket
from rollout.running.runner import Parts, Runner
from sandbox.model import ClearanceState, TrajectoryId


class Rollouts:
    """Implements `Offered`."""

    def __init__(self, books: Books, parts: Parts) -> None:
        self._books = books
        self._parts = parts
        self._runner = Runner(parts)

    @property
    def limits(self) -> Limits:
        return self._parts.limits

    def phases(self) -> dict[str, int]:
        return self._parts.board.counts()

    async def run(self, number: int) -> Trajectory:
        """Run one trajectory of the task that is worth most, and write it down."""
        books, parts = self._books, self._parts
        task, decision = books.planner.choose(version=parts.engine.version)
        books.planner.admitted(task, decision)
        name = f"{books.plan.run}-{number}"
        ticket = Ticket(
            id=name,
            run=books.plan.run,
            group=name,
            member=number % 8,
            attempt=0,
            environment=books.plan.environment,
            task=task,
            seed=books.plan.seed * 1_000_003 + number,
        )
        plan = books.plan
        record = await self._runner.run(ticket, Budget(retries=plan.member_retries, alternatives=plan.member_alternatives))
        async with parts.limits.hold(STORAGE, record.id):
            await books.journal.trajectory(record)
        parts.board.leave(record.id)
        light = replace(record, tokens=(), mask=(), logprobs=(), versions=())
        books.records[record.id] = light
        return light

    async def valid(self, records: Sequence[Trajectory]) -> set[str]:
        scored = [TrajectoryId(r.id) for r in records if r.reward is not None and r.lease]
        found = await self._parts.pool.clearance(scored) if scored else {}
        return {str(t) for t, clearance in found.items() if clearance.state is not ClearanceState.QUARANTINED}
