"""Rows to values and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sandbox import quarantine
from sandbox.model import (
    CheckId,
    Clearance,
    ClearanceState,
    Depth,
    InstanceId,
    Lease,
    LeaseId,
    LineageId,
    NamespaceId,
    NamespaceRecord,
    QuarantineId,
    QuarantineReason,
    SnapshotId,
    StartCheck,
    TrajectoryId,
)


def when(moment: datetime) -> str:
    """Return UTC text of one width, so that it sorts as text does."""
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), default=_plain, sort_keys=True) if value else "{}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return when(value) if isinstance(value, datetime) else str(value)


def text(value: str) -> str:
    """Return what SQLite can store: names that are no UTF-8 (lone surrogates) in escaped form."""
    if value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


def listed(values: Iterable[str]) -> str:
    """Return ids as one parameter, for `IN (SELECT value FROM json_each(?))`."""
    return json.dumps(list(values))


def namespace_of(row: sqlite3.Row) -> NamespaceRecord:
    return NamespaceRecord(
        id=NamespaceId(row["id"]),
        environment=row["environment"],
        environment_name=row["environment_name"],
        snapshot=SnapshotId(row["snapshot"]),
        state=row["state"],
        generation=row["generation"],
        sequence=row["sequence"],
        lineage=LineageId(row["lineage"]),
        runtime=row["runtime"],
        created=moment(row["created"]),
        resets=row["resets"],
        since_restore=row["since_restore"],
        identity=bool(row["identity"]),
        quick_mark=row["quick_mark"],
        deep_mark=row["deep_mark"],
        checked=moment(row["checked"]) if row["checked"] else None,
        last_check=CheckId(row["last_check"]) if row["last_check"] else None,
        last_depth=Depth(row["last_depth"]) if row["last_depth"] else None,
        instance=InstanceId(row["instance"]) if row["instance"] else None,
        shares=bool(row["shares"]),
        details={} if row["details"] == "{}" else json.loads(row["details"]),
    )


def start_of(row: sqlite3.Row) -> StartCheck:
    return StartCheck(check=CheckId(row["start_check"]), depth=Depth(row["start_depth"]), identity=bool(row["start_identity"]))


def lease_of(row: sqlite3.Row) -> Lease:
    return Lease(
        id=LeaseId(row["id"]),
        namespace=NamespaceId(row["namespace"]),
        generation=row["generation"],
        sequence=row["sequence"],
        lineage=LineageId(row["lineage"]),
        first_of_lineage=bool(row["first_of_lineage"]),
        trajectory=TrajectoryId(row["trajectory"]),
        environment=row["environment"],
        task=row["task"],
        holder=row["holder"],
        start_check=start_of(row),
        granted=moment(row["granted"]),
        expires=moment(row["expires"]),
        parent=TrajectoryId(row["parent"]) if row["parent"] else None,
        instance=InstanceId(row["instance"]) if row["instance"] else None,
    )


def held_of(row: sqlite3.Row) -> quarantine.Held:
    return quarantine.Held(
        trajectory=TrajectoryId(row["trajectory"]),
        sequence=row["sequence"],
        lineage=LineageId(row["lineage"]),
        first_of_lineage=bool(row["first_of_lineage"]),
        verified=Depth.DEEP if row["start_identity"] else Depth(row["start_depth"]),
        ended=row["ended"] is not None,
        state=ClearanceState(row["state"]),
        depth=Depth(row["depth"]) if row["depth"] else None,
        shared=row["instance"] is not None,
        own=Depth(row["own_depth"]) if row["own_depth"] else None,
    )


def clearance_of(row: sqlite3.Row) -> Clearance:
    return Clearance(
        trajectory=TrajectoryId(row["trajectory"]),
        state=ClearanceState(row["state"]),
        depth=Depth(row["depth"]) if row["depth"] else None,
        reason=QuarantineReason(row["reason"]) if row["reason"] else None,
        quarantine=QuarantineId(row["quarantine"]) if row["quarantine"] else None,
        note=row["note"],
        by=row["person"],
        environment=row["environment"],
        namespace=NamespaceId(row["namespace"]),
    )
