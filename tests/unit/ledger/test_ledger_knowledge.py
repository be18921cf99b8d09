"""Snapshots, baselines, audits, numbers, and what retention may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from sandbox.errors import LedgerConflict, RecordMissing, SnapshotMissing
from sandbox.lifecycle import Event
from sandbox.model import (
    Baseline,
    ClearanceState,
    Depth,
    Mismatch,
    Reading,
    ResetMethod,
    Role,
    SealedDir,
    Snapshot,
    SnapshotId,
    VolatileField,
)

SEALED = SealedDir(name="db/data", layers=("/s/2", "/s/1"), digest="d2", role=Role.SERVER, bytes=5, files=2)
GOLDEN = Snapshot(
    id=SnapshotId("golden"), environment="digest", digest="d1", dirs=(SEALED,), storage="overlay", runtime="namespaces"
)
CHILD = replace(GOLDEN, id=SnapshotId("child"), parent=GOLDEN.id, task="refund-17")
BASELINE = Baseline(
    key="k1",
    digest="b1",
    readings=(Reading(probe="rows", depth=Depth.DEEP, fields=MappingProxyType({"orders": "12/é"}), seconds=0.1),),
    instances=2,
    volatile=(VolatileField(pattern="rows/now*", reason="the time"),),
    drift=(Mismatch(probe="rows", field="salt", expected="1", actual=None, depth=Depth.DEEP),),
    recorded=datetime(2026, 1, 1, 12, tzinfo=UTC),
)


async def test_snapshots_come_back_as_they_were(ledger: Any) -> None:
    await ledger.save_snapshot(GOLDEN)
    await ledger.save_snapshot(CHILD)
    await ledger.save_snapshot(GOLDEN)

    assert await ledger.snapshot(CHILD.id) == CHILD
    assert await ledger.snapshots("digest") == [GOLDEN, CHILD]
    assert await ledger.snapshots("other") == []
    with pytest.raises(LedgerConflict, match="never changes"):
        await ledger.save_snapshot(replace(GOLDEN, digest="other"))


async def test_a_snapshot_in_use_is_not_forgotten(ledger: Any, chain: Any) -> None:
    await ledger.save_snapshot(GOLDEN)
    await ledger.save_snapshot(CHILD)

    with pytest.raises(LedgerConflict, match="namespace ns stands for"):
        await ledger.forget_snapshot(GOLDEN.id)
    await chain.retire()
    with pytest.raises(LedgerConflict, match="child grew from"):
        await ledger.forget_snapshot(GOLDEN.id)
    await ledger.forget_snapshot(CHILD.id)
    await ledger.forget_snapshot(GOLDEN.id)
    for ask in (ledger.snapshot, ledger.forget_snapshot):
        with pytest.raises(SnapshotMissing):
            await ask(GOLDEN.id)


async def test_baselines_come_back_as_they_were_newest_first(ledger: Any) -> None:
    newer = replace(BASELINE, key="k2", recorded=datetime(2026, 2, 1, tzinfo=UTC))
    again = replace(BASELINE, digest="b2")
    for baseline in (BASELINE, newer, again):
        await ledger.save_baseline(baseline, environment="digest", environment_name="shop")

    assert await ledger.baseline("k1") == again
    assert await ledger.baseline("nothing") is None
    assert await ledger.baselines("shop") == [newer, again]
    assert await ledger.baselines("repo") == []


async def test_a_baseline_without_a_date_gets_one(ledger: Any) -> None:
    await ledger.save_baseline(replace(BASELINE, recorded=None), environment="digest", environment_name="shop")

    assert (await ledger.baseline("k1")).recorded is not None


async def test_audits_newest_first(ledger: Any) -> None:
    for n in range(3):
        await ledger.save_audit({"n": n, "started": datetime(2026, 1, 1, tzinfo=UTC)})

    assert [report["n"] for report in await ledger.audits(limit=2)] == [2, 1]


async def test_every_transition_is_a_row(chain: Any) -> None:
    await chain.cycle("t1", replaced=True)

    assert [(row["source"], row["event"], row["target"]) for row in await chain.ledger.history(chain.id)][::-1] == [
        ("creating", "started", "verifying"),
        ("verifying", "passed", "ready"),
        ("ready", "lease", "leased"),
        ("leased", "release", "resetting"),
        ("resetting", "restored", "verifying"),
        ("verifying", "passed", "ready"),
    ]
    assert len(await chain.ledger.history(limit=2)) == 2


async def test_edges_that_carry_more_than_a_move_are_not_taken_without_it(chain: Any) -> None:
    await chain.ledger.transition(chain.id, Event.RECHECK, generation=1)

    for event in (Event.PASSED, Event.LEASE, Event.RELEASE, Event.RESTORED):
        with pytest.raises(LedgerConflict, match="taken by"):
            await chain.ledger.transition(chain.id, event, generation=1)
    with pytest.raises(LedgerConflict, match="at generation 1, not 2"):
        await chain.ledger.transition(chain.id, Event.FAILED, generation=2)
    with pytest.raises(RecordMissing, match="no namespace other"):
        await chain.ledger.transition("other", Event.FAILED, generation=1)
    assert (await chain.record()).state == "verifying"


async def test_a_generation_only_rises(chain: Any) -> None:
    await chain.lease("t")
    await chain.end("t")
    await chain.ledger.begin_reset(chain.id, ResetMethod.RESTORE, generation=1, target="s")
    arguments: Mapping[str, Any] = {"replaced": True, "snapshot": "s", "identity": True, "seconds": 0.1, "details": {}}

    with pytest.raises(LedgerConflict, match="must rise"):
        await chain.ledger.end_reset(chain.id, generation=1, new_generation=1, **arguments)


async def test_a_lease_is_renewed_while_it_is_open(chain: Any) -> None:
    lease = await chain.lease("t")
    later = await chain.ledger.renew(lease.id, 1_000)
    assert later > lease.expires
    assert (await chain.ledger.leases())[0].expires == later

    await chain.end("t")
    with pytest.raises(LedgerConflict, match="has ended"):
        await chain.ledger.renew(lease.id, 1)
    with pytest.raises(RecordMissing):
        await chain.ledger.renew("lease-other", 1)


async def test_counters(chain: Any) -> None:
    await chain.cycle("t1", replaced=True)
    await chain.cycle("t2", "quick", replaced=True)

    found = await chain.ledger.counters()

    assert found["states"] == {"quarantined": 1}
    assert found["leases"] == {"open": 0, "given": 2}
    assert found["checks"] == {"clean": 2, "mismatch": 1}
    assert found["clearances"] == {"cleared (quick)": 1, "quarantined": 1}
    assert (found["reset_ms"], found["check_ms"]) == ({"p50": 100.0, "p99": 100.0}, {"p50": 20.0, "p99": 20.0})


async def test_prune_takes_evidence_that_nobody_needs_for_a_decision(chain: Any, clock: Any) -> None:
    await chain.cycle("t1", "quick", replaced=True)
    await chain.recover()
    undecided = (await chain.ledger.quarantines())[0]["id"]
    for _ in range(5):
        await chain.ledger.transition(chain.id, Event.RECHECK, generation=chain.generation)
        await chain.check(purpose="recheck")
    clock.advance(1_000)

    assert await chain.ledger.prune(evidence_older_than_s=5_000, keep_checks=0) == 0
    assert await chain.ledger.prune(evidence_older_than_s=500, keep_checks=100) > 0  # transitions only
    assert (await chain.ledger.counters())["checks"] == {"clean": 7, "mismatch": 1}
    await chain.ledger.prune(evidence_older_than_s=500, keep_checks=0)
    assert (await chain.ledger.counters())["checks"] == {"clean": 2, "mismatch": 1}  # the opening one and the last
    assert len((await chain.ledger.quarantine(undecided))["mismatches"]) == 1

    await chain.ledger.set_aside(["t1"], ClearanceState.DISCARDED, by="ada", note="leak")
    await chain.ledger.prune(evidence_older_than_s=500, keep_checks=0)
    assert (await chain.ledger.quarantine(undecided))["mismatches"] == []
    assert (await chain.ledger.why("t1"))["end_check"]["verdict"] == "mismatch"


async def test_numbers_of_checks_are_not_given_twice_after_a_prune(chain: Any, clock: Any) -> None:
    await chain.ledger.transition(chain.id, Event.RECHECK, generation=1)
    last = (await chain.check(purpose="recheck")).check
    clock.advance(1_000)
    await chain.ledger.prune(evidence_older_than_s=0, keep_checks=0)
    await chain.ledger.transition(chain.id, Event.RECHECK, generation=1)

    assert (await chain.check(purpose="recheck")).check != last
