"""Decides when the next group may start, and which: paced by the version gap, between the water marks, within the limits."""

from __future__ import annotations

from collections.abc import Callable

from rollout.admission.planner import Decision
from rollout.batches import Shelf
from rollout.books import Books
from rollout.running.runner import Parts
from sandbox.model import TaskSpec


class Gate:
    """`why` says what holds admission back now; empty while nothing does."""

    def __init__(self, books: Books, parts: Parts, *, outstanding: Callable[[], int], shelf: Shelf) -> None:
        self._books = books
        self._parts = parts
        self._outstanding = outstanding
        self._shelf = shelf
        self._filling = True
        self._refused = ""  # the last refusal, so that one stretch of saturation counts once
        self.why = ""

    async def next(self) -> tuple[TaskSpec, Decision] | None:
        """Wait until a group may start and return its task; None when selection finds none worth one."""
        board, books = self._parts.board, self._books
        while True:
            board.changed.clear()
            if (why := self._closed()) == "":
                among = None if books.selector is None else books.selector.candidates()
                if among is not None and not among:
                    if not books.selector.waits:  # type: ignore[union-attr]
                        return None
                    why = "scouts are out: what they find decides what is worth a group"
                else:
                    task, decision = books.planner.choose(version=self._parts.engine.version, among=among)
                    if (why := self._saturated(decision)) == "":
                        books.planner.admitted(task, decision)
                        self.why = self._refused = ""
                        return task, decision
                    self._refuse(why)
            self.why = why
            await board.changed.wait()

    def _closed(self) -> str:
        """Why nobody may start now, whatever its worth."""
        plan, board = self._books.plan, self._parts.board
        if self._books.stopped:
            return self._books.stopped
        size = plan.group_rule.size
        if self._outstanding() >= min(plan.sync.outstanding, self._shelf.capacity):
            return f"{self._outstanding()} groups are not trained on yet: more would break the gap of {plan.sync.max_gap}"
        if board.holding + size > plan.holding:
            return f"{board.holding} trajectories hold or want a session, {plan.holding} may"
        if board.runnable >= plan.high:
            self._filling = False
        elif board.runnable < plan.low:
            self._filling = True
        if not self._filling:
            return f"{board.runnable} trajectories are runnable, more start below {plan.low}"
        return ""

    def _saturated(self, decision: Decision) -> str:
        """While a dependency is at its safe limit, only tasks of a certain worth may start."""
        full = self._parts.limits.strained()
        if full and decision.score < self._books.plan.value_floor:
            return f"{', '.join(full)} at the safe limit: worth {decision.score:.2f} below {self._books.plan.value_floor:.2f}"
        return ""

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            self._refused = why
            self._books.accounts.refuse(why, self._books.plan.group_rule.size)
