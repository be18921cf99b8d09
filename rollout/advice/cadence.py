"""How often to check deep: the cadence k at which the price of checks and the expected loss after a leak are least together.

A deep check every k trajectories costs check_s / k each; when a leak is found, all since the last clean deep check are lost, which
happens to a share 1 - (1 - q)^k of windows. q is the upper confidence limit of the leak rate: after n trajectories without a leak
it is about 3 / n and not 0, so that little experience asks for more checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from sandbox.errors import EnvironmentInvalid

CONFIDENCE = 0.95
MOST = 1000  # cadences that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What is known: seconds of one deep check and of one trajectory, how many trajectories deep checks have covered, and how many
    of those checks found something that the quick ones had not."""

    check_s: float
    trajectory_s: float
    covered: int
    leaks: int

    def __post_init__(self) -> None:
        if self.check_s <= 0 or self.trajectory_s <= 0 or not 0 <= self.leaks <= self.covered or self.covered < 1:
            raise EnvironmentInvalid(
                f"a check of {self.check_s:g} s, a trajectory of {self.trajectory_s:g} s, {self.leaks} leaks in {self.covered}",
                fix="seconds above 0, at least one trajectory that a deep check covered, and not more leaks than those",
            )


def with_given(kept: Experience, *, check_s: float | None, covered: int | None, leaks: int) -> Experience:
    """Return what is known, with what was given in its place; `leaks` belong to `covered`."""
    seen = {} if covered is None else {"covered": covered, "leaks": leaks}
    return replace(kept, check_s=kept.check_s if check_s is None else check_s, **seen)


def leak_rate_limit(covered: int, leaks: int, *, confidence: float = CONFIDENCE) -> float:
    """Return the exact upper confidence limit of the leak rate (Clopper and Pearson), by bisection."""
    if leaks >= covered:
        return 1.0
    low, high = leaks / covered, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(leaks, covered, middle) > 1 - confidence else (low, middle)
    return (low + high) / 2


def _at_most(leaks: int, covered: int, rate: float) -> float:
    """The probability of at most that many leaks; by logarithms, since the ways to choose them leave a float's range."""
    if rate <= 0 or rate >= 1:
        return float(rate <= 0 or leaks >= covered)
    whole = math.lgamma(covered + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(covered - k + 1) + k * math.log(rate) + (covered - k) * math.log1p(-rate))
        for k in range(leaks + 1)
    )


def expected(experience: Experience, k: int, rate: float) -> float:
    """Return the expected seconds that checking and loss cost each trajectory at cadence k."""
    return experience.check_s / k + experience.trajectory_s * (1 - (1 - rate) ** k)


def cadence(experience: Experience, *, now: int | None = None) -> dict[str, Any]:
    """Return the best k, what it costs, what the present one costs, and the limit of the leak rate that decides it."""
    rate = leak_rate_limit(experience.covered, experience.leaks)
    best = min(range(1, MOST + 1), key=lambda k: expected(experience, k, rate))
    shown = sorted({1, 2, 5, 10, 20, 50, 100, best, *([now] if now else [])})
    return {
        "deep_every": best,
        "expected_s_per_trajectory": round(expected(experience, best, rate), 6),
        "now": now,
        "now_costs_s_per_trajectory": None if now is None else round(expected(experience, now, rate), 6),
        "leak_rate": round(experience.leaks / experience.covered, 6),
        "leak_rate_limit": round(rate, 6),
        "confidence": CONFIDENCE,
        "check_s": round(experience.check_s, 6),
        "trajectory_s": round(experience.trajectory_s, 6),
        "covered": experience.covered,
        "leaks": experience.leaks,
        "curve": {str(k): round(expected(experience, k, rate), 6) for k in shown},
    }


def experience_of(activity: Mapping[str, Any], trajectory_s: float | None) -> Experience:
    """Read the ledger's rows of one environment; EnvironmentInvalid where no deep check was made yet."""
    deep = [row for row in activity["checks"] if row["depth"] == "deep" and row["status"] != "inconclusive"]
    if not deep:
        raise EnvironmentInvalid(
            "the ledger holds no deep check of this environment yet", fix="run `autoclave audit`, or give --check-s and --covered"
        )
    if trajectory_s is None:
        raise EnvironmentInvalid("there is no trajectory to know the length of", fix="run one, or give --trajectory-s")
    highest: dict[str, int] = {}
    for row in deep:
        highest[row["namespace"]] = max(highest.get(row["namespace"], 0), row["sequence"])
    return Experience(
        check_s=fmean(row["seconds"] for row in deep),
        trajectory_s=trajectory_s,
        covered=max(1, sum(highest.values())),
        leaks=min(sum(row["status"] == "mismatch" for row in deep), max(1, sum(highest.values()))),
    )
