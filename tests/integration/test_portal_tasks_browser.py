"""The portal's tasks in a real Chromium: each check refuses the start, accepts the solution, and refuses the mistake and the
solutions of other tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from envs import browser, success
from envs.portal import scratch
from envs.portal.draft import ORIGIN
from envs.portal.driver import Driver
from envs.portal.families import FAMILIES
from envs.portal.generate import HERE
from envs.scratch import server
from sandbox.resources.browser import program
from sandbox.settings import load

pytestmark = [pytest.mark.postgres, pytest.mark.browser, pytest.mark.slow]
SITE = "portal.test"


def rows(name: str) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    return {row["id"]: row for row in found}


TASKS, SOLUTIONS = rows("tasks.jsonl"), rows("solutions.jsonl")


async def document(name: str) -> bytes:
    return (HERE / "documents" / name).read_bytes()


class World:
    """The portal over a database that is made anew for each try, and a browser with a fresh context for each."""

    def __init__(self, conninfo: str, chromium: Any) -> None:
        self._conninfo = conninfo
        self._chromium = chromium

    async def after(self, steps: Sequence[Any]) -> dict[str, Any]:
        """Do steps from the start; return what the browser keeps then. The database stays until the next try."""
        await asyncio.to_thread(self.renew)
        context = await self._chromium.new_context(base_url=ORIGIN)
        context.set_default_timeout(60_000)
        try:
            page = await context.new_page()
            await Driver(page, document).do(steps)
            await page.goto("/health")
            found: dict[str, Any] = json.loads(await page.evaluate(browser.READ))
            return found
        finally:
            await context.close()

    def renew(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute("drop database if exists live with (force)")
            connection.execute("create database live template portal owner portal_owner")

    def failing(self, task: str, state: dict[str, Any]) -> list[str]:
        """Return the claims of a task that do not hold now."""
        return list(self._failing(task, state))

    def holds(self, task: str, state: dict[str, Any]) -> bool:
        return next(iter(self._failing(task, state)), None) is None

    def _failing(self, task: str, state: dict[str, Any]) -> Iterable[str]:
        for part in success.parts(success.parse(TASKS[task]["success"])):
            if isinstance(part, success.BrowserCheck):
                yield from browser.failures(part, state)
            elif isinstance(part, success.SqlCheck):
                yield from self._sql(part)

    def _sql(self, check: success.SqlCheck) -> Iterable[str]:
        options = "-c search_path=pg_catalog -c timezone=UTC -c datestyle=ISO,YMD -c default_transaction_read_only=on"
        with psycopg.connect(self._conninfo, dbname="live", options=options) as connection:
            for query in check.normalized():
                if connection.execute(query.query.encode()).fetchall() != [(True,)]:
                    yield query.name


@asynccontextmanager
async def led(path: Path) -> AsyncIterator[int]:
    """Lead a loopback port to the site's socket."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, out = await asyncio.open_unix_connection(str(path))
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, out))
            group.create_task(pump(back, writer))

    listening = await asyncio.start_server(lead, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    from playwright.async_api import async_playwright

    with server() as conninfo:
        live = psycopg.conninfo.make_conninfo(scratch.seed(conninfo), dbname="live")
        with scratch.web(live, tmp_path) as path:
            async with led(path) as port, async_playwright() as playwright:
                flags = [
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-quic",
                    f"--host-resolver-rules=MAP {SITE} 127.0.0.1:{port},MAP * ~NOTFOUND",
                    f"--unsafely-treat-insecure-origin-as-secure={ORIGIN}",
                ]
                chromium = await playwright.chromium.launch(executable_path=str(program.chromium(load()).host), args=flags)
                try:
                    yield World(conninfo, chromium)
                finally:
                    await chromium.close()


async def faults_of(world: World, tasks: Sequence[str]) -> list[str]:
    """Say what is wrong with the checks of these tasks."""
    empty: dict[str, Any] = {}
    faults: list[str] = []
    await asyncio.to_thread(world.renew)
    for task in tasks:
        if await asyncio.to_thread(world.holds, task, empty):
            faults.append(f"{task}: holds before anything was done")
    for task in tasks:
        state = await world.after(SOLUTIONS[task]["solution"])
        faults += [f"{task}: after the solution: {name}" for name in await asyncio.to_thread(world.failing, task, state)]
        for other in tasks:
            if other != task and await asyncio.to_thread(world.holds, other, state):
                faults.append(f"{other}: holds after the solution of {task}")
        if await asyncio.to_thread(world.holds, task, await world.after(SOLUTIONS[task]["wrong"])):
            faults.append(f"{task}: holds after the mistake")
    return faults


@pytest.mark.timeout(1500)
async def test_the_checks_of_one_task_of_each_family(world: World) -> None:
    # Easy, medium and hard ones by turns.
    chosen = [f"{family}-{(1, 4, 7)[number % 3]:02d}" for number, family in enumerate(FAMILIES)]
    assert await faults_of(world, chosen) == []


@pytest.mark.acceptance
@pytest.mark.timeout(7200)
async def test_the_checks_of_every_task(world: World) -> None:
    assert await faults_of(world, list(TASKS)) == []
