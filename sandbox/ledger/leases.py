"""Leases: given by compare-and-set, renewed, ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from sandbox.errors import LedgerConflict, RecordMissing
from sandbox.ledger.consequences import join
from sandbox.ledger.moves import load, move, moved, row_of
from sandbox.ledger.rows import lease_of, namespace_of, start_of, text, when
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.lifecycle import Event, State
from sandbox.model import (
    Lease,
    LeaseId,
    NamespaceId,
    NamespaceRecord,
    QuarantineId,
    QuarantineReason,
    StartCheck,
    TrajectoryId,
)
from sandbox.quarantine import fork_start

ENDINGS = (Event.RELEASE, Event.LOST)
INSERT = (
    "INSERT INTO leases (id, trajectory, namespace, generation, sequence, lineage, first_of_lineage, environment, task, holder,"
    " parent, start_check, start_depth, start_identity, granted, expires, state)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending')"
)


class Leases(Store):
    async def lease(
        self,
        namespace: NamespaceId,
        *,
        generation: int,
        lease: LeaseId,
        trajectory: TrajectoryId,
        holder: str,
        task: str | None,
        ttl_s: float,
        parent: TrajectoryId | None = None,
    ) -> Lease:
        """READY -> LEASED with the next sequence number. A fork of a quarantined parent begins quarantined."""

        def work(tx: Transaction) -> Lease:
            row = row_of(tx.db, namespace)
            record = namespace_of(row)
            if record.generation != generation:
                raise LedgerConflict(f"namespace {namespace} is at generation {record.generation}, not {generation}")
            if record.shares:
                raise LedgerConflict(f"{namespace} is an instance that namespaces share; those are leased")
            shared = None if record.instance is None else _shared(tx.db, record)
            sequence = record.sequence + 1
            move(tx, record, Event.LEASE, sequence=sequence, since_restore=record.since_restore + 1)
            start, origin = _start(tx.db, record, row["fork_parent"], parent)
            given = Lease(
                id=lease,
                namespace=namespace,
                generation=generation,
                sequence=sequence,
                lineage=record.lineage,
                first_of_lineage=record.since_restore == 0,
                trajectory=trajectory,
                environment=record.environment,
                task=task,
                holder=holder,
                start_check=start,
                granted=tx.now,
                expires=tx.now + timedelta(seconds=ttl_s),
                parent=parent,
                instance=record.instance,
            )
            _insert(tx, given)
            if shared is not None:
                _count(tx, given, shared)
            if origin is not None and origin["state"] in ("quarantined", "discarded"):
                join(tx, QuarantineId(origin["quarantine"]), QuarantineReason(origin["reason"]), trajectory)
            return given

        return await self._write(Operation.LEASE, work)

    async def renew(self, lease: LeaseId, ttl_s: float) -> datetime:
        """Move the end of an open lease to `ttl_s` seconds from now."""

        def work(tx: Transaction) -> datetime:
            _open(tx.db, lease)
            expires = tx.now + timedelta(seconds=ttl_s)
            tx.db.execute("UPDATE leases SET expires = ? WHERE id = ?", (when(expires), lease))
            return expires

        return await self._write(Operation.RENEW, work)

    async def end_lease(self, lease: LeaseId, *, outcome: str, event: Event = Event.RELEASE) -> NamespaceRecord:
        """LEASED -> RESETTING, or QUARANTINED with `LOST`."""

        def work(tx: Transaction) -> NamespaceRecord:
            if event not in ENDINGS:
                raise LedgerConflict(f"a lease ends by release or lost, not by {event!s}")
            row = _open(tx.db, lease)
            record = load(tx.db, NamespaceId(row["namespace"]))
            tx.db.execute("UPDATE leases SET ended = ?, outcome = ? WHERE id = ?", (tx.at, text(outcome), lease))
            return moved(tx, record, event, note=outcome)

        return await self._write(Operation.END_LEASE, work)

    async def leases(self, *, open_only: bool = True) -> Sequence[Lease]:
        """Return leases in the order in which they were granted."""
        where = "WHERE ended IS NULL " if open_only else ""
        query = f"SELECT * FROM leases {where}ORDER BY granted, rowid"
        return await self._read(lambda db: [lease_of(row) for row in db.execute(query)])


def _shared(db: sqlite3.Connection, record: NamespaceRecord) -> NamespaceRecord:
    """Return the shared instance; refuse one that is out of service."""
    instance = load(db, NamespaceId(str(record.instance)))
    if instance.state != State.READY:
        raise LedgerConflict(f"namespace {record.id} cannot be leased: its instance {instance.id} is {instance.state}")
    return instance


def _count(tx: Transaction, given: Lease, instance: NamespaceRecord) -> None:
    """Give the lease its place in the sequence of the instance."""
    position = instance.sequence + 1
    tx.db.execute("UPDATE namespaces SET sequence = ? WHERE id = ?", (position, instance.id))
    tx.db.execute(
        "UPDATE leases SET instance = ?, instance_sequence = ?, instance_generation = ? WHERE id = ?",
        (instance.id, position, instance.generation, given.id),
    )


def _start(
    db: sqlite3.Connection, record: NamespaceRecord, fork_of: str | None, parent: TrajectoryId | None
) -> tuple[StartCheck, sqlite3.Row | None]:
    """Return what vouches for the state that the next holder is given, and the parent's row where it is a fork."""
    if record.last_check is None or record.last_depth is None:
        raise LedgerConflict(f"namespace {record.id} has no check that could vouch for its state")
    if fork_of != parent:
        what = f"the state of a fork of {fork_of}" if fork_of else "no fork's state"
        raise LedgerConflict(
            f"namespace {record.id} holds {what}; it cannot be leased as {f'a fork of {parent}' if parent else 'golden'}"
        )
    # Only the first holder is given the very state that the proof was made of.
    own = StartCheck(check=record.last_check, depth=record.last_depth, identity=record.identity and record.since_restore == 0)
    if parent is None:
        return own, None
    origin = db.execute("SELECT * FROM leases WHERE trajectory = ?", (parent,)).fetchone()
    return fork_start(own, start_of(origin)), origin


def _insert(tx: Transaction, given: Lease) -> None:
    try:
        tx.db.execute(
            INSERT,
            (
                *(given.id, given.trajectory, given.namespace, given.generation, given.sequence, given.lineage),
                *(int(given.first_of_lineage), given.environment, given.task, given.holder, given.parent),
                *(given.start_check.check, given.start_check.depth.value, int(given.start_check.identity)),
                *(when(given.granted), when(given.expires)),
            ),
        )
    except sqlite3.IntegrityError as error:
        raise LedgerConflict(f"lease {given.id} of trajectory {given.trajectory} is refused: {error}") from error


def _open(db: sqlite3.Connection, lease: LeaseId) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM leases WHERE id = ?", (lease,)).fetchone()
    if row is None:
        raise RecordMissing(f"the ledger has no lease {lease}")
    if row["ended"] is not None:
        raise LedgerConflict(f"lease {lease} has ended ({row['outcome']}) at {row['ended']}")
    return row
