"""Stage 1: the policy stands still, and trajectories are offered at a rate that rises in steps, until one line grows continuously.

Offered, not kept in flight: a fixed number in flight hides the line, since nobody new comes while all wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollout.admission.limits import Limits
from rollout.meters.distribution import percentiles
from rollout.meters.events import Event
from rollout.meters.lines import advice, trends
from rollout.record import Trajectory
from rollout.terms import Termination
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock

MOST_IN_FLIGHT = 2000
SAMPLES = 40  # of one step


class Offered(Protocol):
    """What a load is put on: the real thing, or a simulator. `run` makes one trajectory and returns it; a refusal is a trajectory
    that ended so."""

    @property
    def limits(self) -> Limits: ...
    def phases(self) -> dict[str, int]:
        """How many trajectories do what now."""

    async def run(self, number: int) -> Trajectory: ...
    async def valid(self, records: Sequence[Trajectory]) -> set[str]:
        """Return those that have a reward and are not contaminated."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One rate, held for a while."""

    rate: float
    begun: float
    offered: int = 0
    due: int = 0  # that were to be offered by now
    done: list[Trajectory] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


async def load(
    on: Offered, *, rates: Sequence[float], hold_s: float, clock: Clock, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Raise the rate (trajectories a second) step by step; stop at the first step in which a line grows, or is so full that more
    are refused or cannot be offered, and name its stage.

    Each step holds for `hold_s` seconds. What is still in flight at the end is cancelled: it was measured as waiting.
    """
    if not rates or min(rates) <= 0 or list(rates) != sorted(rates) or hold_s <= 0:
        raise EnvironmentInvalid(
            f"rates {list(rates)}, held for {hold_s:g} s", fix="give rising rates above 0, and seconds to hold them"
        )
    steps: list[dict[str, Any]] = []
    running: set[asyncio.Task[None]] = set()
    number = 0
    found: dict[str, Any] | None = None
    async with asyncio.TaskGroup() as tasks:
        try:
            for rate in rates:
                step = Step(rate=rate, begun=clock.monotonic())

                async def one(number: int, step: Step = step) -> None:
                    step.done.append(await on.run(number))

                for moment in range(SAMPLES):
                    step.due = math.ceil(rate * hold_s * (moment + 1) / SAMPLES)
                    while step.offered < step.due and len(running) < MOST_IN_FLIGHT:
                        task = tasks.create_task(one(number), name=f"offered {number}")
                        running.add(task)
                        task.add_done_callback(running.discard)
                        number, step.offered = number + 1, step.offered + 1
                    await clock.sleep(hold_s / SAMPLES)
                    step.events.append(_sample(on, clock))
                shown = await _shown(on, step, clock, in_flight=len(running))
                steps.append(shown)
                say(f"{rate:g}/s: {shown['finished']} finished, {shown['in_flight']} in flight, {shown['capacity']['why']}")
                if shown["capacity"]["add_capacity_to"] is not None:
                    found = shown
                    break
        finally:
            for task in running:
                task.cancel()
    capacity = None if found is None else found["capacity"]
    return {
        "bottleneck": None if capacity is None else capacity["add_capacity_to"],
        "line": None if capacity is None else capacity["line"],
        "held_by": None if capacity is None else capacity["held_by"],
        "why": "no line grew at any rate" if capacity is None else capacity["why"],
        "at_rate": None if found is None else found["rate"],
        "sustained_rate": max((s["rate"] for s in steps if s is not found), default=None),
        "steps": steps,
    }


def _sample(on: Offered, clock: Clock) -> Event:
    return {"kind": "lines", "at": clock.monotonic(), "lines": on.limits.lines(), "phases": on.phases()}


async def _shown(on: Offered, step: Step, clock: Clock, *, in_flight: int) -> dict[str, Any]:
    """One step's figures: lines, tail, how trajectories ended, what a valid one cost."""
    found = trends(step.events, dependencies=on.limits.shown())
    capacity = advice(found, step.events, overrun=_overrun(step))
    valid = await on.valid(step.done)
    spent = sum(r.duration_s for r in step.done)
    seconds = clock.monotonic() - step.begun
    return {
        "rate": step.rate,
        "seconds": round(seconds, 3),
        "offered": step.offered,
        "finished": len(step.done),
        "in_flight": in_flight,
        "valid": len(valid),
        "valid_per_s": round(len(valid) / seconds, 4) if seconds else None,
        "percentiles": percentiles(step.done),
        "ended_by": dict(Counter(r.termination.value for r in step.done).most_common()),
        "cost_per_valid_s": round(spent / len(valid), 4) if valid else None,
        "capacity": capacity,
        "grows": capacity["line"],
    }


def _overrun(step: Step) -> str:
    """Why more came than could get in line; empty where all could."""
    if step.offered < step.due:
        return f"{step.due - step.offered} could not be offered, {MOST_IN_FLIGHT} were in flight"
    refused = sum(r.termination is Termination.SATURATED for r in step.done)
    return f"{refused} were refused by a full line or in line too long" if refused else ""
