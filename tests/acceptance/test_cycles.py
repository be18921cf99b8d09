"""Clean cycles over the shipped environments: session, some work, release, reset, quick check, a deep one every 20.

AUTOCLAVE_CYCLES sets how many of each environment (1,000; of the portal, with its browser, half as many). No check may find
anything, and nothing may be left afterwards.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox import Pool
from sandbox.model import ClearanceState, TrajectoryId
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(7200)]

CYCLES = int(os.environ.get("AUTOCLAVE_CYCLES", "1000"))
SIZE = 4
# What an agent does in its turns: reads, writes, mistakes, files, processes that it forgets.
WORK = {
    "shop": (
        ["psql", "-Atc", "select count(*) from shop.orders where status = 'pending'"],
        ["psql", "-Atc", "update shop.tickets set priority = 1 where id % 7 = 0"],
        ["psql", "-Atc", "insert into work.answers values ('q', 'a')"],
        ["psql", "-Atc", "select no_such_function()"],
        ["psql", "-Atc", "create table work.mine as select * from shop.products"],
        ["psql", "-Atc", "alter role agent set work_mem = '8MB'"],
        ["psql", "-Atc", "begin; delete from shop.cart_items; rollback"],
        ["sh", "-c", "echo '\\set AUTOCOMMIT off' > ~/.psqlrc; (sleep 300 | setsid psql -X >/dev/null 2>&1 &)"],
    ),
    "repo": (
        ["python3", "-m", "unittest", "tests.test_money"],
        ["sh", "-c", "echo '# note' >> ledgerline/money.py && git diff --stat"],
        ["sh", "-c", "git -c user.name=a -c user.email=a@b commit -qam work; git checkout -qb mine"],
        ["sh", "-c", "rm -rf tests; mkdir -p build; echo x > build/out.log"],
        ["sh", "-c", "git config alias.st status; git stash list; false"],
        ["sh", "-c", "mkdir -p ~/.cache/x; echo y > ~/.cache/x/z; (setsid sleep 300 >/dev/null 2>&1 &)"],
        ["sh", "-c", "seq 200 | xargs -I{} touch made-{}"],
    ),
    "portal": (
        ["sh", "-c", "cat /workspace/documents/notes/*.txt > ~/all.txt; rm -r /workspace/documents/invoices"],
        ["psql", "-Atc", "alter role agent set work_mem = '8MB'"],
        ["psql", "-Atc", "select * from portal.people"],
        ["sh", "-c", "(sleep 300 | setsid psql -X >/dev/null 2>&1 &)"],
    ),
}
# What is done in the session's page as well: path, and a script there.
PAGES = {
    "portal": (
        ("/sign-in", "localStorage.setItem('portal.display', '{}')"),
        ("/sign-in", "document.cookie = 'left=1; max-age=9999'"),
        ("/offline", "navigator.serviceWorker.register('/sw.js').then(() => navigator.serviceWorker.ready).then(() => 1)"),
        ("/static/app.js", "caches.open('left').then((cache) => cache.put('/x', new Response('y')))"),
        ("/sign-in", "new Promise((done) => { indexedDB.open('left', 1).onsuccess = () => done(1) })"),
        ("/sign-in", "window.open('/offline') && 1"),
    ),
}


async def cycles(pool: Any, name: str, count: int) -> dict[TrajectoryId, str]:
    """Work through so many sessions, as many at once as there are namespaces; return how each one's trajectory ended."""
    left, done = iter(range(count)), list[TrajectoryId]()

    async def worker(seed: int) -> None:
        choice = random.Random(seed)
        for _ in left:
            async with pool.session(name, wait=300) as session:
                for argv in choice.sample(WORK[name], k=choice.randint(1, 3)):
                    await session.run(argv, limit_s=60)
                if name in PAGES:
                    page = await session.page()
                    for path, script in choice.sample(PAGES[name], k=2):
                        await page.goto(f"http://portal.test{path}")
                        await page.evaluate(script)
            done.append(session.trajectory_id)

    async with asyncio.TaskGroup() as group:
        for seed in range(SIZE):
            group.create_task(worker(seed))
    found = await pool.cleared(done, timeout=600)
    assert len(found) == count
    return {trajectory: str(clearance.state) for trajectory, clearance in found.items()}


async def run(settings: Settings, name: str, count: int) -> None:
    async with Pool.open([name], size=SIZE, settings=settings) as pool:
        ended = await cycles(pool, name, count)
        # A clean world gives clean verdicts: any quarantine here is a false alarm, and its fields are what to look at.
        alarms = [t for t, state in ended.items() if state != ClearanceState.CLEARED]
        assert [(await pool.why(t))["window"] for t in alarms] == []
        assert (await pool.status())["environments"][name]["states"].get("quarantined", 0) == 0


@pytest.mark.postgres
async def test_a_few_cycles_of_the_shop(settings: Settings, nothing_left: None) -> None:
    await run(settings, "shop", 10)


async def test_a_few_cycles_of_the_repository(settings: Settings, nothing_left: None) -> None:
    await run(settings, "repo", 24)  # past the deep check that is due after 20


@pytest.mark.postgres
@pytest.mark.browser
async def test_a_few_cycles_of_the_portal(settings: Settings, nothing_left: None) -> None:
    await run(settings, "portal", 6)


@pytest.mark.docker
@pytest.mark.parametrize("mode", ["in-place", "recreate"])
async def test_a_few_cycles_of_the_repository_in_containers(settings: Settings, nothing_left: None, mode: str) -> None:
    await run(replace(settings, runtime="docker", docker_mode=mode), "repo", 6)


@pytest.mark.acceptance
@pytest.mark.parametrize("runtime", ["namespaces", pytest.param("docker", marks=pytest.mark.docker)])
@pytest.mark.parametrize("name", ["shop", "repo", pytest.param("portal", marks=pytest.mark.browser)])
async def test_many_clean_cycles(
    name: str, runtime: str, settings: Settings, nothing_left: None, tally: Callable[[str, int], None]
) -> None:
    count = CYCLES // 2 if name == "portal" or runtime == "docker" else CYCLES
    await run(replace(settings, runtime=runtime), name, count)
    tally("clean cycles", count)
    tally("false alarms", 0)
