"""Where each running trajectory is and since when: what admission counts, and what the watchdog shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from sandbox.ports import Clock


class Phase(StrEnum):
    SESSION = "session"  # waits for a namespace
    MODEL = "model"  # waits for a slot or generates
    TOOL = "tool"
    JUDGE = "judge"
    TEARDOWN = "teardown"
    STORAGE = "storage"
    CLEARANCE = "clearance"  # nothing is held any more; its end is not yet vouched for


RUNNABLE = frozenset({Phase.SESSION, Phase.MODEL})
HOLDING = frozenset(Phase) - {Phase.CLEARANCE, Phase.STORAGE}


class Board:
    """`moves` counts every change; `changed` wakes those who wait for one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[str, tuple[Phase, str, float]] = {}
        self.moves = 0
        self.moved_at = clock.monotonic()
        self.changed = asyncio.Event()

    def move(self) -> None:
        """Something went on."""
        self.moves += 1
        self.moved_at = self._clock.monotonic()
        self.changed.set()

    def enter(self, trajectory: str, phase: Phase, detail: str = "") -> None:
        self._places[trajectory] = (phase, detail, self._clock.monotonic())
        self.move()

    def leave(self, trajectory: str) -> None:
        self._places.pop(trajectory, None)
        self.move()

    @contextmanager
    def within(self, trajectory: str, phase: Phase, detail: str = "") -> Iterator[None]:
        """Show a phase for the block, and the former one after it."""
        before = self._places.get(trajectory)
        self.enter(trajectory, phase, detail)
        try:
            yield
        finally:
            if before is None:
                self.leave(trajectory)
            else:
                self.enter(trajectory, before[0], before[1])

    @property
    def runnable(self) -> int:
        """Trajectories that want the model, or are about to."""
        return sum(phase in RUNNABLE for phase, _, _ in self._places.values())

    @property
    def holding(self) -> int:
        """Trajectories that hold or want a session."""
        return sum(phase in HOLDING for phase, _, _ in self._places.values())

    def counts(self) -> dict[str, int]:
        """How many trajectories are in each phase; in a tool, by its name."""
        names = (f"tool:{detail}" if phase is Phase.TOOL else phase.value for phase, detail, _ in self._places.values())
        return dict(Counter(names))

    @property
    def quiet_s(self) -> float:
        return self._clock.monotonic() - self.moved_at

    def shown(self) -> Mapping[str, str]:
        """Each trajectory with its phase and for how long, the longest first."""
        now = self._clock.monotonic()
        rows = sorted(self._places.items(), key=lambda row: row[1][2])
        return {t: f"{phase.value}{f' ({detail})' if detail else ''} for {now - since:.1f} s" for t, (phase, detail, since) in rows}
