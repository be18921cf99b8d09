"""Who may have left what a failed check found: the trajectories of its window, and those before them on the same state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sandbox.errors import RecordMissing
from sandbox.ledger.clearance import evidence
from sandbox.ledger.store import Store


class Suspects(Store):
    async def suspects(self, name: str) -> Mapping[str, Any]:
        """Return, for a quarantine, a check or a trajectory, what differed, the `method` of the reset that the check followed, and
        the leases that may have left it, in order: each with the first reset that followed it, and whether the window holds it
        (`suspect`). The others used the same state before."""
        return await self._read(lambda db: _suspects(db, name))


def _suspects(db: sqlite3.Connection, name: str) -> dict[str, Any]:
    row = _quarantine(db, name)
    query = (
        "SELECT leases.trajectory, leases.namespace, leases.sequence, leases.lineage, leases.task, leases.parent, leases.outcome,"
        " leases.environment, (SELECT resets.method FROM resets WHERE resets.namespace = leases.namespace"
        " AND resets.generation = leases.generation ORDER BY resets.number LIMIT 1) AS method"
        " FROM leases WHERE leases.namespace = ?1 AND leases.sequence <= ?3"
        " AND (leases.sequence > ?2 OR leases.lineage IN (SELECT inside.lineage FROM leases AS inside"
        " WHERE inside.namespace = ?1 AND inside.sequence > ?2 AND inside.sequence <= ?3))"
        " ORDER BY leases.sequence"
    )
    leases = [dict(lease) for lease in db.execute(query, (row["namespace"], row["after"], row["through"]))]
    return {
        "quarantine": row["id"],
        "check": row["check_id"],
        "namespace": row["namespace"],
        "runtime": row["runtime"],
        "environment": row["environment_name"],
        "environment_digest": leases[-1]["environment"] if leases else row["environment"],
        "shared": bool(row["shares"]),
        "depth": row["depth"],
        "method": row["method"] or (leases[-1]["method"] if leases else None),
        "leases": [lease | {"suspect": lease["sequence"] > row["after"]} for lease in leases],
    } | evidence(db, row["check_id"])


def _quarantine(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    """Find the quarantine that is meant: it, the check that failed, or one of its trajectories."""
    found: sqlite3.Row | None = db.execute(
        "SELECT quarantines.*, namespaces.environment, namespaces.environment_name, namespaces.shares, namespaces.runtime,"
        " (SELECT resets.method FROM checks JOIN resets ON resets.namespace = checks.namespace"
        " AND resets.new_generation = checks.generation WHERE checks.id = quarantines.check_id"
        " ORDER BY resets.number DESC LIMIT 1) AS method"
        " FROM quarantines JOIN namespaces ON namespaces.id = quarantines.namespace"
        " WHERE quarantines.id = ?1 OR quarantines.check_id = ?1"
        " OR quarantines.id = (SELECT quarantine FROM leases WHERE trajectory = ?1)"
        " OR quarantines.id IN (SELECT quarantine FROM quarantine_members WHERE trajectory = ?1 AND effect = 'spared')"
        " ORDER BY quarantines.id = (SELECT quarantine FROM leases WHERE trajectory = ?1) DESC, quarantines.number DESC LIMIT 1",
        (name,),
    ).fetchone()
    if found is None:
        raise RecordMissing(
            f"no quarantine, failed check or quarantined trajectory is called {name}", fix="`autoclave quarantine list` names them"
        )
    return found
