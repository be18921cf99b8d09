"""Selection of tasks: a few scouts estimate how often a task succeeds, and only those in the middle band get whole groups.

Mastered tasks are retired and revisited now and then; hopeless ones are deferred with the reason, and an easier task of their
family is looked at instead. Scouts are trajectories like all others: they are charged, and they are in no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollout.selection.belief import Belief
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec

HELD_OUT = "held-out"
DIFFICULTIES = ("easy", "medium", "hard")
EMPTY = 3
Replace = Callable[[TaskSpec], TaskSpec | None]


class Standing(StrEnum):
    """Where a task stands. Only `active` ones get whole groups."""

    UNKNOWN = "unknown"  # to be scouted
    SCOUTED = "scouted"  # its scouts are out
    ACTIVE = "active"
    RETIRED = "retired"
    DEFERRED = "deferred"


class Purpose(StrEnum):
    TRAIN = "train"
    SCOUT = "scout"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRule:
    """`band` is that of success rates worth training on. A task leaves it when the probability of lying beyond is at least
    `confidence`. Every `revisit` decisions the task that was out longest is scouted again (0: never)."""

    scouts: int = 3
    band: tuple[float, float] = (0.2, 0.8)
    confidence: float = 0.5
    revisit: int = 10

    def __post_init__(self) -> None:
        low, high = self.band
        if self.scouts < 1 or not 0 <= low < high <= 1 or not 0 < self.confidence <= 1 or self.revisit < 0:
            raise EnvironmentInvalid(
                f"{self.scouts} scouts, a band of {low:g} to {high:g}, confidence {self.confidence:g}, revisit {self.revisit}",
                fix="at least one scout, 0 <= low < high <= 1, a confidence above 0 up to 1",
            )


@dataclass(slots=True, kw_only=True)
class _Task:
    spec: TaskSpec
    belief: Belief
    standing: Standing = Standing.UNKNOWN
    since: int = 0  # the decision at which it left the band
    reason: str = ""
    empty: int = 0  # groups of scouts of which none was cleared
    replaced_by: str = ""


class Selector:
    """Raises EnvironmentInvalid when it is given a held-out task: the check of selection would be worth nothing."""

    def __init__(self, tasks: Sequence[TaskSpec], *, rule: SelectionRule | None = None, replace: Replace | None = None) -> None:
        if held := [task.id for task in tasks if task.split == HELD_OUT]:
            raise EnvironmentInvalid(
                f"{len(held)} held-out tasks were given to selection, {held[0]} among them",
                fix="select from the training split only",
            )
        self.rule = rule or SelectionRule()
        self._tasks = {task.id: _Task(spec=task, belief=Belief()) for task in tasks}
        self._replace = replace or self._easier
        self._decisions = 0
        self._revisited = 0
        self.history: list[dict[str, Any]] = []

    def candidates(self) -> Mapping[str, Purpose]:
        """The tasks that may come next, and for what. Empty: nothing is worth a group, or every scout is still out."""
        found = {name: Purpose.TRAIN for name, task in self._tasks.items() if task.standing is Standing.ACTIVE}
        if (due := self._due()) is not None:
            return {due: Purpose.SCOUT}
        unknown = {name: Purpose.SCOUT for name, task in self._tasks.items() if task.standing is Standing.UNKNOWN}
        return unknown | found

    @property
    def waits(self) -> bool:
        """True while scouts are out, whose results may open more."""
        return any(task.standing is Standing.SCOUTED for task in self._tasks.values())

    def chose(self, task: str) -> Purpose:
        """Count a decision; return what the group is for."""
        self._decisions += 1
        held = self._tasks[task]
        purpose = Purpose.TRAIN if held.standing is Standing.ACTIVE else Purpose.SCOUT
        if held.standing in (Standing.RETIRED, Standing.DEFERRED):
            held.belief.forget()
            self._revisited = self._decisions
        if purpose is Purpose.SCOUT:
            held.standing = Standing.SCOUTED
        return purpose

    def observed(self, task: str, successes: Sequence[bool]) -> None:
        """Take in how a group's cleared members went, and decide where its task stands. None of them decides nothing: it is asked
        again."""
        held = self._tasks.get(task)
        if held is None:
            return
        for success in successes:
            held.belief.saw(success)
        self._move(held)

    def _move(self, held: _Task) -> None:
        low, high = self.rule.band
        belief, was = held.belief, held.standing
        told = f"{belief.successes} of {belief.count} succeeded"
        if not belief.count:  # every scout failed for a reason of the machine's: again, but not for ever
            held.empty += 1
            held.standing = Standing.UNKNOWN if held.empty < EMPTY else Standing.DEFERRED
            held.reason = f"no scout of {held.empty} groups was cleared"
        elif belief.above(high) >= self.rule.confidence:
            held.standing, held.reason = Standing.RETIRED, f"mastered: {told}"
        elif belief.below(low) >= self.rule.confidence:
            held.standing, held.reason = Standing.DEFERRED, f"never solved: {told}"
        else:
            held.standing, held.reason = Standing.ACTIVE, f"in the band: {told}"
        if held.standing is was:
            return
        held.since = self._decisions
        if held.standing is Standing.DEFERRED:
            self._look_for_another(held)
        self.history.append(
            {
                "decision": self._decisions,
                "task": held.spec.id,
                "standing": held.standing.value,
                "reason": held.reason,
                "estimate": round(belief.mean, 4),
                "replaced_by": held.replaced_by,
            }
        )

    def _look_for_another(self, held: _Task) -> None:
        other = self._replace(held.spec)
        if other is None:
            return
        held.replaced_by = other.id
        if other.id not in self._tasks:
            if other.split == HELD_OUT:
                raise EnvironmentInvalid(f"{other.id} is held out and cannot stand for {held.spec.id}")
            self._tasks[other.id] = _Task(spec=other, belief=Belief())

    def _easier(self, task: TaskSpec) -> TaskSpec | None:
        """The next easier task of the family that is not out of the band itself."""
        rank = DIFFICULTIES.index(task.difficulty) if task.difficulty in DIFFICULTIES else 0
        open_ = (Standing.UNKNOWN, Standing.ACTIVE, Standing.SCOUTED)
        easier = [
            t.spec
            for t in self._tasks.values()
            if t.spec.family == task.family and t.spec.difficulty in DIFFICULTIES[:rank] and t.standing in open_
        ]
        return max(easier, key=lambda t: DIFFICULTIES.index(t.difficulty), default=None)

    def _due(self) -> str | None:
        """The task that was out longest, when it is time to look at one again."""
        if not self.rule.revisit or self._decisions - self._revisited < self.rule.revisit:
            return None
        out = [t for t in self._tasks.values() if t.standing in (Standing.RETIRED, Standing.DEFERRED)]
        return min(out, key=lambda t: t.since).spec.id if out else None

    def standing(self, task: str) -> Standing:
        return self._tasks[task].standing

    def shown(self) -> dict[str, Any]:
        """Where every task stands, for reports: counts, the deferred and retired with their reasons."""
        counts = {s.value: sum(t.standing is s for t in self._tasks.values()) for s in Standing}
        listed = {
            s.value: [
                {"task": t.spec.id, "reason": t.reason, "estimate": round(t.belief.mean, 4), "replaced_by": t.replaced_by}
                for t in self._tasks.values()
                if t.standing is s
            ]
            for s in (Standing.RETIRED, Standing.DEFERRED)
        }
        return {
            "tasks": counts,
            **listed,
            "history": self.history,
            "band": list(self.rule.band),
            "scouts": self.rule.scouts,
        }
