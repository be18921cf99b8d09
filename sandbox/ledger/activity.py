"""What happened since a moment, for reports: checks and their evidence, leases and their clearance, quarantines and windows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox.ledger.clearance import evidence
from sandbox.ledger.rows import when
from sandbox.ledger.store import Store


class Activity(Store):
    async def activity(self, since: datetime, *, limit: int = 10_000) -> Mapping[str, Any]:
        """Return `checks`, `resets`, `creations`, `leases` and `quarantines` since then, oldest first; the newest `limit` each."""
        return await self._read(lambda db: _activity(db, when(since), limit))


def _activity(db: sqlite3.Connection, since: str, limit: int) -> dict[str, Any]:
    checks = db.execute(
        "SELECT * FROM (SELECT checks.*, namespaces.environment_name FROM checks"
        " JOIN namespaces ON namespaces.id = checks.namespace WHERE checks.at >= ? ORDER BY number DESC LIMIT ?) ORDER BY number",
        (since, limit),
    ).fetchall()
    resets = db.execute(
        "SELECT * FROM (SELECT resets.*, namespaces.environment_name FROM resets"
        " JOIN namespaces ON namespaces.id = resets.namespace WHERE resets.ended >= ? ORDER BY number DESC LIMIT ?)"
        " ORDER BY number",
        (since, limit),
    ).fetchall()
    creations = db.execute(
        "SELECT * FROM (SELECT namespaces.id, namespaces.environment_name, transitions.number, transitions.at AS ended,"
        " (julianday(transitions.at) - julianday(namespaces.created)) * 86400 AS seconds FROM namespaces"
        " JOIN transitions ON transitions.namespace = namespaces.id AND transitions.source = 'creating'"
        " AND transitions.target = 'verifying' WHERE transitions.at >= ? ORDER BY number DESC LIMIT ?) ORDER BY number",
        (since, limit),
    ).fetchall()
    leases = db.execute(
        "SELECT * FROM (SELECT leases.*, namespaces.environment_name FROM leases"
        " JOIN namespaces ON namespaces.id = leases.namespace WHERE leases.granted >= ?1 OR leases.ended >= ?1"
        " ORDER BY leases.granted DESC LIMIT ?2) ORDER BY granted",
        (since, limit),
    ).fetchall()
    quarantines = db.execute(
        "SELECT * FROM (SELECT quarantines.*, namespaces.environment_name FROM quarantines"
        " JOIN namespaces ON namespaces.id = quarantines.namespace WHERE quarantines.at >= ? ORDER BY number DESC LIMIT ?)"
        " ORDER BY number",
        (since, limit),
    ).fetchall()
    by_check = {row["check_id"]: row["id"] for row in quarantines if row["check_id"]}
    return {
        "checks": [_check(db, row) | {"quarantine": by_check.get(row["id"])} for row in checks],
        "resets": [_reset(row) for row in resets],
        "creations": [
            {"environment": r["environment_name"], "namespace": r["id"], "ended": r["ended"], "seconds": round(r["seconds"], 4)}
            for r in creations
        ],
        "leases": [_lease(row) for row in leases],
        "quarantines": [_quarantine(db, row) for row in quarantines],
    }


def _check(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    names = ("id", "namespace", "depth", "purpose", "status", "at", "sequence", "seconds", "fields")
    found = {"environment": row["environment_name"]} | {name: row[name] for name in names}
    return found | (evidence(db, row["id"]) if row["status"] != "clean" else {"mismatches": [], "problems": []})


def _reset(row: sqlite3.Row) -> dict[str, Any]:
    names = ("namespace", "method", "ended", "seconds")
    return {"environment": row["environment_name"]} | {name: row[name] for name in names}


def _lease(row: sqlite3.Row) -> dict[str, Any]:
    names = ("trajectory", "namespace", "sequence", "granted", "ended", "state", "task")
    return {"environment": row["environment_name"]} | {name: row[name] for name in names}


def _quarantine(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    names = ("id", "namespace", "reason", "depth", "after", "through", "policy", "at", "note", "check_id")
    members = db.execute(
        "SELECT trajectory FROM quarantine_members WHERE quarantine = ? AND effect IN ('quarantined', 'fork', 'already')"
        " ORDER BY trajectory",
        (row["id"],),
    )
    found = {"environment": row["environment_name"]} | {name: row[name] for name in names}
    return found | {"trajectories": [member[0] for member in members]}
