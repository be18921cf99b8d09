"""The priority of a task: a sum of named terms, each between 0 and 1 times its weight, small enough to be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TERMS = ("coverage", "failure_rarity", "freshness", "family", "cost", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each term counts. `families` gives a family its own worth (0 to 1, 0 where it is not named)."""

    coverage: float = 1.0
    failure_rarity: float = 0.5
    freshness: float = 0.5
    family: float = 1.0
    cost: float = 0.25
    age: float = 0.1  # for each decision that passed a task by; unbounded, so that none starves
    families: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was observed of one task or one family."""

    admitted: int = 0
    scored: int = 0
    failed: int = 0  # scored and not successful
    env_s: float = 0.0
    finished: int = 0
    last_version: int | None = None
    last_failed: bool = False
    passed_by: int = 0

    @property
    def failure_rate(self) -> float | None:
        return self.failed / self.scored if self.scored else None

    @property
    def mean_env_s(self) -> float | None:
        return self.env_s / self.finished if self.finished else None


def terms(task: Seen, family: Seen, every: Seen, *, family_name: str, version: int, weights: Weights) -> dict[str, float]:
    """Return each term of a task's score, weighted; the score is their sum.

    coverage: high while a task was seldom admitted. failure_rarity: high for a task that failed where its family seldom does.
    freshness: high when the policy has moved on since. family: the worth that it was given. cost: negative for families whose
    environments take long. age: grows with every decision that passed it by.
    """
    rate = family.failure_rate
    rarity = 1.0 - rate if task.last_failed and rate is not None else 0.0
    moved = 1.0 if task.last_version is None else min(1.0, max(0, version - task.last_version) / 4)
    own, mean = family.mean_env_s, every.mean_env_s
    cost = 0.0 if own is None or not mean else -min(1.0, own / (4 * mean))
    return {
        "coverage": weights.coverage / (1 + task.admitted),
        "failure_rarity": weights.failure_rarity * rarity,
        "freshness": weights.freshness * moved,
        "family": weights.family * weights.families.get(family_name, 0.0),
        "cost": weights.cost * cost,
        "age": weights.age * task.passed_by,
    }
