"""A disk that fills up under a running pool: nothing unverified is handed out, no record is lost, and service comes back."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from envs import LoadedEnvironment, define
from sandbox import ClearanceState, Pool
from sandbox.errors import AutoclaveError, LimitReached
from sandbox.pool import PoolLimits
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.root]


@pytest.fixture
def small(settings: Settings, request: pytest.FixtureRequest, nothing_left: None) -> Iterator[Path]:
    """The place that the test names, on a small disk of its own."""
    place = Path(getattr(settings, request.param))
    place.mkdir(parents=True, mode=0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0755", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


def box(base: Path) -> LoadedEnvironment:
    files = {"a.txt": "one", **{f"d{n}/f": "x" for n in range(40)}}
    resources = {"box": {"kind": "files", "files": files, "target": "/workspace"}}
    return define({"name": "box", "version": "1", "resources": resources}, base)


def rows(settings: Settings, query: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(f"file:{settings.ledger}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("small", ["scratch", "store", "home"], indirect=True)
@pytest.mark.timeout(240)
async def test_a_disk_that_fills_under_a_session(settings: Settings, passable_dir: Path, small: Path) -> None:
    limits = PoolLimits(upkeep_s=0.2, breaker_pause_s=0.5, duty_backoff_s=0.5)
    async with Pool.open([box(passable_dir)], size=1, settings=settings, limits=limits) as pool:
        with suppress(LimitReached):  # a ledger without room cannot record the end yet, and says so
            async with pool.session("box", wait=60, ttl=60) as session:
                await session.write_file("/workspace/left", b"x")
                ballast = fill(small)
        with suppress(AutoclaveError):  # whoever is served while it is full is served well
            async with pool.session("box", wait=3, ttl=60) as during:
                assert (await during.run(["ls", "/workspace"])).text.split()[0] == "a.txt"
        ballast.unlink()
        async with pool.session("box", wait=60, ttl=60) as after:
            assert "left" not in (await after.run(["ls", "/workspace"])).text.split()
        found = await pool.cleared([session.trajectory_id, after.trajectory_id], timeout=60)
        assert found[session.trajectory_id].state in (ClearanceState.CLEARED, ClearanceState.QUARANTINED)
        assert found[after.trajectory_id].state is ClearanceState.CLEARED
    assert rows(settings, "select trajectory from leases where ended is null or state = 'pending'") == []
    assert rows(settings, "select namespace from transitions where target = 'ready' and source <> 'verifying'") == []


@pytest.mark.parametrize("small", ["home"], indirect=True)
async def test_a_pool_that_closes_while_the_disk_is_full_says_so_and_the_next_settles_it(
    settings: Settings, passable_dir: Path, small: Path
) -> None:
    with pytest.raises(LimitReached, match="full"):
        async with Pool.open([box(passable_dir)], size=1, settings=settings) as pool, pool.session("box", wait=60) as session:
            ballast = fill(small)
    ballast.unlink()
    async with Pool.open([box(passable_dir)], size=1, settings=settings) as pool:
        found = await pool.clearance([session.trajectory_id])
        assert found[session.trajectory_id].state is ClearanceState.QUARANTINED
