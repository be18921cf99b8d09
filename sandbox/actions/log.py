"""Writing actions down: one append-only log for a home, in segments, the oldest of which go when there are too many.

An action never waits for its record: a thread turns it into text and writes it. What could not be written leaves a gap in its
session's numbers, which a reader finds; so does what a killed manager had not written yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from sandbox.actions.action import ActionKind, RecordedAction, encode, encode_end
from sandbox.aio import in_thread, run_shielded
from sandbox.model import ExecResult, TrajectoryId

log = logging.getLogger(__name__)
SEGMENT = 16_000_000  # bytes
SEGMENTS = 8  # that a small budget is divided into
MOST_PENDING = 32_000_000  # bytes that wait for the thread; more is left out
Line = Callable[[], bytes]  # called in the thread


class Ending:
    """How an action ended, as far as its session says so."""

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self.timed_out = False
        self.error = ""

    def result(self, result: ExecResult) -> None:
        self.exit_code, self.timed_out = result.exit_code, result.timed_out


class Notes:
    """What one session does, in order."""

    def __init__(self, trajectory: TrajectoryId, add: Callable[[Line, int], None] | None) -> None:
        self._trajectory = trajectory
        self._add = add
        self._begun = 0
        self._given: set[tuple[ActionKind, str]] = set()
        self._ended = False

    @contextmanager
    def doing(self, kind: ActionKind, **what: Any) -> Iterator[Ending]:
        """Write the action down when the block ends, however it does."""
        number, ending = self._begun, Ending()
        self._begun += 1
        try:
            yield ending
        except BaseException as error:
            ending.error = type(error).__name__
            raise
        finally:
            if self._add is not None:
                ended: Any = {"exit_code": ending.exit_code, "timed_out": ending.timed_out, "error": ending.error}
                action = RecordedAction(number=number, kind=kind, **what, **ended)
                page = 0 if action.page is None else len(action.page.at) + len(action.page.text)
                self._add(partial(encode, self._trajectory, action), 500 + page + _size(action.stdin) + _size(action.data))

    def gave(self, kind: ActionKind, resource: str) -> None:
        """Write down, once, that something was given out at which the holder acts unseen."""
        if (kind, resource) not in self._given:
            self._given.add((kind, resource))
            with self.doing(kind, resource=resource):
                pass

    def end(self) -> None:
        """Say how many there were. Calling it again changes nothing."""
        if not self._ended and self._add is not None:
            self._add(partial(encode_end, self._trajectory, self._begun), 100)
        self._ended = True


class Recorder(Protocol):
    """Where a pool's sessions write down what they do."""

    def begin(self, trajectory: TrajectoryId) -> Notes: ...


class Unrecorded:
    """Nobody writes anything down."""

    def begin(self, trajectory: TrajectoryId) -> Notes:
        return Notes(trajectory, None)


class ActionLog:
    """The log of one home; one process writes it at a time, the one that holds the home."""

    def __init__(self, directory: Path, *, budget_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = max(1, min(SEGMENT, budget_bytes // SEGMENTS))
        self._keep = max(1, budget_bytes // self._segment_bytes)
        self._pending: list[Line] = []
        self._pending_bytes = 0
        self._lost = 0
        self._writing: asyncio.Task[None] | None = None
        self._file: int | None = None
        self._number = 0
        self._written = 0  # bytes in the present segment

    def begin(self, trajectory: TrajectoryId) -> Notes:
        return Notes(trajectory, self._add)

    def _add(self, line: Line, size: int) -> None:
        if self._pending_bytes + size > MOST_PENDING:
            self._lose(1, "the disk is slower than the sessions")
            return
        self._pending.append(line)
        self._pending_bytes += size
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._flush(), name="action log")

    async def _flush(self) -> None:
        while self._pending:
            lines, self._pending, self._pending_bytes = self._pending, [], 0
            try:
                await in_thread(self._write, lines)
            except OSError as error:
                self._lose(len(lines), str(error))

    def _lose(self, count: int, reason: str) -> None:
        if not self._lost:
            log.warning("actions are not recorded", extra={"event": "actions.lost", "reason": reason})
        self._lost += count

    async def close(self) -> None:
        """Write what waits."""
        await run_shielded(self._close())

    async def _close(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._flush()
        self._shut()

    # in the thread

    def _write(self, lines: Sequence[Line]) -> None:
        try:
            self._write_all(lines)
        except OSError:
            self._shut()  # a line may be torn: the next opening ends it
            raise

    def _write_all(self, lines: Sequence[Line]) -> None:
        if self._file is None:
            self._open()
        room, batch = self._segment_bytes - self._written, bytearray()
        for line in lines:
            if len(batch) >= room:
                self._append(batch)
                self._next()
                room, batch = self._segment_bytes, bytearray()
            try:
                batch += line()
            except Exception as error:  # noqa: BLE001 - what a caller sent may be anything: its own number is missing then
                self._lose(1, f"{type(error).__name__}: {error}")
        self._append(batch)

    def _append(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._written += len(data)

    def _open(self) -> None:
        """Go on with the newest segment; a line that a killed manager left torn ends here."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = [number for number, _ in segments(self._directory)]
        self._number = numbers[-1] if numbers else 1
        path = _path(self._directory, self._number)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._written = os.fstat(self._file).st_size
        if self._written and os.pread(self._file, 1, self._written - 1) != b"\n":
            self._append(b"\n")

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _next(self) -> None:
        self._shut()
        self._number += 1
        path = _path(self._directory, self._number)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._written = 0
        for _, old in list(segments(self._directory))[: -self._keep]:
            old.unlink(missing_ok=True)


def _size(content: Any) -> int:
    return len(content) if isinstance(content, bytes | bytearray | memoryview) else 0


def segments(directory: Path) -> Sequence[tuple[int, Path]]:
    """Return the log's files by number, oldest first."""
    found = [(int(path.stem), path) for path in directory.glob("*.jsonl") if path.stem.isdigit()]
    return sorted(found)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.jsonl"


@asynccontextmanager
async def open_actions(directory: Path, *, budget_mb: int) -> AsyncIterator[Recorder]:
    """Open the log of a home that this process holds; a budget of 0 records nothing."""
    if budget_mb <= 0:
        yield Unrecorded()
        return
    opened = ActionLog(directory, budget_bytes=budget_mb * 1_000_000)
    try:
        yield opened
    finally:
        await opened.close()
