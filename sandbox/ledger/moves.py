"""Moving one namespace along one edge of the table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sandbox.errors import LedgerConflict, RecordMissing
from sandbox.ledger.rows import as_json, namespace_of, text, when
from sandbox.ledger.writer import Transaction
from sandbox.lifecycle import Event, State, after
from sandbox.model import NamespaceId, NamespaceRecord

# How a changed value is written where it is not written as it is. Plain text only: binding a str of an enum costs SQLite's
# adapters ten times as much.
STORED: Mapping[str, Callable[[Any], int | str]] = {"identity": int, "checked": when, "details": as_json, "last_depth": str}


def row_of(db: sqlite3.Connection, namespace: NamespaceId) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM namespaces WHERE id = ?", (namespace,)).fetchone()
    if row is None:
        raise RecordMissing(f"the ledger has no namespace {namespace}")
    return row


def load(db: sqlite3.Connection, namespace: NamespaceId) -> NamespaceRecord:
    return namespace_of(row_of(db, namespace))


def expect(db: sqlite3.Connection, namespace: NamespaceId, generation: int, state: State | None = None) -> NamespaceRecord:
    """Load a namespace that must be of this generation (and in this state)."""
    record = load(db, namespace)
    if record.generation != generation:
        raise LedgerConflict(f"namespace {namespace} is at generation {record.generation}, not {generation}")
    if state is not None and record.state != state:
        raise LedgerConflict(f"namespace {namespace} is {record.state}, not {state}")
    return record


def move(tx: Transaction, record: NamespaceRecord, event: Event, *, note: str = "", **changes: Any) -> State:
    """Take one edge, change the given fields with it, and write the transition's row; return the state that it leads to."""
    try:
        target = after(State(record.state), event)
    except LedgerConflict as error:
        raise LedgerConflict(f"namespace {record.id}: {error.message}") from None
    columns = "".join(f", {name} = ?" for name in changes)
    values = [STORED[name](value) if name in STORED else value for name, value in changes.items()]
    tx.db.execute(f"UPDATE namespaces SET state = ?{columns} WHERE id = ?", (target.value, *values, record.id))
    tx.db.execute(
        "INSERT INTO transitions (namespace, generation, source, event, target, at, note) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (record.id, record.generation, str(record.state), event.value, target.value, tx.at, text(note)),
    )
    return target


def moved(tx: Transaction, record: NamespaceRecord, event: Event, *, note: str = "", **changes: Any) -> NamespaceRecord:
    """Take one edge and return the record as it is then."""
    return replace(record, state=move(tx, record, event, note=note, **changes).value, **changes)
