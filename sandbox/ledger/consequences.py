"""What follows from a check, or from none, for the trajectories of a chain: cleared, held back, or left without hope of a check.

The rules are `sandbox.quarantine`'s; this module reads the chain, applies them and writes the result.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.ledger.rows import clearance_of, held_of, listed, text
from sandbox.ledger.writer import Transaction
from sandbox.model import (
    CheckId,
    ClearanceState,
    Depth,
    LineageId,
    NamespaceId,
    NamespaceRecord,
    QuarantineId,
    QuarantineReason,
    TrajectoryId,
    WindowPolicy,
)
from sandbox.quarantine import Held, Window, clearing, describe, gains_after_lineage, granted, pends, stranded

HELD = (
    "trajectory, sequence, lineage, first_of_lineage, start_depth, start_identity, ended, state, depth, instance, own_depth,"
    " instance_sequence, instance_generation"
)
REPLACED = "the state was replaced before a check of its own lineage was made"
RETIRED = "the namespace was retired before a check was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why trajectories are held back. `check` is None where no check could be had."""

    reason: QuarantineReason
    check: CheckId | None = None
    window: Window | None = None
    policy: WindowPolicy = WindowPolicy.STRICT
    note: str = ""


def chain(db: sqlite3.Connection, namespace: NamespaceId, where: str, *values: object) -> list[Held]:
    """Return the links of a namespace's chain that meet `where`, in order."""
    rows = db.execute(f"SELECT {HELD} FROM leases WHERE namespace = ? AND {where} ORDER BY sequence", (namespace, *values))
    return [held_of(row) for row in rows]


def waiting(db: sqlite3.Connection, namespace: NamespaceId, lineage: LineageId, depth: Depth) -> list[Held]:
    """Return the ended links of a lineage that wait for a check of `depth` on it."""
    links = chain(db, namespace, "waits = 1 AND state IN ('pending', 'cleared') AND lineage = ?", lineage)
    return [held for held in links if pends(held, depth)]


def clear(
    tx: Transaction,
    namespace: NamespaceId,
    *,
    lineage: LineageId,
    check: CheckId,
    depth: Depth,
    instance: NamespaceRecord | None = None,
) -> tuple[TrajectoryId, ...]:
    """Clear what a clean check of `depth` over `lineage` vouches for. `instance` is the one that the namespace shares."""
    states = "('pending', 'cleared')" if depth is Depth.DEEP else "('pending')"
    rows = tx.db.execute(
        f"SELECT {HELD} FROM leases WHERE namespace = ? AND waits = 1 AND state IN {states} ORDER BY sequence", (namespace,)
    )
    gained: list[tuple[str, str | None, CheckId, bool, TrajectoryId]] = []
    moved: list[TrajectoryId] = []
    for row in rows.fetchall():
        held = held_of(row)
        gain = clearing(held, depth, lineage)
        if gain is not None:
            now = granted(held, gain, instance_vouched=_vouched(row, instance))
            more = now.depth is not Depth.DEEP if held.lineage == lineage else gains_after_lineage(now)
            gained.append((str(now.depth), None if now.own is None else now.own.value, check, more, held.trajectory))
            if (now.state, now.depth) != (held.state, held.depth):
                moved.append(held.trajectory)
    tx.db.executemany(
        "UPDATE leases SET state = 'cleared', depth = ?, own_depth = ?, cleared_by = ?, waits = ? WHERE trajectory = ?", gained
    )
    tx.moved.extend(moved)
    return tuple(moved)


def _vouched(row: sqlite3.Row, instance: NamespaceRecord | None) -> bool:
    """True where a clean check of the very instance that it used followed the lease."""
    if instance is None:
        return False
    same: bool = row["instance_generation"] == instance.generation
    return same and bool(row["instance_sequence"] <= instance.deep_mark)


def hold_back(
    tx: Transaction, namespace: NamespaceId, members: Sequence[Held], cause: Cause, *, spared: Sequence[Held] = ()
) -> tuple[QuarantineId, tuple[TrajectoryId, ...]]:
    """Write a quarantine and take clearance from its members and from every fork below them; return those that lost it.

    What a person released or discarded keeps that state and is named. What was quarantined stays so; where only a check was
    missing and now one differs, the reason becomes `contaminated`.
    """
    db = tx.db
    number = db.execute("SELECT coalesce(max(number), 0) + 1 FROM quarantines").fetchone()[0]
    quarantine = QuarantineId(f"quarantine-{number}")
    reach = cause.window or _extent(members)
    db.execute(
        "INSERT INTO quarantines (number, id, namespace, check_id, reason, depth, after, through, policy, at, note)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(number, quarantine, namespace, cause.check, cause.reason, cause.window.depth if cause.window else None),
            *(reach.after, reach.through, cause.policy, tx.at, text(cause.note)),
        ),
    )
    roots = [held.trajectory for held in members]
    effects = dict.fromkeys(roots, "quarantined") | dict.fromkeys(_forks(db, roots), "fork")
    lost = _take(tx, quarantine, cause.reason, effects)
    aside = {held.trajectory: "spared" for held in spared if held.trajectory not in effects}
    _name(db, quarantine, aside)
    return quarantine, lost


def join(tx: Transaction, quarantine: QuarantineId, reason: QuarantineReason, fork: TrajectoryId) -> None:
    """Add a fork of a quarantined parent to the parent's quarantine."""
    _take(tx, quarantine, reason, {fork: "fork"})


def end_lineage(tx: Transaction, record: NamespaceRecord, *, final: bool) -> None:
    """Settle a lineage that is never read again; with `final` the namespace itself is gone, and no successor can clear anything."""
    scope, values = ("", ()) if final else (" AND lineage = ?", (record.lineage,))
    links = chain(tx.db, record.id, f"waits = 1 AND state IN ('pending', 'cleared'){scope}", *values)
    left = [held for held in links if (held.state is ClearanceState.PENDING if final else stranded(held))]
    if left:
        hold_back(tx, record.id, left, Cause(reason=QuarantineReason.UNVERIFIED, note=RETIRED if final else REPLACED))
    settled = [(held.trajectory,) for held in links if final or not gains_after_lineage(held)]
    tx.db.executemany("UPDATE leases SET waits = 0 WHERE trajectory = ?", settled)


def _extent(members: Sequence[Held]) -> Window:
    sequences = [held.sequence for held in members] or [0]
    return Window(after=min(sequences) - 1, through=max(sequences), depth=Depth.QUICK)


def _forks(db: sqlite3.Connection, parents: Sequence[TrajectoryId]) -> list[TrajectoryId]:
    """Return every fork below `parents`, at any distance and on any namespace."""
    rows = db.execute(
        "WITH RECURSIVE below (trajectory) AS ("
        " SELECT trajectory FROM leases WHERE parent IN (SELECT value FROM json_each(?))"
        " UNION SELECT leases.trajectory FROM below JOIN leases ON leases.parent = below.trajectory)"
        " SELECT trajectory FROM below",
        (listed(parents),),
    )
    known = set(parents)
    return [row["trajectory"] for row in rows if row["trajectory"] not in known]


def _take(
    tx: Transaction, quarantine: QuarantineId, reason: QuarantineReason, effects: dict[TrajectoryId, str]
) -> tuple[TrajectoryId, ...]:
    """Take clearance where there is any, and name all of them in the quarantine's record."""
    rows = tx.db.execute(
        "SELECT * FROM leases WHERE trajectory IN (SELECT value FROM json_each(?)) ORDER BY sequence", (listed(effects),)
    ).fetchall()
    lost: list[TrajectoryId] = []
    worse: list[TrajectoryId] = []
    for row in rows:
        now = clearance_of(row)
        if now.state in (ClearanceState.PENDING, ClearanceState.CLEARED):
            lost.append(now.trajectory)
        elif now.state is ClearanceState.QUARANTINED:
            effects[now.trajectory] = "already"
            if now.reason is QuarantineReason.UNVERIFIED and reason is QuarantineReason.CONTAMINATED:
                worse.append(now.trajectory)
        else:
            effects[now.trajectory] = "kept"
    before = {row["trajectory"]: describe(clearance_of(row)) for row in rows}
    tx.db.executemany(
        "UPDATE leases SET state = 'quarantined', depth = NULL, cleared_by = NULL, reason = ?, quarantine = ?, waits = 0"
        " WHERE trajectory = ?",
        [(reason, quarantine, trajectory) for trajectory in (*lost, *worse)],
    )
    _name(tx.db, quarantine, effects, before)
    tx.moved.extend((*lost, *worse))
    return tuple(lost)


def _name(
    db: sqlite3.Connection, quarantine: QuarantineId, effects: dict[TrajectoryId, str], before: dict[str, str] | None = None
) -> None:
    db.executemany(
        "INSERT INTO quarantine_members (quarantine, trajectory, before, effect) VALUES (?, ?, ?, ?)",
        [(quarantine, trajectory, (before or {}).get(trajectory, "pending"), effect) for trajectory, effect in effects.items()],
    )
