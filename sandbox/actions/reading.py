"""Reading the log: what some trajectories did, and whether that is all they did."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.actions.action import END, RecordedAction, decode
from sandbox.actions.log import segments
from sandbox.aio import in_thread
from sandbox.model import TrajectoryId

_TRAJECTORY = re.compile(rb'{"t":("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A trajectory's actions in order. `gap` says what is missing, empty where nothing is."""

    actions: tuple[RecordedAction, ...] = ()
    gap: str = ""


async def read(directory: Path, trajectories: Iterable[TrajectoryId]) -> Mapping[TrajectoryId, Recording]:
    """Return what was kept of each; one without a record has that as its gap. Works beside a running pool."""
    return await in_thread(_read, directory, list(trajectories))


def _read(directory: Path, trajectories: list[TrajectoryId]) -> dict[TrajectoryId, Recording]:
    wanted = {json.dumps(trajectory).encode(): trajectory for trajectory in trajectories}
    actions: dict[TrajectoryId, dict[int, RecordedAction]] = {trajectory: {} for trajectory in trajectories}
    begun: dict[TrajectoryId, int] = {}
    for _, path in segments(directory):
        try:
            with path.open("rb") as file:
                for line in file:
                    head = _TRAJECTORY.match(line)
                    trajectory = wanted.get(head[1]) if head is not None else None
                    if trajectory is not None:
                        _take(line, actions[trajectory], trajectory, begun)
        except FileNotFoundError:  # it went while the others were read
            continue
    return {trajectory: _recording(actions[trajectory], begun.get(trajectory)) for trajectory in trajectories}


def _take(line: bytes, actions: dict[int, RecordedAction], trajectory: TrajectoryId, begun: dict[TrajectoryId, int]) -> None:
    try:
        held = json.loads(line)
        if held["k"] == END:
            begun[trajectory] = int(held["n"])
        else:
            action = decode(held)
            actions[action.number] = action
    except (KeyError, TypeError, ValueError):  # torn: its number is missing then
        return


def _recording(actions: dict[int, RecordedAction], begun: int | None) -> Recording:
    found = tuple(actions[number] for number in sorted(actions))
    if begun is None and not found:
        return Recording(gap="nothing of it is recorded")
    if begun is None:
        return Recording(actions=found, gap=f"its end is not recorded: {len(found)} actions are known")
    missing = begun - len(found)
    return Recording(actions=found, gap=f"{missing} of its {begun} actions are not recorded" if missing > 0 else "")
