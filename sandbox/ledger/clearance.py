"""Clearance: looking it up, a person's say, ending what no check can vouch for, and the record of quarantines."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sandbox.errors import AutoclaveError, LedgerConflict, RecordMissing
from sandbox.ledger.consequences import Cause, chain, hold_back, waiting
from sandbox.ledger.moves import load
from sandbox.ledger.rows import clearance_of, lease_of, listed, moment, text
from sandbox.ledger.shipping import reached, recall_as_dict
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.model import (
    CheckId,
    CheckOutcome,
    Clearance,
    ClearanceState,
    Depth,
    Lease,
    NamespaceId,
    QuarantineId,
    QuarantineReason,
    TrajectoryId,
)
from sandbox.quarantine import Held, describe

NO_CHECK = CheckId("")  # an abandoned trajectory's end was judged by none
ASIDE = (ClearanceState.RELEASED, ClearanceState.DISCARDED)


class Clearances(Store):
    async def clearances(self, trajectories: Sequence[TrajectoryId]) -> Mapping[TrajectoryId, Clearance]:
        """Return where each stands, in the given order; those that the ledger does not know are left out."""
        found = await self._read(lambda db: clearances_of(db, trajectories))
        return {trajectory: found[trajectory] for trajectory in trajectories if trajectory in found}

    async def set_aside(
        self, trajectories: Sequence[TrajectoryId], state: ClearanceState, *, by: str, note: str
    ) -> Sequence[Clearance]:
        """Record a person's decision about quarantined trajectories: all of them, or none where one is not quarantined."""
        return await self._write(Operation.SET_ASIDE, lambda tx: _set_aside(tx, trajectories, state, by.strip(), note.strip()))

    async def abandon(self, namespace: NamespaceId, *, note: str, depth: Depth | None = None) -> CheckOutcome:
        """End as quarantined/unverified what no check can vouch for any more; the namespace's state and lease stay as they are.

        With `depth` also what is cleared at a lesser one: nobody asked for less.
        """

        def work(tx: Transaction) -> CheckOutcome:
            members = _without_hope(tx.db, namespace, depth)
            if not members:
                return CheckOutcome(check=NO_CHECK)
            quarantine, lost = hold_back(tx, namespace, members, Cause(reason=QuarantineReason.UNVERIFIED, note=note))
            return CheckOutcome(check=NO_CHECK, quarantined=lost, quarantine=quarantine, recall=reached(tx.db, quarantine))

        return await self._write(Operation.ABANDON, work)

    async def pending(self, namespace: NamespaceId, depth: Depth) -> Sequence[Lease]:
        """Return ended leases of the present lineage that only a check of `depth` on this lineage can clear at it."""

        def query(db: sqlite3.Connection) -> list[Lease]:
            links = waiting(db, namespace, load(db, namespace).lineage, depth)
            rows = db.execute(
                "SELECT * FROM leases WHERE trajectory IN (SELECT value FROM json_each(?)) ORDER BY sequence",
                (listed(held.trajectory for held in links),),
            )
            return [lease_of(row) for row in rows]

        return await self._read(query)

    async def oldest_pending(self, environment: str) -> Mapping[NamespaceId, datetime]:
        """Return, for each namespace of an environment (digest or name), when the oldest of the trajectories that a deep check
        may still clear, or clear deeper, had ended."""
        query = (
            "SELECT leases.namespace, min(leases.ended) AS oldest FROM leases JOIN namespaces ON namespaces.id = leases.namespace"
            " WHERE leases.waits = 1 AND leases.state IN ('pending', 'cleared') AND leases.ended IS NOT NULL"
            " AND ? IN (namespaces.environment, namespaces.environment_name) GROUP BY leases.namespace"
        )
        return await self._read(
            lambda db: {NamespaceId(row["namespace"]): moment(row["oldest"]) for row in db.execute(query, (environment,))}
        )

    async def quarantines(self) -> Sequence[Mapping[str, Any]]:
        """Return every quarantine, newest first, with how many trajectories it named and how many it still holds back."""
        query = (
            "SELECT quarantines.*, namespaces.environment, namespaces.environment_name,"
            " count(members.trajectory) FILTER (WHERE members.effect <> 'spared') AS trajectories,"
            " count(leases.trajectory) FILTER (WHERE leases.state = 'quarantined') AS held_back"
            " FROM quarantines JOIN namespaces ON namespaces.id = quarantines.namespace"
            " LEFT JOIN quarantine_members AS members ON members.quarantine = quarantines.id"
            " LEFT JOIN leases ON leases.trajectory = members.trajectory AND members.effect <> 'spared'"
            " GROUP BY quarantines.number ORDER BY quarantines.number DESC"
        )
        return await self._read(lambda db: [_summary(row) for row in db.execute(query)])

    async def quarantine(self, quarantine: QuarantineId) -> Mapping[str, Any]:
        """Return one quarantine with its evidence, everyone it names, and what it had reached."""
        return await self._read(lambda db: quarantine_record(db, quarantine))


def clearances_of(db: sqlite3.Connection, trajectories: Sequence[TrajectoryId]) -> dict[TrajectoryId, Clearance]:
    rows = db.execute("SELECT * FROM leases WHERE trajectory IN (SELECT value FROM json_each(?))", (listed(trajectories),))
    return {TrajectoryId(row["trajectory"]): clearance_of(row) for row in rows}


def evidence(db: sqlite3.Connection, check: str | None) -> dict[str, Any]:
    """Return the whole difference that a check found."""
    mismatches = db.execute(
        "SELECT probe, field, expected, actual, depth, shared FROM mismatches WHERE check_id = ? ORDER BY number", (check,)
    )
    problems = db.execute("SELECT probe, reason FROM problems WHERE check_id = ? ORDER BY number", (check,))
    return {"mismatches": [_mismatch(row) for row in mismatches], "problems": [dict(row) for row in problems]}


def _mismatch(row: sqlite3.Row) -> dict[str, Any]:
    """`shared` only where it is true: most instances have one namespace."""
    plain: dict[str, Any] = dict(row)
    return plain | {"shared": True} if plain.pop("shared") else plain


def quarantine_record(db: sqlite3.Connection, quarantine: str) -> dict[str, Any]:
    row = db.execute(
        "SELECT quarantines.*, namespaces.environment, namespaces.environment_name FROM quarantines"
        " JOIN namespaces ON namespaces.id = quarantines.namespace WHERE quarantines.id = ?",
        (quarantine,),
    ).fetchone()
    if row is None:
        raise RecordMissing(f"the ledger has no quarantine {quarantine}", fix="`autoclave quarantine list` shows them all")
    named = db.execute(
        "SELECT leases.*, members.before, members.effect FROM quarantine_members AS members"
        " JOIN leases ON leases.trajectory = members.trajectory WHERE members.quarantine = ? ORDER BY leases.sequence",
        (quarantine,),
    ).fetchall()
    members = [
        {
            "trajectory": member["trajectory"],
            "namespace": member["namespace"],
            "sequence": member["sequence"],
            "task": member["task"],
            "effect": member["effect"],
            "before": member["before"],
            "clearance": describe(clearance_of(member)),
            "note": member["note"],
            "by": member["person"],
        }
        for member in named
    ]
    recall = recall_as_dict(reached(db, QuarantineId(quarantine)))
    return _summary(row) | {"members": members} | evidence(db, row["check_id"]) | {"recall": recall}


def _summary(row: sqlite3.Row) -> dict[str, Any]:
    told = {"check_id": "check", "after": "from", "through": "to"}
    plain: dict[str, Any] = {told.get(key, key): row[key] for key in row.keys() if key != "number"}  # noqa: SIM118 - a Row iterates over values
    plain["from"] += 1  # people read a closed interval of lease numbers
    return plain


def _without_hope(db: sqlite3.Connection, namespace: NamespaceId, depth: Depth | None) -> list[Held]:
    record = load(db, namespace)
    if depth is None:
        return chain(db, namespace, "state = 'pending' AND waits = 1")
    held = chain(db, namespace, "ended IS NULL AND state IN ('pending', 'cleared')")
    return [*waiting(db, namespace, record.lineage, depth), *held]


def _set_aside(
    tx: Transaction, trajectories: Sequence[TrajectoryId], state: ClearanceState, by: str, note: str
) -> Sequence[Clearance]:
    if state not in ASIDE:
        raise AutoclaveError(f"a person can release or discard a trajectory, not make it {state}")
    if not by or not note:
        raise AutoclaveError("a decision about a quarantined trajectory needs a name and a reason", fix="give both --by and --note")
    found = clearances_of(tx.db, trajectories)
    if unknown := [t for t in trajectories if t not in found]:
        raise RecordMissing(f"the ledger has no trajectory {', '.join(unknown)}")
    if other := [f"{t} is {describe(found[t])}" for t in trajectories if found[t].state is not ClearanceState.QUARANTINED]:
        raise LedgerConflict(f"only quarantined trajectories can be {state}: {'; '.join(other)}")
    tx.db.execute(
        "UPDATE leases SET state = ?, person = ?, note = ? WHERE trajectory IN (SELECT value FROM json_each(?))",
        (state, text(by), text(note), listed(trajectories)),
    )
    tx.moved.extend(trajectories)
    after = clearances_of(tx.db, trajectories)
    return [after[t] for t in trajectories]
