"""The portal as an environment: its tasks are done through a session's page and scored, and everything that was done is gone with
the reset."""

from __future__ import annotations

import json
from typing import Any

import pytest

from envs.portal import environment
from envs.portal.driver import Driver
from envs.portal.generate import HERE
from sandbox.model import ClearanceState
from sandbox.settings import Settings
from sandbox.wiring import Pool

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1500)]
# One that only the database knows of, one that the browser's profile keeps, one with the worker's cache, one with a file.
TASKS = ("order-01", "draft-01", "offline-01", "upload-04")


def solutions() -> dict[str, dict[str, Any]]:
    lines = (HERE / "solutions.jsonl").read_text("utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, (line for line in lines if not line.startswith("#")))}


async def test_tasks_are_done_in_the_sessions_browser_and_leave_nothing(settings: Settings, nothing_left: None) -> None:
    known = solutions()
    trajectories = []
    async with Pool.open([environment()], size=1, settings=settings) as pool:
        for task in TASKS:
            async with pool.session("portal", task=task, wait=300) as session:
                page = await session.page()
                assert await page.context.cookies() == [], "the one before left its cookies"
                before = await session.read_file("/workspace/documents/notes/scan-01.txt")

                async def document(name: str, session: Any = session) -> bytes:
                    return bytes(await session.read_file(f"/workspace/documents/{name}"))

                await Driver(page, document).do(known[task]["solution"])
                score = await session.score()
                assert (score.reward, score.success) == (1.0, True), (task, score)
                assert before.startswith(b"DELIVERY NOTE")
            trajectories.append(session.trajectory_id)
        async with pool.session("portal", task=TASKS[0], wait=300) as session:
            page = await session.page()
            await page.goto("http://portal.test/")
            assert page.url.startswith("http://portal.test/sign-in")
            await Driver(page, document).do(known[TASKS[0]]["wrong"])
            assert (await session.score()).reward == 0.0
        trajectories.append(session.trajectory_id)
        cleared = await pool.cleared(trajectories, timeout=600)
        assert {str(c.state) for c in cleared.values()} == {str(ClearanceState.CLEARED)}


async def test_the_agent_reaches_neither_the_database_nor_the_uploads(settings: Settings, nothing_left: None) -> None:
    async with Pool.open([environment()], size=1, settings=settings) as pool, pool.session("portal", wait=300) as session:
        tables = await session.run(["psql", "-Atc", "select count(*) from portal.people"])
        assert "permission denied for schema portal" in tables.stderr.decode()
        assert (await session.run(["psql", "-U", "portal", "-Atc", "select 1"])).exit_code != 0
        assert (await session.run(["ls", "/srv/portal"])).exit_code != 0
        assert (await session.run(["ls", "/app"])).exit_code != 0
        listed = (await session.run(["find", "/workspace", "-name", "*.jsonl"])).text
        assert listed == ""
