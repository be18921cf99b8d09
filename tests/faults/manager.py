"""A manager to be killed: opens a pool over a real runtime and does everything that writes to the ledger, in a fixed order.

`python manager.py SETTINGS.json ENVIRONMENT OPERATION:SIDE NTH JOURNAL` sends itself SIGKILL at the NTH time that the ledger
passes that boundary. What the ledger has acknowledged goes to the journal, a line each, flushed before the next step: the test
compares.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envs.environment import load
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError
from sandbox.ledger import open_ledger
from sandbox.model import Depth, ResetMethod, StoredScore
from sandbox.pool import Pool, PoolLimits
from sandbox.runtimes.namespaces import create
from sandbox.settings import Settings, Users
from sandbox.storage import open_storage


def settings_from(text: str) -> Settings:
    held = json.loads(text)
    home, store, scratch, run = (Path(held[name]) for name in ("home", "store", "scratch", "run"))
    return Settings(home=home, store=store, scratch=scratch, run=run, users=Users(**held["users"]))


def killer(boundary: str, nth: int) -> Callable[[str], None]:
    seen = 0

    def passed(name: str) -> None:
        nonlocal seen
        if name == boundary:
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    return passed


class Journal:
    """What was acknowledged."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def write(self, what: str, **facts: Any) -> None:
        self._file.write(json.dumps({"what": what, **facts}) + "\n")
        self._file.flush()


async def work(pool: Pool, journal: Journal, ledger: Any, *, prunes: bool) -> None:
    """Sessions that behave and sessions that leak, forks, shipping, a person's decisions, an audit."""
    done: list[str] = []

    async def one(number: int, *, leak: bool) -> None:
        name = f"t-{os.getpid()}-{number}"
        async with pool.session("small", wait=60, ttl=60, trajectory=name, group=f"g-{os.getpid()}") as session:
            lease = session.lease
            journal.write("leased", trajectory=name, namespace=lease.namespace, sequence=lease.sequence)
            await session.heartbeat(90)
            await session.write_file("/workspace/box/leak" if leak else "/tmp/note", b"x")
        journal.write("released", trajectory=name)
        done.append(name)

    for number in range(3):
        async with asyncio.TaskGroup() as group:
            group.create_task(one(2 * number, leak=False))
            group.create_task(one(2 * number + 1, leak=number == 1))
    found = await pool.cleared(done, timeout=60)
    cleared = [t for t, c in found.items() if c.state == "cleared"]
    quarantined = [t for t, c in found.items() if c.state == "quarantined"]
    journal.write("judged", cleared=cleared, quarantined=quarantined)

    if len(cleared) >= 2:
        batch, update = f"b-{os.getpid()}", f"u-{os.getpid()}"
        await pool.ship(batch, cleared[:2], policy_version="1")
        journal.write("shipped", batch=batch, trajectories=cleared[:2])
        await pool.record_update(update, batches=[batch])
        await pool.record_checkpoint(f"c-{os.getpid()}", updates=[update])
        journal.write("updated", update=update)
    if quarantined:
        await pool.release(quarantined[:1], by="a person", note="looked at it")
        journal.write("set aside", trajectory=quarantined[0])

    async with pool.session("small", wait=60, ttl=60) as parent:
        snapshot = await parent.snapshot()
        async with await parent.fork(snapshot, wait=30) as child:
            await child.run(["true"])
        await pool.cleared([child.trajectory_id], timeout=60)
    await pool.cleared([parent.trajectory_id], timeout=60)
    await pool.audit_namespaces(Depth.DEEP)
    await ledger.save_score(StoredScore(baseline="k", environment="box", method=ResetMethod.HOOK, catalogue="c", body={}))
    await ledger.resume("small", by="a person", note="looked at it")
    await ledger.save_audit({"started": "now", "verdict": "clean"})
    await ledger.forget_snapshot(snapshot.id)
    if prunes:
        await ledger.prune(evidence_older_than_s=0, keep_checks=1)
    journal.write("done")


async def work_shared(pool: Pool, journal: Journal, ledger: Any) -> None:
    """The same where namespaces share an instance: sessions side by side, a leak into what is shared, barriers."""
    done: list[str] = []

    async def one(number: int) -> None:
        name = f"t-{os.getpid()}-{number}"
        async with pool.session("small", wait=60, ttl=60, trajectory=name) as session:
            lease = session.lease
            journal.write("leased", trajectory=name, namespace=lease.namespace, sequence=lease.sequence)
            await session.write_file("/workspace/box/note", b"x")
        journal.write("released", trajectory=name)
        done.append(name)

    for number in range(3):
        async with asyncio.TaskGroup() as group:
            group.create_task(one(2 * number))
            group.create_task(one(2 * number + 1))
        await pool.cleared(done, timeout=60)
        if number == 1:
            for host in pool.environment("small").hosts:
                tree = host.live().subject().sharing.tree
                assert tree is not None
                (tree.real("") / "nobody's").mkdir()
        await pool.audit_namespaces(Depth.DEEP)
    found = await pool.cleared(done, timeout=60)
    cleared = [t for t, c in found.items() if c.state == "cleared"]
    quarantined = [t for t, c in found.items() if c.state == "quarantined"]
    journal.write("judged", cleared=cleared, quarantined=quarantined)
    journal.write("done")


async def main(settings: Settings, environment: Path, boundary: str, nth: int, journal: Journal) -> None:
    small = load(environment)
    shares = small.spec.isolation.shares
    small = small if shares else small.with_reset(ResetMethod.HOOK, restore_every=3)
    store = await open_storage(settings)
    runtime = create(settings, store)
    limits = PoolLimits(drain_grace_s=5, upkeep_s=0.2)
    async with open_ledger(settings.ledger, clock=SystemClock(), boundary=killer(boundary, nth)) as ledger:
        try:
            async with Pool([small], ledger=ledger, runtime=runtime, clock=SystemClock(), size=2, limits=limits) as pool:
                try:
                    # Only a manager that is killed there prunes: a test looks at all that the restarted one wrote.
                    prunes = boundary.startswith("prune")
                    await (work_shared(pool, journal, ledger) if shares else work(pool, journal, ledger, prunes=prunes))
                except AutoclaveError as error:
                    journal.write("failed", error=str(error))
                    raise
        finally:
            await runtime.close()
            await store.close()


if __name__ == "__main__":
    asyncio.run(
        main(
            settings_from(Path(sys.argv[1]).read_text()),
            Path(sys.argv[2]),
            sys.argv[3],
            int(sys.argv[4]),
            Journal(Path(sys.argv[5])),
        )
    )
