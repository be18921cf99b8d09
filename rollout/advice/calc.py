"""The articles' two worked examples, for anyone's own numbers: what overlap can gain at most, and what a GPU-hour buys in signal.

Nothing here is measured. Every answer carries `illustrative`, so that none can pass for a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sandbox.errors import EnvironmentInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One synchronous step, in seconds. `slowest_s` is the longest trajectory of the batch, a part of generation."""

    generation_s: float = 90.0
    training_s: float = 20.0
    publication_s: float = 2.0
    slowest_s: float = 80.0

    def __post_init__(self) -> None:
        if min(self.generation_s, self.training_s, self.publication_s) < 0 or self.generation_s + self.training_s <= 0:
            raise EnvironmentInvalid("seconds are not negative, and a step takes some")
        if not 0 <= self.slowest_s <= self.generation_s:
            raise EnvironmentInvalid(
                f"the slowest trajectory takes {self.slowest_s:g} s of {self.generation_s:g} s of generation",
                fix="give --slowest-s at most --generation-s",
            )


def timeline(given: Timeline) -> dict[str, Any]:
    """Return the step, each side's share of it, and the most that overlapping the two sides can gain."""
    trainer = given.training_s + given.publication_s
    step = given.generation_s + trainer
    overlapped = max(given.generation_s, trainer)
    return {
        "illustrative": True,
        "given": asdict(given),
        "cycle_s": step,
        "trainer_busy_s": trainer,
        "trainer_share": round(trainer / step, 4),
        "generation_share": round(given.generation_s / step, 4),
        "slowest_share_of_generation": round(given.slowest_s / given.generation_s, 4) if given.generation_s else None,
        "overlapped_cycle_s": overlapped,
        "overlap_ceiling": round(step / overlapped, 4),
        "trainer_share_overlapped": round(trainer / overlapped, 4),
        "bound_by": "generation" if given.generation_s >= trainer else "training",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A training run. `informative` is the share of prompts with unequal rewards; `scouts` are rollouts spent on each prompt to
    choose it, beside its group."""

    name: str
    group_size: int
    informative: float
    prompts: int = 100
    gpu_hours_per_rollout: float = 0.02
    steps: int = 500
    scouts: float = 0.0

    def __post_init__(self) -> None:
        if min(self.group_size, self.prompts, self.steps) < 1 or not 0 <= self.informative <= 1:
            raise EnvironmentInvalid(f"configuration {self.name}: sizes are at least 1, a share lies between 0 and 1")
        if self.gpu_hours_per_rollout <= 0 or self.scouts < 0:
            raise EnvironmentInvalid(f"configuration {self.name}: a rollout costs more than 0 GPU-hours, scouts not less than 0")


A = Configuration(name="A", group_size=8, informative=0.4)
B = Configuration(name="B", group_size=4, informative=0.7)


def row(given: Configuration) -> dict[str, Any]:
    """Return one configuration's rollouts, GPU-hours and informative signal, by both denominators, scouting charged."""
    rollouts = given.group_size * given.prompts * given.steps
    scouts = given.scouts * given.prompts * given.steps
    hours = (rollouts + scouts) * given.gpu_hours_per_rollout
    groups = given.informative * given.prompts * given.steps
    return {
        **asdict(given),
        "rollouts": rollouts,
        "scout_rollouts": scouts,
        "gpu_hours": round(hours, 9),
        "scouting_gpu_hours": round(scouts * given.gpu_hours_per_rollout, 6),
        "informative_groups": round(groups, 9),
        "informative_rollouts": round(groups * given.group_size, 9),
        "informative_rollouts_per_step": round(given.informative * given.prompts * given.group_size, 6),
        "informative_groups_per_gpu_hour": round(groups / hours, 4),
        "informative_rollouts_per_gpu_hour": round(groups * given.group_size / hours, 4),
    }


def informative(first: Configuration, second: Configuration) -> dict[str, Any]:
    """Compare two configurations by both denominators, and say how much scouting the second may cost before it is no better."""
    one, other = row(first), row(second)
    return {
        "illustrative": True,
        "denominators": ["informative_groups", "informative_rollouts"],
        "configurations": [one, other],
        "ratio": {
            "informative_groups": _ratio(other, one, "informative_groups"),
            "informative_rollouts": _ratio(other, one, "informative_rollouts"),
        },
        "scouting_break_even": {
            name: _break_even(second, other, one, name) for name in ("informative_groups", "informative_rollouts")
        },
    }


def _ratio(part: Mapping[str, Any], whole: Mapping[str, Any], name: str) -> float | None:
    """By what was not rounded yet: small rates would lose their digits."""
    rate = whole[name] / whole["gpu_hours"]
    return round(part[name] / part["gpu_hours"] / rate, 4) if rate else None


def _break_even(given: Configuration, own: Mapping[str, Any], other: Mapping[str, Any], name: str) -> dict[str, float] | None:
    """The scouting at which `own` buys no more signal an hour than `other`: in GPU-hours, and in rollouts a chosen prompt. Below 0:
    it buys less without any."""
    rate = other[name] / other["gpu_hours"]
    if not rate:
        return None
    hours = own[name] / rate - own["rollouts"] * given.gpu_hours_per_rollout
    prompts = given.prompts * given.steps
    return {"gpu_hours": round(hours, 4), "scouts_per_prompt": round(hours / given.gpu_hours_per_rollout / prompts, 4)}
