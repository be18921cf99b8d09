"""Resets and checks: the intent before a swap, and each verdict with all that follows from it in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sandbox import quarantine
from sandbox.errors import AutoclaveError, LedgerConflict, RecordMissing
from sandbox.ledger.consequences import HELD, Cause, chain, clear, end_lineage, hold_back
from sandbox.ledger.moves import expect, load, move, moved
from sandbox.ledger.rows import as_json, held_of, text
from sandbox.ledger.shipping import reached
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.lifecycle import Event, State
from sandbox.model import (
    CheckId,
    CheckOutcome,
    InstanceId,
    LineageId,
    NamespaceId,
    NamespaceRecord,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    Verdict,
    WindowPolicy,
)

CLOSING = "closing"
FORK = "fork"
OF_READY = ("recheck", "drain", "audit")  # nobody used it since its last clean check, unless leases say otherwise
PURPOSES = ("opening", "reset", CLOSING, "recheck", "drain", "audit")


class Checks(Store):
    async def begin_reset(self, namespace: NamespaceId, method: ResetMethod, *, generation: int, target: SnapshotId) -> None:
        """Write the intent before anything is swapped."""

        def work(tx: Transaction) -> None:
            expect(tx.db, namespace, generation, State.RESETTING)
            tx.db.execute(
                "INSERT INTO resets (namespace, generation, method, target, begun) VALUES (?, ?, ?, ?, ?)",
                (namespace, generation, method.value, target, tx.at),
            )

        await self._write(Operation.BEGIN_RESET, work)

    async def end_reset(
        self,
        namespace: NamespaceId,
        *,
        generation: int,
        new_generation: int,
        replaced: bool,
        snapshot: SnapshotId,
        identity: bool,
        seconds: float,
        details: Mapping[str, Any],
    ) -> NamespaceRecord:
        """RESETTING -> VERIFYING under the new generation. A replaced lineage ends: see `sandbox.quarantine`."""

        def work(tx: Transaction) -> NamespaceRecord:
            record = expect(tx.db, namespace, generation, State.RESETTING)
            if new_generation <= generation:
                raise LedgerConflict(
                    f"the generation of namespace {namespace} must rise above {generation}, not to {new_generation}"
                )
            lineage = LineageId(f"{namespace}@{new_generation}") if replaced else None
            _end_intent(tx, record, new_generation, lineage, identity, seconds)
            changes: dict[str, Any] = {"generation": new_generation, "resets": record.resets + 1, "snapshot": snapshot}
            changes["details"] = dict(details)
            changes["identity"] = identity and replaced  # what was undone in place is proven by reading only
            if lineage is not None:
                end_lineage(tx, record, final=False)
                changes |= {"lineage": lineage, "since_restore": 0}
                tx.db.execute("UPDATE namespaces SET fork_parent = NULL WHERE id = ? AND fork_parent IS NOT NULL", (namespace,))
            return moved(tx, record, Event.RESTORED, **changes)

        return await self._write(Operation.END_RESET, work)

    async def record_check(
        self, namespace: NamespaceId, verdict: Verdict, *, generation: int, window: WindowPolicy, purpose: str
    ) -> CheckOutcome:
        """Record a verdict: its differences, watermarks, clearances or quarantine, and VERIFYING -> READY or QUARANTINED."""

        def work(tx: Transaction) -> CheckOutcome:
            if purpose not in PURPOSES:
                raise AutoclaveError(f"a check for {purpose!r} is unknown", fix=f"use one of: {', '.join(PURPOSES)}")
            record = expect(tx.db, namespace, generation, State.VERIFYING)
            if record.shares:
                raise LedgerConflict(f"{namespace} is an instance that namespaces share: record_instance_check() judges it")
            check = insert(tx, record, verdict, purpose)
            tx.db.execute(
                "UPDATE leases SET end_check = ? WHERE namespace = ? AND end_check IS NULL AND ended IS NOT NULL",
                (check, namespace),
            )
            marks = quarantine.Marks(quick=record.quick_mark, deep=record.deep_mark)
            stamp(tx, record, verdict, check, quarantine.advanced(verdict, marks, record.sequence))
            instance = None if record.instance is None else load(tx.db, NamespaceId(record.instance))
            if instance is not None and quarantine.concerns_instance(
                verdict, marks, record.sequence, was_ready=purpose in OF_READY
            ):
                return fail_both(tx, record, instance, verdict, check, marks, window)
            if not verdict.clean:
                return fail(tx, record, verdict, check, marks, window)
            cleared = clear(tx, namespace, lineage=record.lineage, check=check, depth=verdict.depth, instance=instance)
            if purpose == CLOSING:
                move(tx, replace(record, state=State.READY), Event.RESET, note="the lineage is replaced next")
            return CheckOutcome(check=check, cleared=cleared)

        return await self._write(Operation.RECORD_CHECK, work)

    async def fork_check(self, namespace: NamespaceId, verdict: Verdict, *, generation: int, parent: TrajectoryId) -> CheckOutcome:
        """Record what vouches for a fork's start. It reads the parent's world and not golden, so it clears nobody on this
        chain, moves no watermark, and the namespace can be leased to that fork only."""

        def work(tx: Transaction) -> CheckOutcome:
            record = expect(tx.db, namespace, generation, State.VERIFYING)
            if tx.db.execute("SELECT 1 FROM leases WHERE trajectory = ?", (parent,)).fetchone() is None:
                raise RecordMissing(f"the ledger has no trajectory {parent}, of which namespace {namespace} should become a fork")
            if record.instance is not None or record.shares:
                raise LedgerConflict(f"namespace {namespace} shares its instance: there are no forks of it")
            check = insert(tx, record, verdict, FORK)
            marks = quarantine.Marks(quick=record.quick_mark, deep=record.deep_mark)
            stamp(tx, record, verdict, check, marks)
            if not verdict.clean:
                return fail(tx, record, verdict, check, marks, WindowPolicy.STRICT)
            tx.db.execute("UPDATE namespaces SET fork_parent = ? WHERE id = ?", (parent, namespace))
            return CheckOutcome(check=check)

        return await self._write(Operation.FORK_CHECK, work)


def _end_intent(
    tx: Transaction, record: NamespaceRecord, new_generation: int, lineage: LineageId | None, identity: bool, seconds: float
) -> None:
    ended = tx.db.execute(
        "UPDATE resets SET ended = ?, new_generation = ?, lineage = ?, identity = ?, seconds = ?"
        " WHERE number = (SELECT max(number) FROM resets WHERE namespace = ?) AND generation = ? AND ended IS NULL",
        (tx.at, new_generation, lineage, int(identity), seconds, record.id, record.generation),
    ).rowcount
    if not ended:
        raise LedgerConflict(
            f"no reset of namespace {record.id} was begun at generation {record.generation}", fix="begin_reset() comes first"
        )


def insert(tx: Transaction, record: NamespaceRecord, verdict: Verdict, purpose: str) -> CheckId:
    """Write the check with the whole difference."""
    written = tx.db.execute(
        "INSERT INTO checks (namespace, generation, sequence, lineage, purpose, depth, status, fields, seconds, at, in_force)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(record.id, record.generation, record.sequence, record.lineage, purpose, verdict.depth.value, verdict.status.value),
            *(verdict.fields, verdict.seconds, tx.at, as_json(verdict.in_force)),
        ),
    )
    check = CheckId(f"check-{written.lastrowid}")
    if verdict.mismatches:
        tx.db.executemany(
            "INSERT INTO mismatches (check_id, number, probe, field, expected, actual, depth, shared)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (check, i, text(m.probe), text(m.field), _absent(m.expected), _absent(m.actual), m.depth.value, int(m.shared))
                for i, m in enumerate(verdict.mismatches)
            ],
        )
    if verdict.problems:
        tx.db.executemany(
            "INSERT INTO problems (check_id, number, probe, reason) VALUES (?, ?, ?, ?)",
            [(check, i, text(p.probe), text(p.reason)) for i, p in enumerate(verdict.problems)],
        )
    return check


def stamp(tx: Transaction, record: NamespaceRecord, verdict: Verdict, check: CheckId, marks: quarantine.Marks) -> None:
    event = Event.PASSED if verdict.clean else Event.FAILED
    move(
        tx,
        record,
        event,
        note=f"{verdict.depth} {verdict.status}",
        quick_mark=marks.quick,
        deep_mark=marks.deep,
        checked=tx.now,
        last_check=check,
        last_depth=verdict.depth,
    )


def fail(
    tx: Transaction, record: NamespaceRecord, verdict: Verdict, check: CheckId, marks: quarantine.Marks, policy: WindowPolicy
) -> CheckOutcome:
    """Hold back what the failed check taints, and say what that had already reached."""
    reach = quarantine.window(verdict, marks, record.sequence)
    links = chain(tx.db, record.id, "sequence > ? AND sequence <= ?", reach.after, reach.through)
    hit, spared = quarantine.tainted(links, reach, policy)
    cause = Cause(reason=quarantine.reason(verdict), check=check, window=reach, policy=policy)
    name, lost = hold_back(tx, record.id, hit, cause, spared=spared)
    return CheckOutcome(check=check, quarantined=lost, quarantine=name, recall=reached(tx.db, name))


def fail_instance(tx: Transaction, instance: NamespaceRecord, verdict: Verdict, check: CheckId) -> CheckOutcome:
    """Hold back what a field of a shared instance taints: every trajectory on it since its last clean check, and no other."""
    reach = quarantine.instance_window(instance.deep_mark, instance.sequence)
    rows = tx.db.execute(
        f"SELECT {HELD} FROM leases WHERE instance = ? AND instance_sequence > ? AND instance_sequence <= ?"
        " ORDER BY instance_sequence",
        (instance.id, reach.after, reach.through),
    )
    cause = Cause(reason=quarantine.reason(verdict), check=check, window=reach, note="a field of the shared instance")
    name, lost = hold_back(tx, instance.id, [held_of(row) for row in rows], cause)
    found = InstanceId(instance.id)
    return CheckOutcome(check=check, quarantined=lost, quarantine=name, recall=reached(tx.db, name), instance=found)


def fail_both(
    tx: Transaction,
    record: NamespaceRecord,
    instance: NamespaceRecord,
    verdict: Verdict,
    check: CheckId,
    marks: quarantine.Marks,
    policy: WindowPolicy,
) -> CheckOutcome:
    """A namespace's check found that its shared instance is not as it was: that one is out of service from now on. Where fields of
    the namespace's own differ as well, they have their own window."""
    note = f"seen by check {check} of namespace {record.id}"
    if instance.state == State.READY:
        instance = moved(tx, instance, Event.RECHECK, note=note)
    if instance.state == State.VERIFYING:
        instance = moved(tx, instance, Event.FAILED, note=note)
    outcome = fail_instance(tx, instance, verdict, check)
    own = quarantine.own_part(verdict)
    if own.clean or quarantine.is_empty(quarantine.window(own, marks, record.sequence)):
        return outcome
    more = fail(tx, record, own, check, marks, policy)
    return replace(outcome, quarantined=(*outcome.quarantined, *more.quarantined))


def _absent(value: str | None) -> str | None:
    return None if value is None else text(value)
