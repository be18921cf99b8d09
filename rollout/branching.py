"""Groups that start together: the first member acts for some turns, then the others fork from its state.

What the first one generated until then stands in its record alone; in the others it is context, so that no token is trained on, or
counted, more than once.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any

from rollout.admission.budgets import Budget, Spend
from rollout.books import Books
from rollout.deadline import deadline
from rollout.groups import Group
from rollout.members import Members
from rollout.running.draft import Draft
from rollout.running.runner import Branch, Parts
from sandbox.errors import PoolBusy, ResetFailed
from sandbox.model import Snapshot

log = logging.getLogger(__name__)
NO_PLACE = "no namespace came for a fork"
NO_BUDGET = "the exploration budget is spent"


class Branching:
    """Runs one group whose members share a beginning."""

    def __init__(self, books: Books, parts: Parts, members: Members) -> None:
        self._books = books
        self._parts = parts
        self._members = members

    async def run(self, group: Group, priority: int) -> None:
        """Run the first member, fork the others from it; those that it did not come to fork are run on their own."""
        begun: set[int] = set()
        async with asyncio.TaskGroup() as tasks:

            async def fork(session: Any, draft: Draft) -> None:
                await self._fork_all(tasks, group, priority, session, draft, begun)

            await self._members.run(group, 0, priority, branch=Branch(turn=self._books.plan.branch_turn, fork=fork))
            for index in range(1, group.size):
                if index not in begun:
                    tasks.create_task(self._members.run(group, index, priority), name=f"member {group.id}-{index}")

    async def _fork_all(
        self, tasks: asyncio.TaskGroup, group: Group, priority: int, session: Any, draft: Draft, begun: set[int]
    ) -> None:
        async with deadline(self._parts.clock, self._parts.bounds.session_wait_s):
            snapshot = await session.snapshot()
        parent = copy.copy(draft)
        for name in ("tokens", "mask", "logprobs", "versions", "turns", "actions"):
            setattr(parent, name, list(getattr(draft, name)))
        running: set[asyncio.Task[None]] = set()
        for index in range(1, group.size):
            if index in begun:
                continue
            child, why = await self._child(session, snapshot, running)
            begun.add(index)  # not before: a first member that is lost here leaves the others to themselves
            self._parts.board.leave(f"{group.id}-{index}")  # a fork has an id of its own
            if child is None:
                self._books.accounts.refuse(why)
                group.lose(index, why)
                continue
            running.add(tasks.create_task(self._run(group, index, priority, child, parent), name=f"fork {group.id}-{index}"))

    async def _child(self, session: Any, snapshot: Snapshot, running: set[asyncio.Task[None]]) -> tuple[Any, str]:
        """Return a forked session, or None and why there is none."""
        if not self._books.budget.spend(Spend.EXPLORE):
            return None, NO_BUDGET
        return await self._place(session, snapshot, running), NO_PLACE

    async def _place(self, session: Any, snapshot: Snapshot, running: set[asyncio.Task[None]]) -> Any:
        """Return a forked session; where every namespace is taken, wait for a sibling to end, or a little. None in the end."""
        clock = self._parts.clock
        try:
            async with deadline(clock, self._parts.bounds.session_wait_s) as scope:
                while True:
                    try:
                        return await session.fork(snapshot, wait=self._parts.bounds.session_wait_s)
                    except (PoolBusy, ResetFailed) as error:
                        log.info("a fork waits", extra={"event": "rollout.fork_waits", "error": str(error)})
                        running -= {task for task in running if task.done()}
                        if running:
                            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                        else:
                            await clock.sleep(1.0)
        except TimeoutError:
            if not scope.expired():
                raise
            return None

    async def _run(self, group: Group, index: int, priority: int, session: Any, parent: Draft) -> None:
        plan = self._books.plan
        budget = Budget(retries=plan.member_retries, alternatives=plan.member_alternatives, within=self._books.budget)
        await self._members.run_fork(group, index, priority, budget, session=session, parent=parent)
