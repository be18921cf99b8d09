"""Whether devices should move between generation and learning: a real move is timed, and held against the idle time it removes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rollout.meters.cycle import cycles
from rollout.meters.measure import Evidence
from rollout.meters.spans import SpanKind, Stage
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock

Act = Callable[[], Awaitable[Any]]


async def measure_move(steps: dict[str, Act], *, clock: Clock, times: int = 1) -> dict[str, Any]:
    """Do every step of a move there and back, in order, and time each; the longest of `times` moves counts."""
    moves: list[dict[str, float]] = []
    for _ in range(times):
        taken: dict[str, float] = {}
        for name, act in steps.items():
            began = clock.monotonic()
            await act()
            taken[name] = clock.monotonic() - began
        moves.append(taken)
    worst = max(moves, key=lambda move: sum(move.values()))
    return {
        "steps_s": {name: round(seconds, 4) for name, seconds in worst.items()},
        "overhead_s": round(sum(worst.values()), 4),
        "moves": len(moves),
        "how": "measured: each step was done",
    }


def idle_of(evidence: Evidence) -> dict[str, float]:
    """Return the mean seconds of a cycle in which each side stood still: no answer was being generated, or no update made."""
    found = cycles(evidence.records, evidence.events)
    if not found:
        raise EnvironmentInvalid("this run has no cycle", fix="run one that ships a batch, with a learner")
    whole = sum(c.seconds for c in found)
    sums = {"generation": 0.0, "learning": 0.0}
    for cycle in found:
        for span in cycle.path:
            if span.kind is SpanKind.MODEL:
                sums["generation"] += span.seconds
            elif span.stage is Stage.OPTIMISATION and span.kind is SpanKind.HANDOFF:
                sums["learning"] += span.seconds
    return {side: round((whole - busy) / len(found), 4) for side, busy in sums.items()}


def decide(move: dict[str, Any], idle: dict[str, float], *, devices: int) -> dict[str, Any]:
    """A move pays when both ways together take less than the idle time of the side that gives its devices away."""
    side = max(idle, key=lambda name: idle[name])
    removed = idle[side] * devices
    pays = move["overhead_s"] * devices < removed
    told = f"a move there and back takes {move['overhead_s']:g} s, {side} stands still for {idle[side]:g} s of a cycle"
    return {
        "move": pays,
        "give_away": side if pays else None,
        "why": f"{told}: {'it pays' if pays else 'it would take longer than what it removes'}",
        "overhead_s": move["overhead_s"],
        "idle_s": idle,
        "devices": devices,
        "measured": move,
    }
