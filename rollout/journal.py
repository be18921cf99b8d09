"""The run's journal: JSONL, appended and fsynced line by line, so that a crash loses no finished trajectory.

Two kinds of line: `trajectory`, when its turns and its score are over; `outcome`, when it is decided where it ends. Reading joins
them. A torn last line, as a crash in the middle of a write leaves it, is found, said and left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from rollout.errors import RecordTorn
from rollout.record import Action, EnvTimings, Trajectory, Turn
from rollout.terms import Failure, State, Termination
from sandbox.aio import in_thread
from sandbox.errors import LimitReached
from sandbox.ports import Clock

_FIELDS = frozenset(f.name for f in fields(Trajectory))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where one trajectory ended, and what of it may be learned."""

    trajectory: str
    state: State
    reason: str = ""
    reward: float | None = None
    advantage: float | None = None
    weight: float | None = None
    gap: int | None = None
    batch: str = ""
    clearance: str = "pending"
    clearance_reason: str = ""
    end_check: str = ""
    reset_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Contents:
    """A journal as read. `torn` is the text of a torn last line, empty where there is none."""

    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    torn: str = ""


class Journal:
    """Appends records to one file. One writer at a time; `async with` opens and closes it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._file: BinaryIO | None = None
        self.lines = 0
        self.written_s = 0.0

    async def __aenter__(self) -> Self:
        await in_thread(self._open)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        """Open for appending; a torn last line of an earlier process is cut off, so that the next record starts a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.path.exists()
        file = self.path.open("ab+")
        if fresh:
            _keep_name(self.path.parent)
        file.seek(0)
        whole = _whole(file.read())
        file.truncate(whole)
        self._file = file

    async def trajectory(self, record: Trajectory) -> None:
        """Append one finished trajectory; returns when it is on the disk."""
        await self._append({"kind": "trajectory", **asdict(record)})

    async def outcome(self, outcome: Outcome) -> None:
        await self._append({"kind": "outcome", **asdict(outcome)})

    async def _append(self, line: Mapping[str, Any]) -> None:
        began = self._clock.monotonic()
        data = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n"
        await in_thread(self._write, data)
        self.lines += 1
        self.written_s += self._clock.monotonic() - began

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise LimitReached(f"the journal {self.path} is closed")
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise LimitReached(
                f"the journal {self.path} cannot be written: {error.strerror}", fix="make room on its disk"
            ) from error


def read(path: Path) -> Contents:
    """Read a journal; RecordTorn names a line that is broken anywhere but at the end."""
    data = path.read_bytes()
    whole = _whole(data)
    contents = Contents(torn=data[whole:].decode("utf-8", "replace"))
    for number, line in _lines(data[:whole]):
        try:
            row = json.loads(line)
            kind = row.pop("kind")
            if kind == "trajectory":
                record = _trajectory(row)
                contents.trajectories[record.id] = record
            elif kind == "outcome":
                outcome = Outcome(**{**row, "state": State(row["state"])})
                contents.outcomes[outcome.trajectory] = outcome
            else:
                raise ValueError(f"a line of kind {kind!r}")
        except (ValueError, TypeError, KeyError) as error:
            raise RecordTorn(f"{path}, line {number}: {error}", fix="the file was changed by hand; take the line out") from error
    return contents


def _keep_name(folder: Path) -> None:
    """A file's fsync does not promise its name: that lies in its directory."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _whole(data: bytes) -> int:
    """Return how many bytes are whole lines."""
    return data.rfind(b"\n") + 1


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line:
            yield number, line


def _trajectory(row: dict[str, Any]) -> Trajectory:
    known = {name: value for name, value in row.items() if name in _FIELDS}
    for name in ("tokens", "mask", "logprobs", "versions"):
        known[name] = tuple(known.get(name, ()))
    known["turns"] = tuple(Turn(**turn) for turn in known.get("turns", ()))
    known["actions"] = tuple(
        Action(**{**action, "retried_at": tuple(action.get("retried_at", ()))}) for action in known.get("actions", ())
    )
    known["timings"] = EnvTimings(**known.get("timings", {}))
    known["termination"] = Termination(known["termination"])
    known["failure"] = Failure(known["failure"])
    return Trajectory(**known)
