"""What was built and found: snapshots, baselines, probe scores, audits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sandbox.errors import LedgerConflict, SnapshotMissing
from sandbox.ledger.rows import as_json, moment, when
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.model import (
    Baseline,
    Depth,
    Mismatch,
    Reading,
    ResetMethod,
    Role,
    SealedDir,
    Snapshot,
    SnapshotId,
    StoredScore,
    VolatileField,
)


class Knowledge(Store):
    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Record a sealed snapshot. The same one again is fine; another one of that id is not."""

        def work(tx: Transaction) -> None:
            held = tx.db.execute("SELECT body FROM snapshots WHERE id = ?", (snapshot.id,)).fetchone()
            if held is not None and _snapshot(held["body"]) != snapshot:
                raise LedgerConflict(f"there is another snapshot {snapshot.id} already: a snapshot never changes")
            tx.db.execute(
                "INSERT OR IGNORE INTO snapshots (id, environment, saved, body) VALUES (?, ?, ?, ?)",
                (snapshot.id, snapshot.environment, tx.at, as_json(asdict(snapshot))),
            )

        await self._write(Operation.SAVE_SNAPSHOT, work)

    async def snapshot(self, snapshot: SnapshotId) -> Snapshot:
        def query(db: sqlite3.Connection) -> Snapshot:
            row = db.execute("SELECT body FROM snapshots WHERE id = ?", (snapshot,)).fetchone()
            if row is None:
                raise _missing(snapshot)
            return _snapshot(row["body"])

        return await self._read(query)

    async def snapshots(self, environment: str | None = None) -> Sequence[Snapshot]:
        """Return snapshots in the order of saving, of one environment's digest or of all."""
        where, values = ("", ()) if environment is None else ("WHERE environment = ? ", (environment,))
        query = f"SELECT body FROM snapshots {where}ORDER BY saved, rowid"
        return await self._read(lambda db: [_snapshot(row["body"]) for row in db.execute(query, values)])

    async def forget_snapshot(self, snapshot: SnapshotId) -> None:
        """Remove a snapshot's record; refused while a namespace stands for it or another snapshot grew from it."""

        def work(tx: Transaction) -> None:
            user = tx.db.execute("SELECT id FROM namespaces WHERE snapshot = ? AND state <> 'retired'", (snapshot,)).fetchone()
            if user is not None:
                raise LedgerConflict(f"namespace {user['id']} stands for snapshot {snapshot}", fix="retire it first")
            child = tx.db.execute("SELECT id FROM snapshots WHERE body ->> 'parent' = ?", (snapshot,)).fetchone()
            if child is not None:
                raise LedgerConflict(f"snapshot {child['id']} grew from snapshot {snapshot}", fix="forget the child first")
            if tx.db.execute("DELETE FROM snapshots WHERE id = ?", (snapshot,)).rowcount == 0:
                raise _missing(snapshot)

        await self._write(Operation.FORGET_SNAPSHOT, work)

    async def save_baseline(self, baseline: Baseline, *, environment: str, environment_name: str) -> None:
        """Record a baseline under its key; a newer one of the same key takes its place."""

        def work(tx: Transaction) -> None:
            recorded = baseline.recorded or tx.now
            tx.db.execute(
                "INSERT OR REPLACE INTO baselines (key, environment, environment_name, recorded, body) VALUES (?, ?, ?, ?, ?)",
                (baseline.key, environment, environment_name, when(recorded), _baseline_text(replace(baseline, recorded=recorded))),
            )

        await self._write(Operation.SAVE_BASELINE, work)

    async def baseline(self, key: str) -> Baseline | None:
        def query(db: sqlite3.Connection) -> Baseline | None:
            row = db.execute("SELECT body FROM baselines WHERE key = ?", (key,)).fetchone()
            return None if row is None else _baseline(row["body"])

        return await self._read(query)

    async def baselines(self, environment_name: str | None = None) -> Sequence[Baseline]:
        """Return baselines, newest first."""
        where, values = ("", ()) if environment_name is None else ("WHERE environment_name = ? ", (environment_name,))
        query = f"SELECT body FROM baselines {where}ORDER BY recorded DESC, key"
        return await self._read(lambda db: [_baseline(row["body"]) for row in db.execute(query, values)])

    async def save_score(self, score: StoredScore) -> None:
        """Record a probe score; a newer one of the same baseline, method and extent (whole or sampled) takes its place."""

        def work(tx: Transaction) -> None:
            tx.db.execute(
                "INSERT OR REPLACE INTO probe_scores (baseline, method, sampled, environment_name, catalogue, at, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(score.baseline, score.method.value, int(score.sampled), score.environment, score.catalogue),
                    *(when(score.at or tx.now), as_json(score.body)),
                ),
            )

        await self._write(Operation.SAVE_SCORE, work)

    async def scores(self, environment_name: str | None = None) -> Sequence[StoredScore]:
        """Return probe scores, newest first."""
        where, values = ("", ()) if environment_name is None else ("WHERE environment_name = ? ", (environment_name,))
        query = f"SELECT * FROM probe_scores {where}ORDER BY at DESC, baseline, method, sampled"
        return await self._read(lambda db: [_score(row) for row in db.execute(query, values)])

    async def save_audit(self, report: Mapping[str, Any]) -> None:
        def work(tx: Transaction) -> None:
            tx.db.execute("INSERT INTO audits (at, body) VALUES (?, ?)", (tx.at, as_json(report)))

        await self._write(Operation.SAVE_AUDIT, work)

    async def audits(self, limit: int = 10) -> Sequence[Mapping[str, Any]]:
        """Return reports, newest first."""
        query = "SELECT body FROM audits ORDER BY number DESC LIMIT ?"
        return await self._read(lambda db: [json.loads(row["body"]) for row in db.execute(query, (limit,))])


def _score(row: sqlite3.Row) -> StoredScore:
    return StoredScore(
        baseline=row["baseline"],
        environment=row["environment_name"],
        method=ResetMethod(row["method"]),
        sampled=bool(row["sampled"]),
        catalogue=row["catalogue"],
        at=moment(row["at"]),
        body=json.loads(row["body"]),
    )


def _missing(snapshot: SnapshotId) -> SnapshotMissing:
    return SnapshotMissing(f"the ledger has no snapshot {snapshot}", fix="build it again: `autoclave env baseline`")


def _snapshot(body: str) -> Snapshot:
    plain = json.loads(body)
    dirs = tuple(SealedDir(**d | {"layers": tuple(d["layers"]), "role": Role(d["role"])}) for d in plain.pop("dirs"))
    return Snapshot(**plain, dirs=dirs)


def _baseline_text(baseline: Baseline) -> str:
    plain = {
        "key": baseline.key,
        "digest": baseline.digest,
        "instances": baseline.instances,
        "readings": [
            {"probe": r.probe, "depth": r.depth, "fields": dict(r.fields), "seconds": r.seconds} for r in baseline.readings
        ],
        "volatile": [asdict(v) for v in baseline.volatile],
        "drift": [asdict(m) for m in baseline.drift],
        "recorded": baseline.recorded,
        "state": baseline.state,
        "parts": dict(baseline.parts),
        "former": baseline.former,
        "changed": baseline.changed,
        "changes": [asdict(m) for m in baseline.changes],
        "suspicions": baseline.suspicions,
    }
    return as_json(plain)


def _baseline(body: str) -> Baseline:
    plain = json.loads(body)
    return Baseline(
        key=plain["key"],
        digest=plain["digest"],
        instances=plain["instances"],
        readings=tuple(Reading(**r | {"depth": Depth(r["depth"])}) for r in plain["readings"]),
        volatile=tuple(VolatileField(**v) for v in plain["volatile"]),
        drift=tuple(Mismatch(**m | {"depth": Depth(m["depth"])}) for m in plain["drift"]),
        recorded=moment(plain["recorded"]) if plain["recorded"] else None,
        state=plain.get("state", ""),  # those of earlier versions know no more than the above
        parts=plain.get("parts", {}),
        former=plain.get("former", ""),
        changed=tuple(plain.get("changed", ())),
        changes=tuple(Mismatch(**m | {"depth": Depth(m["depth"])}) for m in plain.get("changes", ())),
        suspicions=tuple(plain.get("suspicions", ())),
    )
