"""What an author may get wrong, over the real runtime: nothing unverified is handed out, and the message says what to mend."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from envs import LoadedEnvironment, define, load
from sandbox import ClearanceState, Pool
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError, EnvironmentInvalid
from sandbox.ledger import open_ledger
from sandbox.model import ResetMethod
from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces


def box(base: Path, *argv: str, limit_s: float = 30.0, **more: Any) -> LoadedEnvironment:
    """A directory, read by the default probes and by one of the author's own."""
    described: dict[str, Any] = {
        "name": "box",
        "version": "1",
        "reset": {"method": "restore", "hook": ["true"]},
        "check": {"probe_limit_s": limit_s},
        "resources": {"box": {"kind": "files", "files": {"a.txt": "one"}, "target": "/workspace"}},
        **more,
    }
    if argv:
        described["probes"] = [{"name": "own", "kind": "command", "argv": list(argv)}]
    return define(described, base)


async def refusal(environment: LoadedEnvironment, settings: Settings) -> str:
    """Return why the pool would not serve it, and make sure that nothing was handed out."""
    with pytest.raises(AutoclaveError) as caught:
        async with Pool.open([environment], size=1, settings=settings) as pool, pool.session(environment.spec.name, wait=60):
            pytest.fail("a session of an unverified namespace was handed out")
    assert rows(settings, "select * from leases") == []
    assert rows(settings, "select * from transitions where target = 'ready'") == []
    return str(caught.value)


def rows(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{settings.ledger}?mode=ro", uri=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("/bin/sh", "-c", "echo x > /workspace/a.txt"), "exit code 2"),
        (("/bin/sleep", "60"), "3 s"),
        (("/bin/sh", "-c", "echo broken >&2; exit 3"), "broken"),
        (("/no/such/program",), "own"),
    ],
    ids=["writes", "hangs", "errs", "is not there"],
)
async def test_a_probe_that_gives_no_answer_makes_no_baseline(
    tmp_path: Path, settings: Settings, nothing_left: None, argv: tuple[str, ...], reason: str
) -> None:
    said = await refusal(box(tmp_path, *argv, limit_s=3.0), settings)

    assert "own" in said
    assert reason in said


async def test_a_probe_that_writes_in_secret_changes_nothing(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    probe = box(tmp_path, "/bin/sh", "-c", "(echo x > /workspace/planted) 2>/dev/null; echo fine")
    async with Pool.open([probe], size=1, settings=settings) as pool:
        for _ in range(2):
            async with pool.session("box", wait=60, ttl=60) as session:
                assert (await session.run(["ls", "-A", "/workspace"])).text == "a.txt\n"
            found = await pool.cleared([session.trajectory_id], timeout=60)
            assert found[session.trajectory_id].state is ClearanceState.CLEARED


@pytest.mark.parametrize(
    "sabotage",
    ["rm /workspace/a.txt", "rm /workspace/a.txt; mkfifo /workspace/a.txt", "chmod 0 /workspace/a.txt"],
    ids=["errs", "hangs", "may not"],
)
async def test_a_probe_that_stops_answering_after_a_session_quarantines_it(
    tmp_path: Path, settings: Settings, nothing_left: None, sabotage: str
) -> None:
    environment = box(tmp_path, "/bin/cat", "/workspace/a.txt", limit_s=5.0).with_reset(ResetMethod.HOOK)
    async with Pool.open([environment], size=1, settings=settings) as pool:
        async with pool.session("box", wait=60, ttl=60) as session:
            assert (await session.run(["sh", "-c", sabotage])).exit_code == 0
        found = await pool.cleared([session.trajectory_id], timeout=120)
        assert found[session.trajectory_id].state is ClearanceState.QUARANTINED
        async with pool.session("box", wait=60, ttl=60) as following:
            assert await following.read_file("/workspace/a.txt") == b"one"
        await pool.cleared([following.trajectory_id], timeout=60)


async def test_fresh_clones_that_disagree_are_refused_by_field(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    said = await refusal(box(tmp_path, "/bin/cat", "/proc/sys/kernel/random/uuid"), settings)

    assert "own/output" in said
    assert "volatile" in said


async def test_a_declared_volatile_field_is_left_out_and_everything_else_is_kept(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    volatile = [{"pattern": "own/output", "reason": "a number drawn at each reading"}]
    environment = box(tmp_path, "/bin/cat", "/proc/sys/kernel/random/uuid", volatile=volatile).with_reset(ResetMethod.HOOK)
    async with Pool.open([environment], size=1, settings=settings) as pool:
        states = []
        for leak in (False, True):
            async with pool.session("box", wait=60, ttl=60) as session:
                if leak:
                    await session.write_file("/workspace/left", b"x")
            states.append((await pool.cleared([session.trajectory_id], timeout=60))[session.trajectory_id].state)
    assert states == [ClearanceState.CLEARED, ClearanceState.QUARANTINED]


async def test_a_seed_that_comes_out_otherwise_each_time_is_reported_as_drift_and_still_compared(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    resources = {"code": {"kind": "repo", "script": "cat /proc/sys/kernel/random/uuid > drawn.txt", "target": "/workspace"}}
    environment = box(tmp_path, resources=resources).with_reset(ResetMethod.HOOK)
    async with Pool.open([environment], size=1, settings=settings) as pool:
        async with pool.session("box", wait=60, ttl=60) as session:
            await session.write_file("/workspace/drawn.txt", b"another")
        found = await pool.cleared([session.trajectory_id], timeout=60)
        assert found[session.trajectory_id].state is ClearanceState.QUARANTINED
    async with open_ledger(settings.ledger, clock=SystemClock(), read_only=True) as ledger:
        (baseline,) = await ledger.baselines("box")
    assert any("drawn.txt" in m.field for m in baseline.drift), baseline.drift


@pytest.mark.postgres
async def test_a_seed_that_fails_half_way_leaves_nothing_and_can_be_mended(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    resources = {"db": {"kind": "postgres", "database": "till", "seed": ["seed.sql"]}}
    seed = tmp_path / "seed.sql"
    seed.write_text(
        "create table public.stock (id int);\ninsert into public.stock values (1);\ninsert into public.stok values (2);\n"
        "grant select on public.stock to public;\n"
    )

    said = await refusal(box(tmp_path, resources=resources), settings)

    assert "seed.sql, line 3" in said
    assert rows(settings, "select * from snapshots") == []
    seed.write_text(seed.read_text().replace("stok", "stock"))
    async with Pool.open([box(tmp_path, resources=resources)], size=1, settings=settings) as pool:
        async with pool.session("box", wait=60, ttl=60) as session:
            counted = await session.run(["psql", "-Atc", "select count(*) from public.stock"])
        assert counted.text == "2\n"
        await pool.cleared([session.trajectory_id], timeout=60)


async def test_a_typo_is_refused_before_anything_is_made(tmp_path: Path, settings: Settings) -> None:
    directory = tmp_path / "box"
    directory.mkdir()
    (directory / "environment.toml").write_text(
        'name = "box"\nversion = "1"\n[reset]\nmetod = "restore"\n[resources.box]\nkind = "files"\n'
    )
    with pytest.raises(EnvironmentInvalid) as caught:
        async with Pool.open([str(directory)], size=1, settings=settings):
            pytest.fail("a pool was opened over it")

    said = str(caught.value)
    assert "environment.toml:4" in said
    assert 'did you mean "method"' in said
    assert not settings.home.exists()
    with pytest.raises(EnvironmentInvalid):
        load(directory)
