"""One audit that has something of everything, hostile text included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sandbox.model import (
    BatchId,
    CheckId,
    CheckpointId,
    ClearanceState,
    Depth,
    Mismatch,
    NamespaceId,
    Problem,
    QuarantineId,
    QuarantineReason,
    Recall,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    UpdateId,
    VerdictStatus,
    WindowPolicy,
)
from sandbox.report import (
    AuditReport,
    CheckEntry,
    EnvironmentEntry,
    GuardEntry,
    LeakEntry,
    LeaseEntry,
    ProbeEntry,
    QuarantineEntry,
    SealEntry,
)

START = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
SHOP, REPO = NamespaceId("shop-3f9a"), NamespaceId("repo-77c1")
ROLE = "rolname=agent rolcanlogin=t rolsuper=f rolconnlimit={} rolvaliduntil=null memberof=shop_staff"
HOSTILE = "<script>alert('x')</script>\x1b[31mred\x00\u202egnp.exe ]]> & \"quoted\" [bold]markup[/bold] {{ 7 * 7 }}"

MISMATCHES = (
    Mismatch(probe="postgres", field="roles/agent", expected=ROLE.format(20), actual=ROLE.format(3) + ", pg_read_all_data"),
    Mismatch(probe="postgres", field="database/shop/settings", expected=None, actual="TimeZone=Asia/Tokyo"),
    Mismatch(probe="postgres", field="relation/shop.shipments/rows", expected="7025 rows, 8f3b61c2d94e", actual=None),
    Mismatch(
        probe="postgres",
        field="schema/work/functions",
        expected="",
        actual="order_total(bigint) returns numeric language sql\nlower(text) returns text language sql",
    ),
    Mismatch(
        probe="postgres",
        field="settings",
        expected="\n".join(f"setting_{n} = {n * 37 % 101}" for n in range(300)),
        actual="\n".join(f"setting_{n} = {n * 37 % 101 + (n == 151)}" for n in range(300)),
        depth=Depth.DEEP,
    ),
    Mismatch(probe="files", field="/workspace/<b>.txt", expected="harmless", actual=HOSTILE),
)


def leases(namespace: NamespaceId, count: int, quarantined: range) -> tuple[LeaseEntry, ...]:
    return tuple(
        LeaseEntry(
            trajectory=TrajectoryId(f"t-{namespace[:4]}{n:02d}"),
            namespace=namespace,
            sequence=n,
            granted=START - timedelta(minutes=600 - n * 9),
            ended=START - timedelta(minutes=600 - n * 9 - 6),
            clearance=ClearanceState.QUARANTINED if n in quarantined else ClearanceState.CLEARED,
            task=f"refund-{n:02d}",
        )
        for n in range(1, count + 1)
    )


def check(number: int, namespace: NamespaceId, after: int, status: VerdictStatus, **more: object) -> CheckEntry:
    values: dict[str, object] = {
        "id": CheckId(f"c-{number}"),
        "environment": namespace.split("-", maxsplit=1)[0],
        "namespace": namespace,
        "depth": Depth.DEEP if after % 10 == 0 else Depth.QUICK,
        "purpose": "audit" if after % 10 == 0 else "reset",
        "status": status,
        "when": START - timedelta(minutes=600 - after * 9 - 7),
        "after": after,
        "seconds": 0.18,
        "fields": 412,
        "probes": (ProbeEntry(probe="postgres", fields=400, seconds=0.15), ProbeEntry(probe="files", fields=12, seconds=0.03)),
    }
    return CheckEntry(**(values | more))  # type: ignore[arg-type]


@pytest.fixture
def clean() -> AuditReport:
    return AuditReport(
        started=START,
        ended=START + timedelta(seconds=12.5),
        environments=(
            EnvironmentEntry(
                name="shop",
                version="1.0.0",
                digest="9f" * 32,
                reset=ResetMethod.RESTORE,
                required_depth=Depth.QUICK,
                baseline="7c" * 32,
                fields=2048,
                instances=2,
                namespaces=1,
            ),
        ),
        checks=(check(1, SHOP, 1, VerdictStatus.CLEAN), check(2, SHOP, 10, VerdictStatus.CLEAN)),
        seals=(SealEntry(snapshot=SnapshotId("s-1"), environment="shop", digest="ab" * 32, holds=True),),
        in_force={"runtime": "namespaces", "storage": "overlay (tmpfs upper)", "limits": {"memory_mb": 1024, "by": "cgroup v2"}},
        html="/var/autoclave/reports/a.html",
    )


@pytest.fixture
def found(clean: AuditReport) -> AuditReport:
    shop = [check(n, SHOP, n, VerdictStatus.CLEAN) for n in range(1, 20)]
    repo = [check(40 + n, REPO, n, VerdictStatus.CLEAN, probes=()) for n in range(1, 30)]
    return AuditReport(
        started=clean.started,
        ended=clean.ended,
        environments=(
            *clean.environments,
            EnvironmentEntry(
                name="repo",
                version="0.3.1",
                digest="11" * 32,
                reset=ResetMethod.HOOK,
                required_depth=Depth.DEEP,
                baseline="5e" * 32,
                fields=731,
                instances=2,
                namespaces=1,
                drift=(Mismatch(probe="repo", field="refs/packed", expected="sorted", actual="fully-peeled sorted"),),
            ),
        ),
        checks=(
            *shop,
            check(20, SHOP, 20, VerdictStatus.MISMATCH, mismatches=MISMATCHES, quarantine=QuarantineId("q-1")),
            *repo,
            check(
                90,
                REPO,
                30,
                VerdictStatus.INCONCLUSIVE,
                problems=(Problem(probe="process", reason="timed out after 30 s"),),
                quarantine=QuarantineId("q-2"),
            ),
        ),
        leases=(*leases(SHOP, 20, range(11, 21)), *leases(REPO, 30, range(28, 31))),
        quarantines=(
            QuarantineEntry(
                id=QuarantineId("q-1"),
                environment="shop",
                namespace=SHOP,
                reason=QuarantineReason.CONTAMINATED,
                first=11,
                last=20,
                at=START,
                policy=WindowPolicy.STRICT,
                depth=Depth.DEEP,
                check=CheckId("c-20"),
                trajectories=tuple(TrajectoryId(f"t-shop{n}") for n in range(11, 21)),
            ),
            QuarantineEntry(
                id=QuarantineId("q-2"),
                environment="repo",
                namespace=REPO,
                reason=QuarantineReason.UNVERIFIED,
                first=28,
                last=30,
                at=START,
                policy=WindowPolicy.STRICT,
                depth=Depth.QUICK,
                trajectories=tuple(TrajectoryId(f"t-repo{n}") for n in range(28, 31)),
                note=HOSTILE,
            ),
        ),
        recalls=(
            Recall(
                quarantine=QuarantineId("q-1"),
                trajectories=(TrajectoryId("t-shop11"), TrajectoryId("t-shop12")),
                batches=(BatchId("batch-9"),),
                updates=(UpdateId("update-12"),),
                checkpoints=(CheckpointId("ckpt-12"),),
                siblings=(TrajectoryId("t-9e01"),),
            ),
        ),
        seals=(
            *clean.seals,
            SealEntry(
                snapshot=SnapshotId("s-2"), environment="repo", digest="cd" * 32, holds=False, detail="refs/heads/main was written"
            ),
        ),
        leaks=(
            LeakEntry(name="role password", environment="shop", caught=True, fields=("postgres/roles/agent",), repaired=True),
            LeakEntry(
                name="large object",
                environment="shop",
                caught=True,
                fields=tuple(f"postgres/lo/{n}" for n in range(9)),
                repaired=True,
            ),
            LeakEntry(name="stash entry", environment="repo", caught=False, repaired=None),
        ),
        guards=(
            GuardEntry(name="host_containment", holds=True, measured={"uid": 64100, "capabilities": 0}, evidence=("no host path",)),
        ),
        in_force=clean.in_force,
        html="/var/autoclave/reports/2026-11-29.html",
        junit="/var/autoclave/reports/2026-11-29.xml",
    )
