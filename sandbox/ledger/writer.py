"""The one writer: a thread that drains a queue of units into one transaction, and tells their callers after COMMIT.

A unit that fails undoes what it wrote and nothing of its neighbours. No caller hears of success
before the transaction that holds its unit is committed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import AutoclaveError, LimitReached
from sandbox.ledger import database
from sandbox.ledger.rows import when
from sandbox.model import TrajectoryId
from sandbox.ports import Clock

T = TypeVar("T")
logger = logging.getLogger(__name__)

GROUP_UNITS = 256  # a larger group would make its first unit wait for little gain
QUEUED_UNITS = 100_000


class Operation(StrEnum):
    """Every kind of unit that the ledger writes."""

    CREATE_NAMESPACE = "create_namespace"
    TRANSITION = "transition"
    LEASE = "lease"
    RENEW = "renew"
    END_LEASE = "end_lease"
    BEGIN_RESET = "begin_reset"
    END_RESET = "end_reset"
    RECORD_CHECK = "record_check"
    FORK_CHECK = "fork_check"
    RECORD_INSTANCE_CHECK = "record_instance_check"
    ABANDON = "abandon"
    ABANDON_INSTANCE = "abandon_instance"
    SET_ASIDE = "set_aside"
    RESUME = "resume"
    SHIP = "ship"
    RECORD_UPDATE = "record_update"
    RECORD_CHECKPOINT = "record_checkpoint"
    JOIN_GROUP = "join_group"
    SAVE_SNAPSHOT = "save_snapshot"
    FORGET_SNAPSHOT = "forget_snapshot"
    SAVE_BASELINE = "save_baseline"
    SAVE_SCORE = "save_score"
    SAVE_AUDIT = "save_audit"
    PRUNE = "prune"


# The names with which `boundary` is called, immediately before and after the commit that makes a unit durable.
BOUNDARIES = tuple(f"{operation}:{side}" for operation in Operation for side in ("before", "after"))


@dataclass(slots=True)
class Transaction:
    """What a unit's work may use: the connection, the time, and the list of trajectories whose clearance it moved."""

    db: sqlite3.Connection
    now: datetime
    at: str  # the time as it is stored
    moved: list[TrajectoryId] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Unit:
    operation: Operation
    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    moved: Sequence[TrajectoryId] = ()
    withdrawn: bool = False  # its caller was cancelled: left out unless it has begun
    done: bool = False
    settled: asyncio.Future[None] | None = None


class Writer:
    """Owns the writing connection. Made and used in one event loop."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        clock: Clock,
        *,
        notify: Callable[[Sequence[TrajectoryId]], None],
        boundary: Callable[[str], None] | None = None,
    ) -> None:
        self._db = connection
        self._path = path
        self._clock = clock
        self._notify = notify
        self._boundary = boundary
        self._loop = asyncio.get_running_loop()
        self._outbox: list[_Unit] = []
        self._queue: deque[_Unit] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    async def submit(self, operation: Operation, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction; return its result when that is durable.

        A caller that is cancelled leaves only when its unit is either written or known not to be.
        """
        if self._closing:
            raise AutoclaveError("the ledger is closed")
        if len(self._outbox) + len(self._queue) >= QUEUED_UNITS:
            raise LimitReached(f"{QUEUED_UNITS} units wait to be written to the ledger {self._path}", fix="lease more slowly")
        unit = _Unit(operation, work, self._loop.create_future())
        if not self._outbox:
            self._loop.call_soon(self._flush)  # one hand-over for all that this turn of the loop submits
        self._outbox.append(unit)
        try:
            result: T = await unit.future
        except asyncio.CancelledError:
            unit.withdrawn = True
            if not unit.done:
                unit.settled = self._loop.create_future()
                await run_shielded(_wait(unit.settled))
            raise
        return result

    async def close(self) -> None:
        """Write what is queued, end the thread, fold the journal into the file and close the connection."""
        self._closing = True
        self._flush()
        with self._wake:
            self._wake.notify()
        await in_thread(self._thread.join)
        await in_thread(self._fold)

    def _fold(self) -> None:
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:  # the journal stays and is read at the next open: nothing is lost
            logger.warning("ledger journal could not be folded", extra={"path": str(self._path), "error": str(error)})
        self._db.close()

    def _flush(self) -> None:
        units, self._outbox = self._outbox, []
        if units:
            with self._wake:
                self._queue.extend(units)
                self._wake.notify()

    # in the writer's thread

    def _run(self) -> None:
        while group := self._take():
            self._commit(group)
            try:
                self._loop.call_soon_threadsafe(self._settle, group)
            except RuntimeError:  # the loop was closed under us: nobody is left to tell
                return

    def _take(self) -> list[_Unit]:
        with self._wake:
            while not self._queue:
                if self._closing:
                    return []
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_UNITS))]

    def _commit(self, group: list[_Unit]) -> None:
        try:
            if not self._attempt(group, self._bare):
                self._attempt(group, self._guarded)
            self._mark(group, "before")
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            # The file failed, so nothing of the group was written, and what its units found in one another is void.
            self._undo()
            logger.error("ledger could not be written", extra={"path": str(self._path), "error": str(error), "units": len(group)})
            for unit in group:
                unit.error, unit.moved = database.worded(error, self._path), ()
                unit.error.__cause__ = error
            return
        self._mark(group, "after")

    def _attempt(self, group: list[_Unit], apply: Callable[[_Unit], bool]) -> bool:
        self._db.execute("BEGIN IMMEDIATE")
        for unit in group:
            if not unit.withdrawn and not apply(unit):
                self._db.execute("ROLLBACK")
                return False
        return True

    def _bare(self, unit: _Unit) -> bool:
        """Run without a savepoint, which would make SQLite copy every page that is touched. Units find what is wrong before
        they write, so almost always nothing is to be undone; False says that something is, and the group starts over."""
        changes = self._db.total_changes
        self._apply(unit)
        return unit.error is None or self._db.total_changes == changes

    def _guarded(self, unit: _Unit) -> bool:
        self._db.execute("SAVEPOINT unit")
        self._apply(unit)
        if unit.error is not None:
            self._db.execute("ROLLBACK TO unit")
        self._db.execute("RELEASE unit")
        return True

    def _apply(self, unit: _Unit) -> None:
        unit.result, unit.error, unit.moved = None, None, ()
        now = self._clock.now()
        transaction = Transaction(self._db, now, when(now))
        try:
            unit.result = unit.work(transaction)
        except Exception as error:  # whatever a unit raises is its caller's, and its neighbours go on
            if not isinstance(error, sqlite3.Error):
                unit.error = error
                return
            if database.is_storage_fault(error) or not self._db.in_transaction:
                raise
            unit.error = database.worded(error, self._path)
            unit.error.__cause__ = error
        else:
            unit.moved = transaction.moved

    def _undo(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error as error:
                logger.error("ledger could not roll back", extra={"path": str(self._path), "error": str(error)})

    def _mark(self, group: list[_Unit], side: str) -> None:
        if self._boundary is not None:
            for unit in group:
                if unit.error is None and not unit.withdrawn:
                    self._boundary(f"{unit.operation}:{side}")

    # in the event loop

    def _settle(self, group: list[_Unit]) -> None:
        moved: dict[TrajectoryId, None] = {}
        for unit in group:
            unit.done = True
            if unit.settled is not None and not unit.settled.done():
                unit.settled.set_result(None)
            if unit.error is None:
                moved.update(dict.fromkeys(unit.moved))
            if unit.future.done():
                continue
            if unit.error is not None:
                unit.future.set_exception(unit.error)
            else:
                unit.future.set_result(unit.result)
        if moved:
            self._notify(tuple(moved))


async def _wait(future: asyncio.Future[None]) -> None:
    await future
