"""The file: one writer, group commit, what survives, what is refused."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import ledger as ledgers
from sandbox.errors import AutoclaveError, LedgerConflict, NotCleared, PoolBroken
from sandbox.ledger import BOUNDARIES, Operation, database
from sandbox.lifecycle import Event
from sandbox.model import ClearanceState, Depth, NamespaceId

# Untyped on purpose: these tests pass plain text where ids are meant.
open_ledger: Any = ledgers.open_ledger
ROOT = Path(__file__).resolve().parents[3]

CHILD = """
import asyncio, os, resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError
from sandbox.ledger import open_ledger
from sandbox.lifecycle import Event
from sandbox.model import *

CLEAN = Verdict(status=VerdictStatus.CLEAN, depth=Depth.QUICK)

async def create(ledger, name):
    await ledger.create_namespace(NamespaceRecord(
        id=name, environment="digest", environment_name="shop", snapshot="s", state="creating", generation=1, sequence=0,
        lineage=name, runtime="memory", created=datetime.now(UTC)))
    await ledger.transition(name, Event.STARTED, generation=1, identity=True)
    await ledger.record_check(name, CLEAN, generation=1, window=WindowPolicy.STRICT, purpose="opening")

async def cycle(ledger, name, n):
    trajectory = f"{name}-{n}"
    await ledger.lease(name, generation=n, lease=f"lease-{trajectory}", trajectory=trajectory, holder="h", task=None, ttl_s=60)
    print("leased", trajectory, flush=True)
    await ledger.end_lease(f"lease-{trajectory}", outcome="released")
    print("ended", trajectory, flush=True)
    await ledger.begin_reset(name, ResetMethod.RESTORE, generation=n, target="s")
    await ledger.end_reset(
        name, generation=n, new_generation=n + 1, replaced=True, snapshot="s", identity=True, seconds=0.1, details={})
    await ledger.record_check(name, CLEAN, generation=n + 1, window=WindowPolicy.STRICT, purpose="reset")
    print("cleared", trajectory, flush=True)
    await ledger.ship(f"batch-{trajectory}", [trajectory], policy_version="1", required={"digest": Depth.QUICK})
    print("shipped", trajectory, flush=True)
"""


def child(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    source = CHILD + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


async def finished(process: subprocess.Popen[str]) -> tuple[str, str]:
    return await asyncio.to_thread(process.communicate, timeout=60)


def acknowledged(output: str) -> list[tuple[str, str]]:
    """Whole lines only: the last one may have been cut by the kill."""
    return [(line.split()[0], line.split()[1]) for line in output.splitlines(keepends=True) if line.endswith("\n")]


async def lost(ledger: Any, told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what was acknowledged and is not there."""
    there = set()
    for name in {trajectory for _, trajectory in told}:
        why = await ledger.why(name)
        there.add(("leased", name))
        if why["lease"]["ended"] is not None:
            there.add(("ended", name))
        if why["clearance"]["state"] == "cleared":
            there.add(("cleared", name))
        if [b["batch"] for b in why["batches"]] == [f"batch-{name}"]:
            there.add(("shipped", name))
    return [line for line in told if line not in there]


async def test_kill_9_while_it_commits_loses_nothing_that_was_acknowledged(file: Path, clock: Any) -> None:
    process = child(
        """
        async def work(ledger, name):
            await create(ledger, name)
            for n in range(1, 1000):
                await cycle(ledger, name, n)

        async def main():
            async with open_ledger(Path(sys.argv[1]), clock=SystemClock()) as ledger, asyncio.TaskGroup() as group:
                for i in range(8):
                    group.create_task(work(ledger, f"ns{i}"))

        asyncio.run(main())
        """,
        file,
    )
    assert process.stdout is not None
    lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(60)]
    process.kill()
    rest, errors = await finished(process)
    told = acknowledged("".join(lines) + rest)

    assert (process.returncode, errors) == (-9, "")
    assert len(told) >= 60
    async with open_ledger(file, clock=clock) as ledger:
        assert await lost(ledger, told) == []
        opened = [lease.namespace for lease in await ledger.leases()]
        assert len(opened) == len(set(opened))


@pytest.mark.parametrize(
    "boundary", [f"{op}:{side}" for op in ("lease", "end_reset", "record_check", "ship") for side in ("before", "after")]
)
async def test_a_kill_at_a_boundary_leaves_the_unit_whole_or_absent(file: Path, clock: Any, boundary: str) -> None:
    """Killed right before the commit nothing of the unit is there; right after it everything is."""
    process = child(
        """
        seen = []

        def boundary(name):
            seen.append(name)
            if name == sys.argv[2] and seen.count("lease:after") + (name == "lease:before") >= 1:
                os.kill(os.getpid(), signal.SIGKILL)

        async def main():
            async with open_ledger(Path(sys.argv[1]), clock=SystemClock(), boundary=boundary) as ledger:
                await create(ledger, "ns")
                await cycle(ledger, "ns", 1)

        asyncio.run(main())
        """,
        file,
        boundary,
    )
    output, errors = await finished(process)
    operation, side = boundary.split(":")

    assert (process.returncode, errors) == (-9, "")
    async with open_ledger(file, clock=clock) as ledger:
        assert await lost(ledger, acknowledged(output)) == []
        record = await ledger.namespace(NamespaceId("ns"))
        story = await ledger.why("ns-1") if record.sequence else None
        written = {
            "lease": record.sequence == 1 and record.state == "leased",
            "end_reset": record.generation == 2,
            "record_check": story is not None and story["clearance"]["state"] == "cleared" and record.state == "ready",
            "ship": story is not None and story["batches"] != [],
        }
        assert written[operation] is (side == "after")


def test_the_boundaries_are_every_operation_twice() -> None:
    assert set(BOUNDARIES) == {f"{op.value}:{side}" for op in Operation for side in ("before", "after")}
    assert len(BOUNDARIES) >= 40


async def test_every_operation_passes_its_boundary(file: Path, clock: Any, chains: Any) -> None:
    from sandbox.model import Baseline, ResetMethod, Snapshot, SnapshotId, StoredScore

    seen: list[str] = []
    async with open_ledger(file, clock=clock, boundary=seen.append) as ledger:
        chain, other = await chains(ledger, "a").open(), await chains(ledger, "b").open()
        await chain.cycle("t1", "quick", replaced=True)
        await ledger.set_aside(["t1"], ClearanceState.RELEASED, by="ada", note="fine")
        await chain.recover()
        lease = await chain.lease("t2")
        await ledger.renew(lease.id, 60)
        await other.fork("f", parent="t2")
        await ledger.abandon(other.id, note="lost")
        host = replace(await ledger.namespace(chain.id), id="host", state="creating", generation=1, sequence=0, shares=True)
        await ledger.create_namespace(host)
        await ledger.transition(host.id, Event.STARTED, generation=1)
        await ledger.record_instance_check(host.id, chain.verdict("clean", Depth.DEEP), generation=1, purpose="opening")
        await ledger.abandon_instance(host.id, note="lost", depth=Depth.QUICK)
        await ledger.ship("b1", ["t1"], policy_version="1", required={"digest": Depth.QUICK})
        await ledger.record_update("u1", ["b1"], None)
        await ledger.record_checkpoint("c1", ["u1"])
        await ledger.join_group("g", ["t1"])
        await ledger.save_snapshot(Snapshot(id=SnapshotId("s"), environment="e", digest="d", dirs=()))
        await ledger.forget_snapshot(SnapshotId("s"))
        await ledger.save_baseline(
            Baseline(key="k", digest="d", readings=(), instances=2), environment="e", environment_name="shop"
        )
        await ledger.save_score(
            StoredScore(baseline="k", environment="shop", method=ResetMethod.RESTORE, catalogue="c", body={"planted": 1})
        )
        await ledger.resume("shop", by="ada", note="mended")
        await ledger.save_audit({"verdict": "clean"})
        await ledger.prune(evidence_older_than_s=0, keep_checks=1)

    assert set(seen) == set(BOUNDARIES)
    assert seen[:2] == ["create_namespace:before", "create_namespace:after"]


async def test_one_failing_unit_undoes_nothing_of_its_neighbours(ledger: Any, chains: Any) -> None:
    """All in one turn of the loop, so in one transaction; the lease that fails does so after its first write."""
    a, b = await chains(ledger, "a").open(), await chains(ledger, "b").open()

    async with asyncio.TaskGroup() as group:
        good = group.create_task(a.lease("t1"))
        bad = group.create_task(failing(b.lease("t1")))  # the trajectory has a lease by then
    assert good.result().sequence == 1
    assert "t1" in str(bad.result())
    assert ((await a.record()).state, (await b.record()).state, (await b.record()).sequence) == ("leased", "ready", 0)
    assert [row["event"] for row in await ledger.history(b.id)] == ["passed", "started"]
    assert (await b.lease("t2")).sequence == 1


async def failing(work: Any) -> LedgerConflict:
    with pytest.raises(LedgerConflict) as caught:
        await work
    return caught.value


async def test_of_many_that_want_one_namespace_one_gets_it(chain: Any) -> None:
    async def attempt(n: int) -> bool:
        try:
            await chain.lease(f"t{n}")
        except LedgerConflict:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(n)) for n in range(50)]

    assert sum(task.result() for task in tasks) == 1
    assert (await chain.record()).sequence == 1


async def test_listeners_hear_of_moved_clearances_after_the_commit_and_a_broken_one_harms_nobody(
    chain: Any, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str, ...]] = []

    def broken(moved: Any) -> None:
        raise RuntimeError("listener")

    chain.ledger.on_change(broken)
    stop = chain.ledger.on_change(heard.append)
    await chain.cycle("t1", replaced=True)
    await chain.cycle("t2", "deep", Depth.DEEP, replaced=True)
    stop()
    await chain.ledger.set_aside(["t1"], ClearanceState.DISCARDED, by="ada", note="leak")

    assert heard == [("t1",), ("t1", "t2")]
    assert "a listener of clearances failed" in caplog.text


async def test_a_cancelled_caller_leaves_only_when_its_unit_is_settled(chain: Any) -> None:
    """Whether it was written or left out, the ledger and the caller agree when the cancellation arrives."""
    task = asyncio.create_task(chain.lease("t1"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    before = (await chain.record()).sequence
    await chain.ledger.join_group("g", ["x"])  # any later unit

    assert (await chain.record()).sequence == before
    assert len(await chain.ledger.leases()) == before


async def test_a_second_process_is_told_who_holds_the_home(file: Path, clock: Any) -> None:
    holder = child(
        """
        async def main():
            async with open_ledger(Path(sys.argv[1]), clock=SystemClock()):
                print("open", flush=True)
                await asyncio.to_thread(sys.stdin.readline)

        asyncio.run(main())
        """,
        file,
    )
    try:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "open\n"
        with pytest.raises(PoolBroken, match=rf"{file.parent} is in use by process {holder.pid}"):
            async with open_ledger(file, clock=clock):
                pass
        async with open_ledger(file, clock=clock, read_only=True) as reader:
            assert await reader.namespaces() == []
    finally:
        holder.kill()
        await finished(holder)
    async with open_ledger(file, clock=clock):  # a dead holder holds nothing
        pass


async def test_of_two_processes_that_ship_the_same_trajectory_one_wins(file: Path, clock: Any, chains: Any) -> None:
    async with open_ledger(file, clock=clock) as ledger:
        await (await chains(ledger).open()).cycle("t", replaced=True)
    trainer = """
        async def main():
            async with open_ledger(Path(sys.argv[1]), clock=SystemClock(), lock_wait_s=30) as ledger:
                await ledger.ship(sys.argv[2], ["t"], policy_version="1", required={"digest": Depth.QUICK})

        try:
            asyncio.run(main())
            print("won")
        except AutoclaveError as error:
            print(type(error).__name__, error)
        """
    trainers = [child(trainer, file, name) for name in ("b1", "b2")]
    said = sorted([(await finished(process))[0].split()[0] for process in trainers])

    assert said == ["NotCleared", "won"]


async def test_a_read_only_ledger_reads_and_refuses_to_write(file: Path, clock: Any, chains: Any) -> None:
    with pytest.raises(AutoclaveError, match="no ledger"):
        async with open_ledger(file, clock=clock, read_only=True):
            pass
    async with open_ledger(file, clock=clock) as ledger:
        await (await chains(ledger).open()).cycle("t", replaced=True)
        async with open_ledger(file, clock=clock, read_only=True) as reader:
            assert (await reader.why("t"))["clearance"]["state"] == "cleared"
            with pytest.raises(AutoclaveError, match="read-only"):
                await reader.join_group("g", ["t"])


async def test_the_file_is_private(file: Path, ledger: Any) -> None:
    assert {stat.S_IMODE(os.stat(p).st_mode) for p in file.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(os.stat(file.parent).st_mode) == 0o700


async def test_a_newer_schema_is_refused_and_left_alone(file: Path, clock: Any) -> None:
    async with open_ledger(file, clock=clock):
        pass
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()

    for read_only in (False, True):
        with pytest.raises(AutoclaveError, match="newer version \\(schema 99"):
            async with open_ledger(file, clock=clock, read_only=read_only):
                pass


async def test_migrations_are_numbered_without_a_gap_and_leave_their_version(file: Path, ledger: Any) -> None:
    numbers = sorted(database.migrations())
    raw = sqlite3.connect(file)
    version = raw.execute("PRAGMA user_version").fetchone()[0]
    loose = [name for name, sql in raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'") if "STRICT" not in sql]
    raw.close()

    assert numbers == list(range(1, len(numbers) + 1))
    assert version == numbers[-1]
    assert loose == []


async def test_a_file_that_is_no_ledger_is_named(file: Path, clock: Any) -> None:
    file.parent.mkdir()
    file.write_bytes(b"not a database, but long enough to be read as one" * 100)

    with pytest.raises(AutoclaveError, match=str(file)):
        async with open_ledger(file, clock=clock):
            pass


async def test_full_durability_is_set_and_another_word_is_refused(file: Path, clock: Any) -> None:
    async with open_ledger(file, clock=clock, durability="full"):
        pass
    raw = database.open_for_writing(file, "full")
    assert raw.execute("PRAGMA synchronous").fetchone()[0] == 2
    raw.close()
    with pytest.raises(AutoclaveError, match="use one of: normal, full"):
        async with open_ledger(file, clock=clock, durability="some"):
            pass


async def test_a_disk_that_takes_no_more_is_said_so_and_the_ledger_goes_on_when_it_does(file: Path, clock: Any) -> None:
    """A file size limit stands in for a full disk: the write itself fails, in the middle of the journal."""
    process = child(
        """
        async def main():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            async with open_ledger(Path(sys.argv[1]), clock=SystemClock()) as ledger:
                await create(ledger, "ns")
                n = 1
                while n < 20:
                    await cycle(ledger, "ns", n)
                    n += 1
                size = os.stat(sys.argv[1] + "-wal").st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, resource.RLIM_INFINITY))
                try:
                    while n < 1000:
                        await cycle(ledger, "ns", n)
                        n += 1
                except AutoclaveError as error:
                    print("refused", str(error).replace(" ", "_"), flush=True)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                await create(ledger, "ns2")
                await cycle(ledger, "ns2", 1)

        asyncio.run(main())
        """,
        file,
    )
    output, errors = await finished(process)
    told = acknowledged(output)
    refused = [line for line in output.splitlines() if line.startswith("refused")]

    assert (process.returncode, len(refused)) == (0, 1), errors
    assert "nothing_of_this_call_was_written" in refused[0]
    assert ("shipped", "ns2-1") in told
    async with open_ledger(file, clock=clock) as ledger:
        assert await lost(ledger, [t for t in told if t[0] != "refused"]) == []


async def test_what_no_encoding_can_say_is_recorded_all_the_same(chain: Any) -> None:
    """A file name that is no UTF-8 comes as lone surrogates."""
    from sandbox.model import Mismatch, Verdict, VerdictStatus, WindowPolicy

    mismatch = Mismatch(probe="files", field=os.fsdecode(b"/tmp/\xff"), expected=None, actual="é")
    verdict = Verdict(status=VerdictStatus.MISMATCH, depth=Depth.QUICK, mismatches=(mismatch,))
    await chain.ledger.transition(chain.id, Event.RECHECK, generation=1)
    outcome = await chain.ledger.record_check(chain.id, verdict, generation=1, window=WindowPolicy.STRICT, purpose="recheck")

    found = (await chain.ledger.quarantine(outcome.quarantine))["mismatches"][0]
    assert (found["field"], found["actual"]) == ("/tmp/\\xff", "é")


async def test_a_closed_ledger_says_so(file: Path, clock: Any) -> None:
    async with open_ledger(file, clock=clock) as ledger:
        await ledger.close()
        await ledger.close()
        with pytest.raises(AutoclaveError, match="closed"):
            await ledger.namespaces()
        with pytest.raises(AutoclaveError, match="closed"):
            await ledger.join_group("g", [])


async def test_shipping_refused_writes_nothing(chain: Any) -> None:
    await chain.cycle("t", replaced=True)
    with pytest.raises(NotCleared):
        await chain.ledger.ship("b", ["t", "nobody"], policy_version="1", required={"digest": Depth.QUICK})

    assert (await chain.ledger.counters())["batches"] == 0


async def test_no_step_of_a_cycle_reads_a_whole_table(file: Path, clock: Any, chains: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one namespace does must not cost more when there are many: every statement finds its rows by an index."""
    said: list[str] = []
    really = database.open_for_writing

    def traced(path: Path, durability: str) -> sqlite3.Connection:
        connection = really(path, durability)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(database, "open_for_writing", traced)
    async with open_ledger(file, clock=clock) as ledger:
        chain, other = await chains(ledger, "a").open(), await chains(ledger, "b").open()
        await chain.cycle("t1", replaced=True)
        await ledger.ship("b1", ["t1"], policy_version="1", required={"digest": Depth.QUICK})
        await chain.lease("t2")
        await other.fork("f", parent="t2")
        await chain.end("t2")
        await chain.reset(replaced=False)
        await chain.check("deep", Depth.DEEP)
        await ledger.abandon(other.id, note="lost", depth=Depth.QUICK)
        await ledger.set_aside(["t1"], ClearanceState.RELEASED, by="ada", note="fine")
    words = {line for line in said if line.split()[0] in ("SELECT", "UPDATE", "INSERT", "DELETE", "WITH")}
    assert len(words) > 40
    raw = sqlite3.connect(file)
    plans = {line: [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {line}")] for line in words}
    raw.close()

    big = (
        "leases",
        "checks",
        "transitions",
        "resets",
        "quarantine_members",
        "batch_members",
        "group_members",
        "namespaces",
        "members",
    )
    scans = {line: step for line, plan in plans.items() for step in plan if step.startswith("SCAN ") and step.split()[1] in big}
    assert scans == {}
