"""What every part of the ledger stands on: one writer, one reader, and the listeners."""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sandbox.aio import in_executor
from sandbox.errors import AutoclaveError
from sandbox.ledger import database
from sandbox.ledger.writer import Operation, Transaction, Writer
from sandbox.model import TrajectoryId
from sandbox.ports import Clock

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Connections:
    """What the ledger's threads use; `writing` stays None where it was opened read-only."""

    def __init__(self) -> None:
        self.writing: sqlite3.Connection | None = None
        self.reading: sqlite3.Connection | None = None

    def open(self, path: Path, durability: str, *, read_only: bool) -> None:
        """Open the file; blocking. A writer holds the home's lock."""
        if not read_only:
            self.writing = database.open_for_writing(path, durability)
        self.reading = database.open_for_reading(path)

    def close(self) -> None:
        """Close what is still open, also where opening was cut short. Idempotent."""
        for connection in (self.writing, self.reading):
            if connection is not None:
                connection.close()


class Store:
    """Holds the connections. The parts of the ledger are its subclasses, and `SqliteLedger` joins them."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        connections: Connections,
        *,
        boundary: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._listeners: dict[int, Callable[[Sequence[TrajectoryId]], None]] = {}
        self._numbers = itertools.count()
        self._closed = False
        if connections.reading is None:
            raise AutoclaveError(f"the ledger {path} is not open")
        self._reading = connections.reading
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ledger-reader")
        self._writer = (
            None if connections.writing is None else Writer(connections.writing, path, clock, notify=self._tell, boundary=boundary)
        )

    async def close(self) -> None:
        """Write what is queued and close the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await in_executor(self._reader, self._reading.close)
        self._reader.shutdown()
        if self._writer is not None:
            await self._writer.close()

    def on_change(self, callback: Callable[[Sequence[TrajectoryId]], None]) -> Callable[[], None]:
        """Call back (in the event loop) after clearances changed; returns the function that unsubscribes."""
        number = next(self._numbers)
        self._listeners[number] = callback

        def unsubscribe() -> None:
            self._listeners.pop(number, None)

        return unsubscribe

    def _tell(self, moved: Sequence[TrajectoryId]) -> None:
        for callback in tuple(self._listeners.values()):
            try:
                callback(moved)
            except Exception:  # a listener's fault is its own; what it was told of is durable
                logger.exception("a listener of clearances failed")

    async def _write(self, operation: Operation, work: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise AutoclaveError(f"the ledger {self.path} was opened read-only")
        return await self._writer.submit(operation, work)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query over one consistent view, beside the writer."""
        if self._closed:
            raise AutoclaveError("the ledger is closed")
        return await in_executor(self._reader, self._viewed, query)

    def _viewed(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._reading.execute("BEGIN")
            try:
                return query(self._reading)
            finally:
                self._reading.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise database.worded(error, self.path) from error
