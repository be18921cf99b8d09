"""Which line grows: slopes of the samples, demand against capacity, and the one stage to add capacity to, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from rollout.meters.events import Event
from rollout.meters.sampler import TRAINER

GROWS = 0.05  # waiters a second, at least, that count as growth
WINDOWS = 3  # stretches of the samples, in each of which a growing line grows
HELD_FOR = {"model": "generation", "judge": "judges", "teardown": "environments", "reset": "environments"}
LEAST = 9  # samples below which nothing is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One line over a stretch of samples. `demand` is arrivals times service over places: above 1 it cannot keep up."""

    name: str
    waiting_mean: float
    waiting_end: int
    slope: float  # waiters a second, by least squares
    grows: bool
    demand: float | None = None

    @property
    def stage(self) -> str:
        """What to add capacity to."""
        return stage_of(self.name)


def stage_of(name: str) -> str:
    """Return the stage that a dependency belongs to."""
    known = {"model": "generation", "session": "environments", "judge": "judges", "storage": "storage", TRAINER: "optimisation"}
    return known.get(name, "environments")


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope; 0 of fewer than two moments."""
    if len(points) < 2:
        return 0.0
    x, y = fmean(p[0] for p in points), fmean(p[1] for p in points)
    spread = sum((p[0] - x) ** 2 for p in points)
    return sum((p[0] - x) * (p[1] - y) for p in points) / spread if spread else 0.0


def trends(
    events: Sequence[Event], *, since: float = 0.0, dependencies: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Trend]:
    """Return every line's trend, the fastest growing first. It grows if it does so stretch after stretch: one burst is none."""
    samples = [e for e in events if e["kind"] == "lines" and e["at"] >= since]
    found = []
    for name in samples[-1]["lines"] if samples else ():
        points = [(e["at"], float(e["lines"][name]["waiting"])) for e in samples]
        found.append(
            Trend(
                name=name,
                waiting_mean=round(fmean(p[1] for p in points), 3),
                waiting_end=int(points[-1][1]),
                slope=round(slope(points), 4),
                grows=_grows(points),
                demand=_demand(name, samples, (dependencies or {}).get(name)),
            )
        )
    return sorted(found, key=lambda t: (-t.grows, -t.slope))


def _grows(points: Sequence[tuple[float, float]]) -> bool:
    if len(points) < LEAST:
        return False
    size = len(points) // WINDOWS
    means = [fmean(p[1] for p in points[n * size : (n + 1) * size]) for n in range(WINDOWS)]
    return slope(points) >= GROWS and all(later > earlier for earlier, later in pairwise(means))


def _demand(name: str, samples: Sequence[Event], shown: Mapping[str, Any] | None) -> float | None:
    """Arrivals a second times mean service over places, within the samples. Arrivals are those served and those in line by now."""
    if shown is None or not shown["taken"] or len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    a, b = first["lines"][name], last["lines"][name]
    arrivals = b["taken"] - a["taken"] + b["waiting"] - a["waiting"]
    seconds = last["at"] - first["at"]
    return round(arrivals / seconds * shown["service_s"] / shown["taken"] / shown["limit"], 4) if seconds else None


def bottleneck(found: Sequence[Trend]) -> Trend | None:
    """The one line to which capacity should be added: the fastest growing; None while none grows. A line before another one that
    grows because its holders wait there is not it: who waits for a tool holds a session."""
    growing = [t for t in found if t.grows]
    inner = [t for t in growing if t.name != "session"]
    return max(inner or growing, key=lambda t: t.slope, default=None)


def held_by(events: Sequence[Event]) -> dict[str, float]:
    """What the places among the sessions were held for, as shares of them: the model, a tool, the judge, ending, or (`reset`) a
    namespace that was not ready yet."""
    sums: Counter[str] = Counter()
    for event in events:
        if event["kind"] != "lines" or "session" not in event["lines"]:
            continue
        seen = {name: n for name, n in event.get("phases", {}).items() if name in HELD_FOR or name.startswith("tool:")}
        sums.update(seen)
        sums["reset"] += max(0, event["lines"]["session"]["held"] - sum(seen.values()))
    whole = sum(sums.values())
    return {name: round(count / whole, 4) for name, count in sums.most_common() if count} if whole else {}


def advice(found: Sequence[Trend], events: Sequence[Event] = (), *, overrun: str = "") -> dict[str, Any]:
    """Name exactly one stage, or none, and say what would make it worse. Where only the sessions' own line grows, it is the stage
    for which most of their time is held. `overrun` says that more came than could get in line: then no line need grow any more,
    and it is the longest one."""
    one, grows = bottleneck(found), ""
    if one is None and overrun and found:
        one = max(found, key=lambda t: t.waiting_mean)
        grows = f"{overrun}, and the longest line is that before {one.name}"
    held = held_by(events)
    lines = [
        {
            "line": t.name,
            "stage": t.stage,
            "slope_per_s": t.slope,
            "waiting_mean": t.waiting_mean,
            "waiting_end": t.waiting_end,
            "demand": t.demand,
            "grows": t.grows,
        }
        for t in found
    ]
    if one is None:
        return {"add_capacity_to": None, "line": None, "why": "no line grows", "held_by": held, "lines": lines}
    stage, grows = one.stage, grows or f"the line before {one.name} grows by {one.slope:g} a second"
    if one.name == "session" and held:
        most, share = next(iter(held.items()))
        stage = HELD_FOR.get(most, "environments")
        grows += f", and {share:.0%} of what holds the sessions is {most}"
    return {"add_capacity_to": stage, "line": one.name, "why": _why(stage, grows), "held_by": held, "lines": lines}


def _why(stage: str, grows: str) -> str:
    match stage:
        case "environments":
            return f"{grows}: more generation would only make it longer"
        case "optimisation":
            return f"{grows}: faster rollouts would only make older data"
        case "generation":
            return f"{grows}: more environments would only wait for the model"
    return f"{grows}: capacity anywhere else ends there"
