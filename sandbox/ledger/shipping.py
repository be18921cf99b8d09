"""Batches and what grew from them: shipping by compare-and-set, updates, checkpoints, and the recall that follows their tracks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import AutoclaveError, LedgerConflict, NotCleared, RecordMissing
from sandbox.ledger.rows import clearance_of, listed, text
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.model import (
    BatchId,
    CheckpointId,
    Clearance,
    Depth,
    QuarantineId,
    Recall,
    TrajectoryId,
    UpdateId,
)
from sandbox.quarantine import refusal

GATED = "gated"
OPTIMISTIC = "optimistic"
LOST = "('quarantined', 'discarded')"  # a person's release takes a trajectory out of the recall


class Shipping(Store):
    async def ship(
        self,
        batch: BatchId,
        trajectories: Sequence[TrajectoryId],
        *,
        policy_version: str,
        required: Mapping[str, Depth],
        mode: str = GATED,
    ) -> Mapping[str, Any]:
        """Record a batch, provided that every trajectory of it may be trained on now and is in no other batch."""
        return await self._write(Operation.SHIP, lambda tx: _ship(tx, batch, tuple(trajectories), policy_version, required, mode))

    async def record_update(self, update: UpdateId, batches: Sequence[BatchId], checkpoint: CheckpointId | None) -> None:
        """Record which batches an update took, and the checkpoint that holds it. Idempotent for the same contents."""

        def work(tx: Transaction) -> None:
            _known(tx.db, "batches", "batch", batches)
            _record(tx, "updates", update, ("update_batches", "update_id", "batch"), batches)
            if checkpoint is not None:
                tx.db.execute("INSERT OR IGNORE INTO checkpoints (id, at) VALUES (?, ?)", (checkpoint, tx.at))
                tx.db.execute(
                    "INSERT OR IGNORE INTO checkpoint_updates (update_id, checkpoint) VALUES (?, ?)", (update, checkpoint)
                )

        await self._write(Operation.RECORD_UPDATE, work)

    async def record_checkpoint(self, checkpoint: CheckpointId, updates: Sequence[UpdateId]) -> None:
        """Record which updates a checkpoint holds; a second call adds to the first."""

        def work(tx: Transaction) -> None:
            _known(tx.db, "updates", "update", updates)
            tx.db.execute("INSERT OR IGNORE INTO checkpoints (id, at) VALUES (?, ?)", (checkpoint, tx.at))
            tx.db.executemany(
                "INSERT OR IGNORE INTO checkpoint_updates (update_id, checkpoint) VALUES (?, ?)", [(u, checkpoint) for u in updates]
            )

        await self._write(Operation.RECORD_CHECKPOINT, work)

    async def join_group(self, group: str, trajectories: Sequence[TrajectoryId]) -> None:
        """Record siblings; they may join before they have a lease."""

        def work(tx: Transaction) -> None:
            tx.db.executemany(
                "INSERT OR IGNORE INTO group_members (trajectory, name) VALUES (?, ?)", [(t, text(group)) for t in trajectories]
            )

        await self._write(Operation.JOIN_GROUP, work)

    async def recall(self, quarantine: QuarantineId | None = None) -> Recall:
        """Return what a quarantine had reached, or all of them together."""
        return await self._read(lambda db: reached(db, quarantine))


def reached(db: sqlite3.Connection, quarantine: QuarantineId | None) -> Recall:
    """Follow trajectories without clearance to batches, updates and checkpoints, and to the siblings they shaped."""
    if quarantine is None:
        rows = db.execute(f"SELECT trajectory FROM leases WHERE state IN {LOST} ORDER BY rowid")
    else:
        if db.execute("SELECT 1 FROM quarantines WHERE id = ?", (quarantine,)).fetchone() is None:
            raise RecordMissing(f"the ledger has no quarantine {quarantine}", fix="`autoclave quarantine list` shows them all")
        rows = db.execute(
            "SELECT leases.trajectory FROM quarantine_members AS members JOIN leases ON leases.trajectory = members.trajectory"
            f" WHERE members.quarantine = ? AND members.effect <> 'spared' AND leases.state IN {LOST} ORDER BY leases.rowid",
            (quarantine,),
        )
    trajectories = [TrajectoryId(row["trajectory"]) for row in rows]
    batches = _follow(db, "batch_members", "trajectory", "batch", trajectories)
    updates = _follow(db, "update_batches", "batch", "update_id", batches)
    checkpoints = _follow(db, "checkpoint_updates", "update_id", "checkpoint", updates)
    groups = _follow(db, "group_members", "trajectory", "name", trajectories)
    siblings = _follow(db, "group_members", "name", "trajectory", groups)
    lost = set(trajectories)
    return Recall(
        quarantine=quarantine,
        trajectories=tuple(trajectories),
        batches=tuple(map(BatchId, batches)),
        updates=tuple(map(UpdateId, updates)),
        checkpoints=tuple(map(CheckpointId, checkpoints)),
        siblings=tuple(TrajectoryId(t) for t in siblings if t not in lost),
    )


def recall_as_dict(recall: Recall) -> dict[str, Any]:
    return {
        "trajectories": list(recall.trajectories),
        "batches": list(recall.batches),
        "updates": list(recall.updates),
        "checkpoints": list(recall.checkpoints),
        "siblings": list(recall.siblings),
    }


def _follow(db: sqlite3.Connection, table: str, source: str, target: str, values: Sequence[str]) -> list[str]:
    query = f"SELECT DISTINCT {target} AS found FROM {table} WHERE {source} IN (SELECT value FROM json_each(?)) ORDER BY {target}"
    return [row["found"] for row in db.execute(query, (listed(values),))] if values else []


def _ship(
    tx: Transaction,
    batch: BatchId,
    trajectories: tuple[TrajectoryId, ...],
    policy_version: str,
    required: Mapping[str, Depth],
    mode: str,
) -> Mapping[str, Any]:
    if mode not in (GATED, OPTIMISTIC):
        raise AutoclaveError(f"shipping mode {mode!r} is unknown", fix=f"use {GATED} or {OPTIMISTIC}")
    if not trajectories:
        raise AutoclaveError(f"batch {batch} holds no trajectory", fix="ship at least one")
    if len(set(trajectories)) < len(trajectories):
        raise AutoclaveError(f"batch {batch} names a trajectory twice", fix="name each one once")
    held = tx.db.execute("SELECT * FROM batches WHERE id = ?", (batch,)).fetchone()
    once = _once(tx.db, held, trajectories, policy_version, mode) if held is not None else {}
    rows = tx.db.execute(
        "SELECT leases.*, batch_members.batch AS other FROM leases"
        " LEFT JOIN batch_members ON batch_members.trajectory = leases.trajectory"
        " WHERE leases.trajectory IN (SELECT value FROM json_each(?))",
        (listed(trajectories),),
    )
    found = {row["trajectory"]: row for row in rows}
    depths = {t: once.get(t) or required.get(row["environment"]) for t, row in found.items()}
    refused: dict[str, str] = {t: why for t in trajectories if (why := _refusal(found.get(t), batch, depths.get(t), mode))}
    if refused:
        told = "; ".join(f"{t}: {why}" for t, why in refused.items())
        again = "" if held is None else f" again (it was at {held['at']})"
        raise NotCleared(
            f"batch {batch} is not shipped{again}, {len(refused)} of {len(trajectories)} may not be trained on: {told}",
            clearances=refused,
            fix="wait with cleared(), leave them out, or have a person look (`autoclave why`, `autoclave quarantine`)",
        )
    if held is not None:
        return batch_record(tx.db, batch)
    tx.db.execute(
        "INSERT INTO batches (id, policy_version, mode, at) VALUES (?, ?, ?, ?)", (batch, text(policy_version), mode, tx.at)
    )
    tx.db.executemany(
        "INSERT INTO batch_members (trajectory, batch, position, state, depth, required) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (t, batch, i, found[t]["state"], found[t]["depth"], required[found[t]["environment"]])
            for i, t in enumerate(trajectories)
        ],
    )
    return batch_record(tx.db, batch)


def _refusal(row: sqlite3.Row | None, batch: BatchId, depth: Depth | None, mode: str) -> str | None:
    if row is None:
        return "unknown to the ledger"
    if row["other"] not in (None, batch):
        return f"in batch {row['other']} already"
    clearance: Clearance = clearance_of(row)
    if depth is None:
        return f"no required depth was given for its environment {clearance.environment}"
    return refusal(clearance, depth, optimistic=mode == OPTIMISTIC)


def _once(
    db: sqlite3.Connection, held: sqlite3.Row, trajectories: tuple[TrajectoryId, ...], policy_version: str, mode: str
) -> dict[str, Depth]:
    """Return at which depth each member was shipped the first time; refuse the batch's name for another batch.

    The same one once more (a trainer that died after shipping) is answered by the record of the first time, provided that its
    members may still be trained on: what lost its clearance since is not handed out again.
    """
    rows = db.execute("SELECT trajectory, required FROM batch_members WHERE batch = ?", (held["id"],))
    members = {row["trajectory"]: Depth(row["required"]) for row in rows}
    if set(members) != set(trajectories) or held["policy_version"] != text(policy_version):
        raise LedgerConflict(f"batch {held['id']} was shipped at {held['at']} with other contents", fix="use a new batch id")
    if held["mode"] != mode:
        raise LedgerConflict(
            f"batch {held['id']} was shipped at {held['at']} in mode {held['mode']}, not {mode}",
            fix=f"ask in mode {held['mode']}, or use a new batch id",
        )
    return members


def batch_record(db: sqlite3.Connection, batch: str) -> dict[str, Any]:
    row = db.execute("SELECT * FROM batches WHERE id = ?", (batch,)).fetchone()
    members = db.execute("SELECT * FROM batch_members WHERE batch = ? ORDER BY position", (batch,)).fetchall()
    return {
        "batch": batch,
        "policy_version": row["policy_version"],
        "mode": row["mode"],
        "at": row["at"],
        "trajectories": [member["trajectory"] for member in members],
        "clearances": {
            member["trajectory"]: {"state": member["state"], "depth": member["depth"], "required": member["required"]}
            for member in members
        },
    }


def _known(db: sqlite3.Connection, table: str, what: str, ids: Sequence[str]) -> None:
    rows = db.execute(f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (listed(ids),))
    known = {row["id"] for row in rows}
    if missing := [i for i in ids if i not in known]:
        raise RecordMissing(f"the ledger has no {what} {', '.join(missing)}")


def _record(tx: Transaction, table: str, name: str, link: tuple[str, str, str], ids: Sequence[str]) -> None:
    """Write a row with its links, or find the very same there."""
    join, own, other = link
    fresh = tx.db.execute(f"INSERT OR IGNORE INTO {table} (id, at) VALUES (?, ?)", (name, tx.at)).rowcount == 1
    if fresh:
        tx.db.executemany(f"INSERT INTO {join} ({own}, {other}) VALUES (?, ?)", [(name, i) for i in dict.fromkeys(ids)])
        return
    held = {row[0] for row in tx.db.execute(f"SELECT {other} FROM {join} WHERE {own} = ?", (name,))}
    if held != set(ids):
        raise LedgerConflict(f"{name} is recorded with other contents: {', '.join(sorted(held))}", fix="use a new id")
