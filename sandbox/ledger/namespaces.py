"""Namespaces: their records, their moves along the table, and the history of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import LedgerConflict
from sandbox.ledger.consequences import end_lineage
from sandbox.ledger.moves import expect, load, moved
from sandbox.ledger.rows import as_json, namespace_of, when
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.lifecycle import Event, State
from sandbox.model import NamespaceId, NamespaceRecord

# These edges carry more than a move: a lease, a reset's end, a verdict. Only their own methods take them.
RESERVED = {
    Event.LEASE: "lease()",
    Event.RELEASE: "end_lease()",
    Event.RESTORED: "end_reset()",
    Event.PASSED: "record_check() or fork_check()",
}


class Namespaces(Store):
    async def create_namespace(self, record: NamespaceRecord) -> None:
        """Write a new namespace, in state `creating`, before anything of it is made."""
        await self._write(Operation.CREATE_NAMESPACE, lambda tx: _create(tx, record))

    async def namespace(self, namespace: NamespaceId) -> NamespaceRecord:
        return await self._read(lambda db: load(db, namespace))

    async def namespaces(self, *, retired: bool = False) -> Sequence[NamespaceRecord]:
        """Return every namespace in the order of creation, those that are retired only on request."""
        where = "" if retired else " AND state <> 'retired'"
        query = f"SELECT * FROM namespaces WHERE shares = 0{where} ORDER BY created, id"
        return await self._read(lambda db: [namespace_of(row) for row in db.execute(query)])

    async def transition(
        self, namespace: NamespaceId, event: Event, *, generation: int, note: str = "", identity: bool = False
    ) -> NamespaceRecord:
        """Take an edge that carries nothing else. A loss ends the open lease; retiring ends what still waits for a check."""
        return await self._write(Operation.TRANSITION, lambda tx: _transition(tx, namespace, event, generation, note, identity))

    async def history(self, namespace: NamespaceId | None = None, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Return transitions, newest first."""
        where, values = ("", ()) if namespace is None else ("WHERE namespace = ? ", (namespace,))
        query = f"SELECT * FROM transitions {where}ORDER BY number DESC LIMIT ?"
        return await self._read(lambda db: [dict(row) for row in db.execute(query, (*values, limit))])


def _create(tx: Transaction, record: NamespaceRecord) -> None:
    if record.state != State.CREATING or record.sequence:
        raise LedgerConflict(f"namespace {record.id} must begin as creating and without leases, not as {record.state}")
    if tx.db.execute("SELECT 1 FROM namespaces WHERE id = ?", (record.id,)).fetchone():
        raise LedgerConflict(f"there is a namespace {record.id} already")
    if record.instance is not None and not load(tx.db, NamespaceId(record.instance)).shares:
        raise LedgerConflict(f"namespace {record.id} cannot share {record.instance}: that is a namespace itself")
    tx.db.execute(
        "INSERT INTO namespaces (id, environment, environment_name, snapshot, state, generation, sequence, lineage, runtime,"
        " created, resets, since_restore, identity, quick_mark, deep_mark, shares, instance, details)"
        " VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, 0, 0, ?, 0, 0, ?, ?, ?)",
        (
            *(record.id, record.environment, record.environment_name, record.snapshot, str(record.state), record.generation),
            *(record.lineage, record.runtime, when(record.created), int(record.identity), int(record.shares), record.instance),
            as_json(record.details),
        ),
    )


def _transition(
    tx: Transaction, namespace: NamespaceId, event: Event, generation: int, note: str, identity: bool
) -> NamespaceRecord:
    if event in RESERVED:
        raise LedgerConflict(f"the edge {event!s} of namespace {namespace} is taken by {RESERVED[event]} only")
    record = expect(tx.db, namespace, generation)
    if event is Event.STARTED:
        return moved(tx, record, event, note=note, identity=identity)
    after = moved(tx, record, event, note=note)
    if event is Event.LOST:
        tx.db.execute("UPDATE leases SET ended = ?, outcome = 'lost' WHERE namespace = ? AND ended IS NULL", (tx.at, namespace))
    if after.state == State.RETIRED:
        end_lineage(tx, after, final=True)
    return after
