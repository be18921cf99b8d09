"""Everything that the ledger knows about one trajectory, as plain JSON values."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sandbox.errors import RecordMissing
from sandbox.ledger.clearance import evidence
from sandbox.ledger.rows import clearance_of
from sandbox.ledger.store import Store
from sandbox.model import TrajectoryId
from sandbox.quarantine import describe


class Explain(Store):
    async def why(self, trajectory: TrajectoryId) -> Mapping[str, Any]:
        """Return its lease, the checks before and after it, its window, its relatives, and what it reached."""
        return await self._read(lambda db: _why(db, trajectory))


def _why(db: sqlite3.Connection, trajectory: TrajectoryId) -> dict[str, Any]:
    row = db.execute(
        "SELECT leases.*, namespaces.environment_name FROM leases JOIN namespaces ON namespaces.id = leases.namespace"
        " WHERE leases.trajectory = ?",
        (trajectory,),
    ).fetchone()
    if row is None:
        raise RecordMissing(f"the ledger has no trajectory {trajectory}", fix="`autoclave pool status` names the present ones")
    start = _check(db, row["start_check"])
    if start is not None:
        start |= {"vouched_for": row["start_depth"], "identity": bool(row["start_identity"])}
    return {
        "trajectory": trajectory,
        "environment": row["environment_name"],
        "environment_digest": row["environment"],
        "task": row["task"],
        "namespace": row["namespace"],
        "lease": _lease(row),
        "lineage": _lineage(db, row),
        "start_check": start,
        "end_check": _check(db, row["end_check"]),
        "clearance": _clearance(db, row),
        "window": _window(db, row),
        "parent": row["parent"],
        "forks": _column(db, "SELECT trajectory FROM leases WHERE parent = ? ORDER BY granted, rowid", trajectory),
        "siblings": _column(
            db,
            "SELECT DISTINCT others.trajectory FROM group_members AS own JOIN group_members AS others ON others.name = own.name"
            " WHERE own.trajectory = ?1 AND others.trajectory <> ?1 ORDER BY 1",
            trajectory,
        ),
        "batches": [_batch(found) for found in _batches(db, trajectory)],
        "updates": _column(
            db,
            "SELECT update_id FROM update_batches JOIN batch_members USING (batch) WHERE trajectory = ? ORDER BY 1",
            trajectory,
        ),
        "checkpoints": _column(
            db,
            "SELECT DISTINCT checkpoint FROM checkpoint_updates JOIN update_batches USING (update_id)"
            " JOIN batch_members USING (batch) WHERE trajectory = ? ORDER BY 1",
            trajectory,
        ),
    }


def _lease(row: sqlite3.Row) -> dict[str, Any]:
    plain = {
        name: row[name]
        for name in ("id", "sequence", "generation", "lineage", "holder", "granted", "expires", "ended", "outcome", "instance")
    }
    return plain | {"first_of_lineage": bool(row["first_of_lineage"])}


def _lineage(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    """Return which leases shared its state, and the reset that began it (none: the namespace's making did)."""
    extent = db.execute(
        "SELECT min(sequence), max(sequence) FROM leases WHERE namespace = ? AND lineage = ?", (row["namespace"], row["lineage"])
    ).fetchone()
    opened = db.execute(
        "SELECT method, target, ended, identity, seconds FROM resets WHERE namespace = ? AND lineage = ?",
        (row["namespace"], row["lineage"]),
    ).fetchone()
    return {
        "id": row["lineage"],
        "leases": {"from": extent[0], "to": extent[1]},
        "opened_by": None if opened is None else dict(opened) | {"identity": bool(opened["identity"])},
    }


def _check(db: sqlite3.Connection, check: str | None) -> dict[str, Any] | None:
    if check is None:
        return None
    row = db.execute("SELECT * FROM checks WHERE id = ?", (check,)).fetchone()
    plain = {name: row[name] for name in ("id", "depth", "sequence", "lineage", "purpose", "fields", "seconds")}
    return plain | {"verdict": row["status"], "when": row["at"]}


def _clearance(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    now = clearance_of(row)
    return {
        "state": str(now.state),
        "text": describe(now),
        "depth": row["depth"],
        "reason": row["reason"],
        "cleared_by": _check(db, row["cleared_by"]),
        "note": now.note,
        "by": now.by,
        "waits": bool(row["waits"]),
    }


def _window(db: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any] | None:
    """Return the quarantine that holds it (or held it, before a person decided)."""
    if row["quarantine"] is None:
        return None
    found = db.execute("SELECT * FROM quarantines WHERE id = ?", (row["quarantine"],)).fetchone()
    effect = db.execute(
        "SELECT effect FROM quarantine_members WHERE quarantine = ? AND trajectory = ?", (row["quarantine"], row["trajectory"])
    ).fetchone()
    plain = {name: found[name] for name in ("namespace", "reason", "depth", "policy", "at", "note")}
    return (
        {
            "quarantine": found["id"],
            "check": found["check_id"],
            "from": found["after"] + 1,
            "to": found["through"],
            "effect": effect[0],
        }
        | plain
        | evidence(db, found["check_id"])
    )


def _batches(db: sqlite3.Connection, trajectory: str) -> list[sqlite3.Row]:
    return db.execute(
        "SELECT batches.*, members.state, members.depth, members.required FROM batch_members AS members"
        " JOIN batches ON batches.id = members.batch WHERE members.trajectory = ?",
        (trajectory,),
    ).fetchall()


def _batch(row: sqlite3.Row) -> dict[str, Any]:
    plain = {name: row[name] for name in ("policy_version", "mode", "at", "required")}
    return plain | {"batch": row["id"], "shipped_as": f"{row['state']} ({row['depth']})" if row["depth"] else row["state"]}


def _column(db: sqlite3.Connection, query: str, value: str) -> list[str]:
    return [row[0] for row in db.execute(query, (value,))]
