"""Turns the ledger's account of a period into a report's entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sandbox.model import (
    ClearanceState,
    Depth,
    Mismatch,
    Problem,
    QuarantineReason,
    VerdictStatus,
    WindowPolicy,
)
from sandbox.ports import Ledger
from sandbox.report import CheckEntry, LeaseEntry, QuarantineEntry


async def gather(
    ledger: Ledger, *, since: datetime, environments: Sequence[str]
) -> tuple[tuple[CheckEntry, ...], tuple[LeaseEntry, ...], tuple[QuarantineEntry, ...]]:
    """Return checks, leases and quarantines of these environments since then."""
    found = await ledger.activity(since)
    wanted = set(environments)
    return (
        tuple(_check(row) for row in found["checks"] if row["environment"] in wanted),
        tuple(_lease(row) for row in found["leases"] if row["environment"] in wanted),
        tuple(_quarantine(row) for row in found["quarantines"] if row["environment"] in wanted),
    )


def mismatches(rows: Sequence[Mapping[str, Any]]) -> tuple[Mismatch, ...]:
    """Read mismatches as the ledger gives them."""
    return tuple(
        Mismatch(probe=m["probe"], field=m["field"], expected=m["expected"], actual=m["actual"], depth=Depth(m["depth"]))
        for m in rows
    )


def _check(row: Mapping[str, Any]) -> CheckEntry:
    return CheckEntry(
        id=row["id"],
        environment=row["environment"],
        namespace=row["namespace"],
        depth=Depth(row["depth"]),
        purpose=row["purpose"],
        status=VerdictStatus(row["status"]),
        when=datetime.fromisoformat(row["at"]),
        after=row["sequence"],
        seconds=row["seconds"],
        fields=row["fields"],
        mismatches=mismatches(row["mismatches"]),
        problems=tuple(Problem(probe=p["probe"], reason=p["reason"]) for p in row["problems"]),
        quarantine=row["quarantine"],
    )


def _lease(row: Mapping[str, Any]) -> LeaseEntry:
    return LeaseEntry(
        trajectory=row["trajectory"],
        namespace=row["namespace"],
        sequence=row["sequence"],
        granted=datetime.fromisoformat(row["granted"]),
        ended=datetime.fromisoformat(row["ended"]) if row["ended"] else None,
        clearance=ClearanceState(row["state"]),
        task=row["task"],
    )


def _quarantine(row: Mapping[str, Any]) -> QuarantineEntry:
    return QuarantineEntry(
        id=row["id"],
        environment=row["environment"],
        namespace=row["namespace"],
        reason=QuarantineReason(row["reason"]),
        first=row["after"] + 1,
        last=row["through"],
        at=datetime.fromisoformat(row["at"]),
        policy=WindowPolicy(row["policy"]),
        depth=Depth(row["depth"]) if row["depth"] else None,
        check=row["check_id"],
        trajectories=tuple(row["trajectories"]),
        note=row["note"],
    )
