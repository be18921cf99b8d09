"""The journal: every finished trajectory survives a crash, a torn last line is found, and DuckDB can read it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rollout.errors import RecordTorn
from rollout.export import query, to_parquet
from rollout.journal import Journal, Outcome, read
from rollout.record import Action, EnvTimings, Trajectory, Turn
from rollout.terms import Failure, State, Termination
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid, LimitReached

RECORD = Trajectory(
    id="t-1",
    run="r",
    group="g",
    member=1,
    attempt=0,
    environment="shop",
    task="refund-1",
    family="refund",
    tokens=(5, 6, 7),
    mask=(0, 1, 1),
    logprobs=(0.0, -0.25, -1.5),
    versions=(-1, 3, 4),
    turns=(Turn(start=1, end=3, finish="stop", service_s=0.5),),
    actions=(Action(turn=0, tool="sql", arguments={"query": "select 'é'"}, digest="d", action_s=0.1),),
    timings=EnvTimings(creation_s=0.1, action_s=0.1),
    reward=0.5,
    scored=0.5,
    success=True,
    termination=Termination.TURN_LIMIT,
    failure=Failure.VALID_HARD,
)


async def written(path: Path, *records: Trajectory) -> None:
    async with Journal(path, SystemClock()) as journal:
        for record in records:
            await journal.trajectory(record)


async def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run" / "j.jsonl"
    outcome = Outcome(trajectory="t-1", state=State.ACCEPTED, advantage=0.5, gap=1, batch="b-1")
    async with Journal(path, SystemClock()) as journal:
        await journal.trajectory(RECORD)
        await journal.outcome(outcome)
        found = read(path)  # on disk while the journal is open

    assert found.trajectories == {"t-1": RECORD}
    assert found.outcomes == {"t-1": outcome}
    assert found.torn == ""


async def test_writers_at_once_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    async with Journal(path, SystemClock()) as journal, asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(journal.trajectory(replace(RECORD, id=f"t-{n}")))

    assert set(read(path).trajectories) == {f"t-{n}" for n in range(20)}


@pytest.mark.parametrize("cut", [1, 40, 400])
async def test_a_torn_last_line_is_found_said_and_cut_off_before_more_is_written(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    await written(path, RECORD, replace(RECORD, id="t-2"))
    path.write_bytes(path.read_bytes()[:-cut])

    found = read(path)
    assert set(found.trajectories) == {"t-1"}
    assert found.torn.startswith('{"kind":"trajectory"')
    await written(path, replace(RECORD, id="t-3"))
    assert set(read(path).trajectories) == {"t-1", "t-3"}
    assert read(path).torn == ""


@pytest.mark.parametrize("line", ["{", '{"kind": "other"}', '{"kind": "outcome", "state": "gone"}', '{"kind": "trajectory"}', "[]"])
async def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "j.jsonl"
    await written(path, RECORD)
    path.write_text(path.read_text() + line + "\n" + path.read_text())

    with pytest.raises(RecordTorn, match="line 2"):
        read(path)


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", SystemClock())
    with pytest.raises(LimitReached, match="is closed"):
        await journal.trajectory(RECORD)


async def test_a_full_disk_is_said_with_its_fix() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    journal = Journal(Path("/dev/full"), SystemClock())
    journal._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, ASYNC230 - the journal closes it
    async with AsyncExitStack() as stack:
        stack.push_async_exit(journal)
        with pytest.raises(LimitReached, match="cannot be written: No space left on device"):
            await journal.trajectory(RECORD)


needs_duckdb = pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="no DuckDB (pip install 'autoclave[rollout]')")


@needs_duckdb
async def test_records_go_to_parquet_and_answer_sql(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    async with Journal(path, SystemClock()) as journal:
        await journal.trajectory(RECORD)
        await journal.trajectory(replace(RECORD, id="t-2", reward=None, actions=()))
        await journal.outcome(Outcome(trajectory="t-1", state=State.ACCEPTED, reward=0.5, advantage=0.5, batch="b", reset_s=0.2))

    files = to_parquet(path, tmp_path / "out")
    assert set(files) == {"trajectories", "actions"}
    import duckdb

    shown = duckdb.execute(f"select id, state, reward, tokens, env_reset_s from '{files['trajectories']}' order by id").fetchall()
    assert shown == [("t-1", "accepted", 0.5, [5, 6, 7], 0.2), ("t-2", "open", None, [5, 6, 7], None)]
    columns, rows = query(path, "select tool, arguments from actions")
    assert (columns, [(tool, json.loads(arguments)) for tool, arguments in rows]) == (
        ["tool", "arguments"],
        [("sql", {"query": "select 'é'"})],
    )
    with pytest.raises(EnvironmentInvalid, match="the query failed"):
        query(path, "select nothing_of_that_name from trajectories")
