"""Who may have left what a failed check found: the trajectories of its window, and those before them on the same state."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import RecordMissing
from sandbox.ledger.clearance import evidence
from sandbox.ledger.store import Store


class Suspects(Store):
    async def suspects(self, name: str) -> Mapping[str, Any]:
        """Return, for a quarantine, a check or a trajectory, what differed, the `method` of the reset that the check followed, and
        the leases that may have left it, in order: each with the methods of the `resets` that followed it, until the next lease
        or that check, and whether the window holds it (`suspect`). The others used the same state before."""
        return await self._read(lambda db: _suspects(db, name))


def _suspects(db: sqlite3.Connection, name: str) -> dict[str, Any]:
    row = _quarantine(db, name)
    query = (
        "SELECT leases.trajectory, leases.namespace, leases.sequence, leases.lineage, leases.task, leases.parent, leases.outcome,"
        " leases.environment, leases.generation FROM leases WHERE leases.namespace = ?1 AND leases.sequence <= ?3"
        " AND (leases.sequence > ?2 OR leases.lineage IN (SELECT inside.lineage FROM leases AS inside"
        " WHERE inside.namespace = ?1 AND inside.sequence > ?2 AND inside.sequence <= ?3))"
        " ORDER BY leases.sequence"
    )
    leases = [dict(lease) for lease in db.execute(query, (row["namespace"], row["after"], row["through"]))]
    followed = _followed(db, row, leases)
    return {
        "quarantine": row["id"],
        "check": row["check_id"],
        "namespace": row["namespace"],
        "runtime": row["runtime"],
        "environment": row["environment_name"],
        "environment_digest": leases[-1]["environment"] if leases else row["environment"],
        "shared": bool(row["shares"]),
        "depth": row["depth"],
        "method": row["method"] or (followed[-1][-1] if leases and followed[-1] else None),
        "leases": [
            lease | {"resets": resets, "suspect": lease["sequence"] > row["after"]}
            for lease, resets in zip(leases, followed, strict=True)
        ],
    } | evidence(db, row["check_id"])


def _followed(db: sqlite3.Connection, quarantine: sqlite3.Row, leases: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the methods of the resets that ended between each lease and the next one, or the check. Where no check was made, only
    the first after the last lease is of interest, however it ended."""
    query = "SELECT generation, new_generation, method FROM resets WHERE namespace = ? ORDER BY number"
    resets = db.execute(query, (quarantine["namespace"],)).fetchall()
    followed: list[list[str]] = []
    for lease, until in zip(leases, [*(after["generation"] for after in leases[1:]), quarantine["checked"]], strict=True):
        begun = [reset for reset in resets if reset["generation"] >= lease["generation"]]
        ended = [r for r in begun if until is not None and r["new_generation"] is not None and r["new_generation"] <= until]
        followed.append([reset["method"] for reset in (begun[:1] if until is None else ended)])
    return followed


def _quarantine(db: sqlite3.Connection, name: str) -> sqlite3.Row:
    """Find the quarantine that is meant: it, the check that failed, or one of its trajectories."""
    found: sqlite3.Row | None = db.execute(
        "SELECT quarantines.*, namespaces.environment, namespaces.environment_name, namespaces.shares, namespaces.runtime,"
        " (SELECT resets.method FROM checks JOIN resets ON resets.namespace = checks.namespace"
        " AND resets.new_generation = checks.generation WHERE checks.id = quarantines.check_id"
        " ORDER BY resets.number DESC LIMIT 1) AS method,"
        " (SELECT checks.generation FROM checks WHERE checks.id = quarantines.check_id) AS checked"
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
