"""One member of a group from its first attempt to the one that counts: again after a fault of infrastructure, within the budget."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rollout.admission.budgets import Budget, Spend
from rollout.admission.limits import STORAGE
from rollout.batches import OPTIMISTIC
from rollout.books import Books
from rollout.classify import RESPONSE
from rollout.deadline import deadline
from rollout.eligibility import missing
from rollout.groups import Group
from rollout.record import Trajectory
from rollout.running.board import Phase
from rollout.running.draft import Draft, Ticket
from rollout.running.runner import Branch, Parts, Runner
from rollout.terms import Failure, State, Termination
from sandbox.aio import run_shielded
from sandbox.errors import AutoclaveError
from sandbox.model import Clearance, ClearanceState, TrajectoryId

log = logging.getLogger(__name__)
NOT_DECIDED = "its clearance was not decided in time"


class Members:
    """Runs members and hands each one's last attempt to its group."""

    def __init__(self, books: Books, parts: Parts) -> None:
        self._books = books
        self._parts = parts
        self._runner = Runner(parts)

    async def run(self, group: Group, index: int, priority: int, *, branch: Branch | None = None) -> None:
        """Attempt until one trajectory stands, or the budget is spent. Only the first attempt branches."""
        plan = self._books.plan
        budget = Budget(retries=plan.member_retries, alternatives=plan.member_alternatives, within=self._books.budget)
        ticket = self._ticket(group, index, 0, priority)
        self._books.accounts.admit(ticket.id)
        record = await self._runner.run(ticket, budget, branch=branch)
        if await self._again(group, index, record, budget):
            await self._attempt(group, index, priority, budget)

    async def run_fork(self, group: Group, index: int, priority: int, budget: Budget, *, session: Any, parent: Draft) -> None:
        """Run a member in a session that was forked for it. What has to be run again begins anew: its parent may be gone."""
        ticket = replace(self._ticket(group, index, 0, priority), id=session.trajectory_id)
        self._books.accounts.admit(ticket.id)
        record = await self._runner.run_fork(ticket, budget, session=session, parent=parent)
        if await self._again(group, index, record, budget):
            await self._attempt(group, index, priority, budget)

    async def _attempt(self, group: Group, index: int, priority: int, budget: Budget) -> None:
        attempt = 1
        while True:
            ticket = self._ticket(group, index, attempt, priority)
            self._books.accounts.admit(ticket.id)
            record = await self._runner.run(ticket, budget)
            if not await self._again(group, index, record, budget):
                return
            attempt += 1

    def _ticket(self, group: Group, index: int, attempt: int, priority: int) -> Ticket:
        plan = self._books.plan
        suffix = f".{attempt}" if attempt else ""
        return Ticket(
            id=f"{group.id}-{index}{suffix}",
            run=plan.run,
            group=group.id,
            member=index,
            attempt=attempt,
            environment=plan.environment,
            task=group.task,
            priority=priority,
            purpose=group.purpose.value,
            seed=plan.seed * 1_000_003 + group.number * 10_007 + index * 101 + attempt,
        )

    async def _again(self, group: Group, index: int, record: Trajectory, budget: Budget) -> bool:
        """Take a finished attempt in; True when the member is to be run once more."""
        record = await run_shielded(self._written(record))  # it has ended: who is cancelled now leaves it on the disk
        try:
            return await self._taken(group, index, record, budget)
        finally:
            self._books.events.note("member", trajectory=record.id)

    async def _taken(self, group: Group, index: int, record: Trajectory, budget: Budget) -> bool:
        if record.reward is None or (lacking := missing(record)):
            if record.reward is not None:
                record = replace(record, failure=Failure.DATA, reward=None, detail=f"not eligible, it lacks {', '.join(lacking)}")
            return await self._failed(group, index, record, budget)
        clearance = await self._clearance(record)
        if clearance is None:
            await self._books.settle(record, State.FAILED, NOT_DECIDED)
            group.lose(index, NOT_DECIDED)
            return False
        record = replace(record, clearance=clearance.state.value, clearance_reason=str(clearance.reason or ""))
        with suppress(AutoclaveError):  # its clearance is known; what is only told beside it may be missing
            record = await self._with_evidence(record)
        if clearance.state in (ClearanceState.QUARANTINED, ClearanceState.DISCARDED):
            reason = str(clearance.reason or clearance.state)
            await self._books.settle(replace(record, reward=None), State.QUARANTINED, reason, clearance=clearance)
            if self._books.plan.group_rule.refill and not self._books.stopped and budget.spend(Spend.RETRY):
                return True
            group.lose(index, reason)
            return False
        group.survive(index, record)
        return False

    async def _written(self, record: Trajectory) -> Trajectory:
        """Put the finished trajectory on disk before anything else is done with it."""
        books, parts = self._books, self._parts
        with parts.board.within(record.id, Phase.STORAGE):
            async with parts.limits.hold(STORAGE, record.id) as place:
                began = parts.clock.monotonic()
                with books.meter.stage("storage"):
                    await books.journal.trajectory(record)
                books.meter.add("storage", queue_s=place.queue_s)
                books.events.note("stored", trajectory=record.id, queue_s=place.queue_s, began=began)
        parts.board.leave(record.id)
        books.records[record.id] = record.without_tokens()
        books.meter.trajectory(record)
        success = None if record.reward is None else record.success
        books.planner.observed(record.task, record.family, success=success, env_s=record.duration_s - record.model_s)
        if (response := RESPONSE.get(record.termination)) is not None:
            books.responses[f"{record.termination.value}: {response.value}"] += 1
        return record

    async def _failed(self, group: Group, index: int, record: Trajectory, budget: Budget) -> bool:
        reason = f"{record.termination.value}: {record.detail}"[:300]
        await self._books.settle(record, State.FAILED, reason)
        retry = record.failure in (Failure.INFRA, Failure.FAULT) and record.termination is not Termination.CANCELLED
        if retry and not self._books.stopped and budget.spend(Spend.RETRY):
            return True
        group.lose(index, reason)
        return False

    async def _clearance(self, record: Trajectory) -> Clearance | None:
        """Wait until the trajectory is decided; in optimistic mode, only look. None when that was not told in time."""
        books, parts = self._books, self._parts
        began = parts.clock.monotonic()
        try:
            with parts.board.within(record.id, Phase.CLEARANCE):
                async with deadline(parts.clock, books.plan.clear_s):
                    found = await self._asked(TrajectoryId(record.id))
        except (AutoclaveError, TimeoutError) as error:  # a pool that is gone tells nobody
            log.warning("no clearance", extra={"event": "rollout.undecided", "trajectory": record.id, "error": str(error)})
            return None
        finally:
            books.meter.add("clearance", queue_s=parts.clock.monotonic() - began)
        if books.plan.sync.mode == OPTIMISTIC:
            books.watched.add(found.trajectory)
        if found.state is not ClearanceState.PENDING:
            books.saw(found)
        return found

    async def _asked(self, own: TrajectoryId) -> Clearance:
        pool, plan = self._parts.pool, self._books.plan
        look = pool.clearance([own]) if plan.sync.mode == OPTIMISTIC else pool.cleared([own], timeout=plan.clear_s)
        found: Clearance = (await look)[own]
        return found

    async def _with_evidence(self, record: Trajectory) -> Trajectory:
        """Add what the ledger knows of the trajectory's end: the check after it, and the reset that made its start."""
        known: Any = await self._parts.pool.why(record.id)
        end, opened = known.get("end_check"), known["lineage"]["opened_by"]
        timings = replace(record.timings, reset_s=opened["seconds"] if opened else None)
        return replace(record, end_check=end["id"] if end else "", timings=timings)
