"""Numbers for people, and the retention of evidence."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sandbox.ledger.rows import when
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction

RECENT = 1_000  # how many of the newest measurements the percentiles are taken of
KEPT_AUDITS = 10

# Evidence goes when nobody can need it for a decision; leases, clearances, quarantines and batches never go.
STALE_MISMATCHES = (
    "SELECT checks.id FROM checks WHERE checks.status <> 'clean' AND checks.at < ? AND checks.number <= ?"
    " AND NOT EXISTS (SELECT 1 FROM quarantines JOIN quarantine_members AS members ON members.quarantine = quarantines.id"
    " JOIN leases ON leases.trajectory = members.trajectory"
    " WHERE quarantines.check_id = checks.id AND leases.state = 'quarantined')"
)
UNUSED_CHECKS = (
    "DELETE FROM checks WHERE status = 'clean' AND at < ? AND number <= ?"
    " AND id NOT IN (SELECT last_check FROM namespaces WHERE last_check IS NOT NULL)"
    " AND id NOT IN (SELECT start_check FROM leases)"
    " AND id NOT IN (SELECT end_check FROM leases WHERE end_check IS NOT NULL)"
    " AND id NOT IN (SELECT cleared_by FROM leases WHERE cleared_by IS NOT NULL)"
)


class Upkeep(Store):
    async def counters(self) -> Mapping[str, Any]:
        """Return counts and percentiles. `acquire_ms` is null here: only the pool sees its callers wait."""
        return await self._read(_counters)

    async def prune(self, *, evidence_older_than_s: float, keep_checks: int) -> int:
        """Delete differences, checks that vouch for nothing, transitions and audits that are older; return how many rows.

        The newest `keep_checks` checks keep everything, and so does a quarantine until a person decided on all it holds back.
        """
        return await self._write(Operation.PRUNE, lambda tx: _prune(tx, evidence_older_than_s, keep_checks))


def _counters(db: sqlite3.Connection) -> dict[str, Any]:
    return {
        "states": _counts(db, "SELECT state, count(*) FROM namespaces GROUP BY state"),
        "leases": {
            "open": _number(db, "SELECT count(*) FROM leases WHERE ended IS NULL"),
            "given": _number(db, "SELECT count(*) FROM leases"),
        },
        "checks": _counts(db, "SELECT status, count(*) FROM checks GROUP BY status"),
        "clearances": _counts(db, "SELECT state || coalesce(' (' || depth || ')', ''), count(*) FROM leases GROUP BY 1"),
        "quarantines": _number(db, "SELECT count(*) FROM quarantines"),
        "batches": _number(db, "SELECT count(*) FROM batches"),
        "reset_ms": _percentiles(db, "SELECT seconds FROM resets WHERE seconds IS NOT NULL ORDER BY number DESC LIMIT ?"),
        "check_ms": _percentiles(db, "SELECT seconds FROM checks ORDER BY number DESC LIMIT ?"),
        "acquire_ms": {"p50": None, "p99": None},
    }


def _counts(db: sqlite3.Connection, query: str) -> dict[str, int]:
    return {row[0]: row[1] for row in db.execute(query)}


def _number(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _percentiles(db: sqlite3.Connection, query: str) -> dict[str, float | None]:
    values: Sequence[float] = sorted(row[0] for row in db.execute(query, (RECENT,)))
    if not values:
        return {"p50": None, "p99": None}
    return {
        name: round(values[max(0, math.ceil(len(values) * share) - 1)] * 1_000, 3) for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def _prune(tx: Transaction, older_than_s: float, keep_checks: int) -> int:
    cutoff = when(tx.now - timedelta(seconds=older_than_s))
    newest = _number(tx.db, "SELECT coalesce(max(number), 0) FROM checks") - keep_checks
    gone = 0
    for table in ("mismatches", "problems"):
        gone += tx.db.execute(f"DELETE FROM {table} WHERE check_id IN ({STALE_MISMATCHES})", (cutoff, newest)).rowcount
    gone += tx.db.execute(UNUSED_CHECKS, (cutoff, newest)).rowcount
    gone += tx.db.execute("DELETE FROM resets WHERE ended < ? AND lineage IS NULL", (cutoff,)).rowcount
    gone += tx.db.execute("DELETE FROM transitions WHERE at < ?", (cutoff,)).rowcount
    gone += tx.db.execute(
        "DELETE FROM audits WHERE at < ? AND number NOT IN (SELECT number FROM audits ORDER BY number DESC LIMIT ?)",
        (cutoff, KEPT_AUDITS),
    ).rowcount
    return gone
