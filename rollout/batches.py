"""Batches: which final groups go into the next one, which are late, which are stale. Pure; shipping itself is the loop's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rollout.errors import Saturated
from rollout.groups import Group
from rollout.record import Trajectory
from rollout.terms import Late

GATED, OPTIMISTIC = "gated", "optimistic"


def full_weight(gap: int) -> float:
    """No down-weighting."""
    return 1.0


def by_gap(gap: int) -> float:
    """The older, the less: 1, 1/2, 1/3 ..."""
    return 1 / (1 + gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRule:
    """Where rollouts and updates meet. `groups` are wanted for a batch; one may go with `completeness` of them. No trajectory ships
    whose policy is more than `max_gap` versions old. `weight` says how much a gap still counts."""

    groups: int = 2
    max_gap: int = 4
    completeness: float = 1.0
    late: Late = Late.NEXT
    mode: str = GATED
    weight: Callable[[int], float] = full_weight

    def __post_init__(self) -> None:
        if self.groups < 1 or self.max_gap < 0 or not 0 < self.completeness <= 1 or self.mode not in (GATED, OPTIMISTIC):
            raise ValueError(
                f"a batch of {self.groups} groups, gap {self.max_gap}, completeness {self.completeness}, mode {self.mode!r}: "
                "at least 1 group, a gap of at least 0, a completeness above 0 up to 1, mode gated or optimistic"
            )

    @property
    def least(self) -> int:
        """The fewest groups that a batch may have."""
        return math.ceil(self.completeness * self.groups - 1e-9)

    @property
    def outstanding(self) -> int:
        """How many groups may be admitted and not yet trained on, so that none can be older than the gap allows."""
        return (self.max_gap + 1) * self.groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A trajectory in a batch, with what the loss needs beside it."""

    trajectory: Trajectory
    advantage: float
    gap: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What an update is made of; the ledger recorded it before it was handed out. `off_policy` lies beyond the gap, apart: in the
    ledger it is a batch of its own, `off_policy_id`, which an update that takes it names beside the other."""

    id: str
    version: int
    samples: tuple[Sample, ...]
    groups: tuple[str, ...]
    off_policy: tuple[Sample, ...] = ()
    off_policy_id: str = ""

    @property
    def recorded(self) -> tuple[str, ...]:
        """Its names in the ledger, that of `off_policy` included."""
        return tuple(dict.fromkeys(name for name in (self.id, self.off_policy_id) if name))


class Shelf:
    """Final groups that wait for a batch. Bounded: one more than fits is Saturated, so that admission has to hold back."""

    def __init__(self, rule: SyncRule, *, capacity: int) -> None:
        if capacity < rule.groups:
            raise ValueError(f"a shelf of {capacity} cannot hold a batch of {rule.groups} groups")
        self.rule = rule
        self.capacity = capacity
        self._groups: list[Group] = []
        self._late_below = 0  # numbers below this one missed a batch that went without them

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, group: Group) -> None:
        if len(self._groups) >= self.capacity:
            raise Saturated(f"{self.capacity} finished groups wait for a batch already", fix="take batches, or admit less")
        self._groups.append(group)

    def missed(self, group: Group) -> bool:
        """True where its batch went without it and the rule discards such."""
        return self.rule.late is Late.DISCARD and group.number < self._late_below

    def too_old(self, version: int) -> list[Group]:
        """Take out and return the groups that no batch of this version may hold."""
        old = [g for g in self._groups if version - g.oldest_version > self.rule.max_gap]
        self._groups = [g for g in self._groups if g not in old]
        return old

    def cut(self, *, last: bool = False) -> list[Group] | None:
        """Take out the groups of the next batch, the oldest policy first; None while there are too few.

        `last` says that no further group will come; also then none goes below the threshold.
        """
        if len(self._groups) < self.rule.least:
            return None
        self._groups.sort(key=lambda g: (g.oldest_version, g.number))
        chosen, self._groups = self._groups[: self.rule.groups], self._groups[self.rule.groups :]
        if len(chosen) < self.rule.groups and not last:
            self._late_below = max(self._late_below, max(g.number for g in chosen))
        return chosen

    def waiting(self) -> tuple[Group, ...]:
        return tuple(self._groups)
