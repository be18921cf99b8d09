"""Means with intervals over seeds, and what they allow to be said about the contamination experiment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from rollout.recipes.arms import Arm

MARGIN = 0.10
# Student's t, two-sided 95 %, by degrees of freedom.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """`low` and `high` are None where one value allows no interval."""

    mean: float
    low: float | None
    high: float | None
    n: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95 % interval (Student's t). At least one value, and at most 16."""
    if not 1 <= len(values) <= len(T95) + 1:
        raise ValueError(f"an interval of {len(values)} values: between 1 and {len(T95) + 1} are wanted")
    mean = fmean(values)
    if len(values) == 1:
        return Interval(mean=mean, low=None, high=None, n=1)
    half = T95[len(values) - 2] * stdev(values) / math.sqrt(len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half, n=len(values))


def harms(difference: Interval) -> str:
    """What none - off shows: `yes` where the mean reaches the margin and the interval lies above 0."""
    return "yes" if difference.low is not None and difference.mean >= MARGIN and difference.low > 0 else "undecided"


def protects(difference: Interval) -> str:
    """What none - on shows: `yes` where the interval lies below the margin."""
    return "yes" if difference.high is not None and difference.high < MARGIN else "undecided"


def analyse(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the arms at each rate, paired by seed; seeds that lack an arm are left out of that comparison and counted."""
    final = {_key(run): run["curve"][-1]["success"] for run in runs}
    rates = sorted({rate for _, rate, _ in final if rate})
    seeds = sorted({seed for _, _, seed in final})
    out: list[dict[str, Any]] = []
    for rate in rates:
        row: dict[str, Any] = {"rate": rate}
        for arm in Arm:
            found = [final[k] for s in seeds if (k := (arm.value, 0.0 if arm is Arm.NONE else rate, s)) in final]
            row[arm.value] = asdict(interval(found)) if found else None
        for arm, verdict in ((Arm.OFF, harms), (Arm.ON, protects)):
            pairs = [
                final["none", 0.0, seed] - final[arm.value, rate, seed]
                for seed in seeds
                if ("none", 0.0, seed) in final and (arm.value, rate, seed) in final
            ]
            difference = interval(pairs) if pairs else None
            row[f"none_minus_{arm}"] = asdict(difference) if difference else None
            row[verdict.__name__] = verdict(difference) if difference else "not run"
        out.append(row)
    return out


def _key(run: Mapping[str, Any]) -> tuple[str, float, int]:
    cell = run["cell"]
    return str(cell["arm"]), float(cell["rate"]), int(cell["seed"])
