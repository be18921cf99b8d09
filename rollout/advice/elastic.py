"""Whether devices should move between generation and learning: a real move is timed, and held against the idle time it removes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rollout.deadline import deadline
from rollout.meters.cycle import cycles
from rollout.meters.measure import Evidence
from rollout.meters.spans import union_s
from sandbox.errors import EnvironmentInvalid, LimitReached
from sandbox.ports import Clock

Act = Callable[[], Awaitable[Any]]
MOVE_S = 1800.0  # at most, for one step: a model that is read from a slow disk


async def measure_move(steps: dict[str, Act], *, clock: Clock, times: int = 1, limit_s: float = MOVE_S) -> dict[str, Any]:
    """Do every step of a move there and back, in order, and time each; the longest of `times` moves counts. LimitReached for a step
    that takes longer than `limit_s`."""
    moves: list[dict[str, float]] = []
    for _ in range(times):
        taken: dict[str, float] = {}
        for name, act in steps.items():
            began = clock.monotonic()
            try:
                async with deadline(clock, limit_s):
                    await act()
            except TimeoutError as error:
                raise LimitReached(f"a move's step `{name}` did not end within {limit_s:g} s") from error
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
    """Return the mean seconds of a cycle in which each side stood still: no answer was being generated for any trajectory, on the
    critical path or beside it, or no update was being made or published."""
    found = cycles(evidence.records, evidence.events)
    if not found:
        raise EnvironmentInvalid("this run has no cycle", fix="run one that ships a batch, with a learner")
    busy = {
        "generation": [(r.began + t.at + t.queue_s, t.service_s) for r in evidence.records.values() for t in r.own_turns],
        "learning": [(e["began"], e["at"] - e["began"]) for e in evidence.events if e["kind"] in ("update", "published")],
    }
    idle = {
        side: sum(cycle.seconds - union_s(stretches, since=cycle.selected, until=cycle.available) for cycle in found)
        for side, stretches in busy.items()
    }
    return {side: round(seconds / len(found), 4) for side, seconds in idle.items()}


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
