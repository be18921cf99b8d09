"""What happened in a run beside its trajectories, when: groups chosen, batches, updates, publications, lines, memory, power.

Kept in memory and appended to `events.jsonl` by the sampler, never fsynced: a crash may lose the last seconds of measurements, and
no trajectory. `at` is on the run's clock, as `Trajectory.began` is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.ports import Clock

Event = dict[str, Any]
EVENTS = "events.jsonl"
LARGEST = 200_000  # events that are kept in memory; more are on disk only


class Events:
    """Takes events down. `on` False: the meters are off, and nothing is kept."""

    def __init__(self, clock: Clock, path: Path | None = None, *, on: bool = True) -> None:
        self.clock = clock
        self.path = path
        self.on = on
        self.seen: list[Event] = []
        self._written = 0
        self.left_out = 0  # beyond LARGEST, on disk only

    def note(self, kind: str, **fields: Any) -> None:
        """Take one down, stamped with the time."""
        if not self.on:
            return
        if len(self.seen) >= LARGEST:
            self.flush()
            self.left_out += len(self.seen) - LARGEST // 2
            self.seen = self.seen[-LARGEST // 2 :]
            self._written = len(self.seen)
        self.seen.append({"kind": kind, "at": round(self.clock.monotonic(), 6), **fields})

    def flush(self) -> None:
        """Append what is new to the file. Blocking."""
        fresh = self.seen[self._written :]
        if self.path is None or not fresh:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(event, separators=(",", ":"), default=str) + "\n" for event in fresh)
        self._written += len(fresh)


def read_events(path: Path) -> list[Event]:
    """Read a run's events; none where there is no file. A torn last line is left out."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[:-1] if line]
