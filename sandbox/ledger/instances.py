"""Instances that several namespaces share: checks of the whole, with a window over all of its namespaces, and their loss."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox import quarantine
from sandbox.errors import AutoclaveError, LedgerConflict
from sandbox.ledger.checks import fail_instance, insert, stamp
from sandbox.ledger.clearance import NO_CHECK
from sandbox.ledger.consequences import HELD, Cause, hold_back
from sandbox.ledger.moves import expect, load
from sandbox.ledger.rows import held_of, namespace_of
from sandbox.ledger.shipping import reached
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.lifecycle import State
from sandbox.model import (
    CheckId,
    CheckOutcome,
    Depth,
    InstanceId,
    NamespaceId,
    NamespaceRecord,
    QuarantineReason,
    TrajectoryId,
    Verdict,
)

PURPOSES = ("opening", "barrier", "drain", "audit")


class Instances(Store):
    async def instances(self, *, retired: bool = False) -> Sequence[NamespaceRecord]:
        """Return every instance that namespaces share, in the order of creation, those that are retired only on request."""
        where = "" if retired else " AND state <> 'retired'"
        query = f"SELECT * FROM namespaces WHERE shares = 1{where} ORDER BY created, id"
        return await self._read(lambda db: [namespace_of(row) for row in db.execute(query)])

    async def record_instance_check(self, instance: InstanceId, verdict: Verdict, *, generation: int, purpose: str) -> CheckOutcome:
        """Record a deep verdict on the whole of an instance, on which nobody may hold a lease now."""

        def work(tx: Transaction) -> CheckOutcome:
            if purpose not in PURPOSES:
                raise AutoclaveError(f"a check of an instance for {purpose!r} is unknown", fix=f"use one of: {', '.join(PURPOSES)}")
            record = expect(tx.db, NamespaceId(instance), generation, State.VERIFYING)
            _fit(tx, record, verdict)
            check = insert(tx, record, verdict, purpose)
            marks = quarantine.Marks(quick=record.quick_mark, deep=record.deep_mark)
            clean = quarantine.Marks(quick=record.sequence, deep=record.sequence)
            stamp(tx, record, verdict, check, clean if verdict.clean else marks)
            if not verdict.clean:
                return fail_instance(tx, record, verdict, check)
            return CheckOutcome(check=check, cleared=_deepen(tx, record, check))

        return await self._write(Operation.RECORD_INSTANCE_CHECK, work)

    async def abandon_instance(self, instance: InstanceId, *, note: str, depth: Depth) -> CheckOutcome:
        """No check of this instance as it was can be had any more: end as quarantined/unverified what still waits for one, and
        with depth deep also what is cleared at quick only. States and leases stay as they are."""

        def work(tx: Transaction) -> CheckOutcome:
            record = load(tx.db, NamespaceId(instance))
            states = "('pending', 'cleared')" if depth is Depth.DEEP else "('pending')"
            rows = tx.db.execute(
                f"SELECT {HELD} FROM leases WHERE instance = ? AND instance_sequence > ? AND state IN {states}"
                " AND depth IS NOT 'deep' ORDER BY instance_sequence",
                (record.id, record.deep_mark),
            ).fetchall()
            if not rows:
                return CheckOutcome(check=NO_CHECK)
            cause = Cause(
                reason=QuarantineReason.UNVERIFIED,
                window=quarantine.instance_window(record.deep_mark, record.sequence),
                note=note,
            )
            name, lost = hold_back(tx, record.id, [held_of(row) for row in rows], cause)
            return CheckOutcome(check=NO_CHECK, quarantined=lost, quarantine=name, recall=reached(tx.db, name))

        return await self._write(Operation.ABANDON_INSTANCE, work)


def _fit(tx: Transaction, record: NamespaceRecord, verdict: Verdict) -> None:
    """Refuse what would move the watermark over leases that nobody looked at."""
    if not record.shares:
        raise LedgerConflict(f"{record.id} is a namespace, and no instance that others share: record_check() judges it")
    if verdict.depth is not Depth.DEEP:
        raise AutoclaveError(f"a check of instance {record.id} reads everything, and not {verdict.depth} only")
    held = tx.db.execute("SELECT trajectory FROM leases WHERE instance = ? AND ended IS NULL", (record.id,)).fetchone()
    if held is not None:
        raise LedgerConflict(f"instance {record.id} is still used by trajectory {held[0]}", fix="wait until its leases have ended")


def _deepen(tx: Transaction, record: NamespaceRecord, check: CheckId) -> tuple[TrajectoryId, ...]:
    """Clear at deep what its own namespace has vouched for at deep already."""
    rows = tx.db.execute(
        f"SELECT {HELD} FROM leases WHERE instance = ? AND instance_generation = ? AND own_depth = 'deep' AND state = 'cleared'"
        " AND depth = 'quick' ORDER BY instance_sequence",
        (record.id, record.generation),
    ).fetchall()
    cleared = tuple(held.trajectory for held in map(held_of, rows) if held.awaits_instance)
    tx.db.executemany(
        "UPDATE leases SET depth = 'deep', cleared_by = ?, waits = 0 WHERE trajectory = ?", [(check, each) for each in cleared]
    )
    tx.moved.extend(cleared)
    return cleared
