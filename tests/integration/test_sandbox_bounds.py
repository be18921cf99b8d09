"""Bounds that hold: processes, memory, disk, files; and what is said where nothing can hold them."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandbox.model import Limits
from sandbox.runtimes.namespaces import limits
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces
Start = Callable[..., Awaitable[Sandbox]]


async def answers(sandbox: Sandbox) -> bool:
    return (await sandbox.channel.run(["echo", "on"])).stdout == b"on\n"


def bounded_by(sandbox: Sandbox, name: str) -> bool:
    return not str(sandbox.in_force[name]).startswith("not bounded")


async def test_a_fork_bomb_ends_at_the_bound_and_leaves_the_rest_alone(start: Start) -> None:
    sandbox, neighbour = await start(limits=Limits(pids=40)), await start(limits=Limits(pids=40))
    if not bounded_by(sandbox, "pids"):
        pytest.skip(f"processes are {sandbox.in_force['pids']}")
    bomb = asyncio.ensure_future(sandbox.channel.run(["sh", "-c", "b() { b | b & }; b; sleep 100"], limit_s=3))
    await asyncio.sleep(0.5)
    assert len(await sandbox.processes()) <= 42
    assert await answers(neighbour)
    assert (await bomb).exit_code != 0
    await sandbox.channel.quiesce()
    assert await answers(sandbox)


async def test_a_bomb_of_processes_that_leave_their_group_is_gone_at_the_limit(start: Start) -> None:
    sandbox = await start(limits=Limits(pids=60))
    bomb = "import os\nwhile True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass"
    result = await sandbox.channel.run(["python3", "-c", bomb], limit_s=1)
    assert result.timed_out
    assert [p.argv for p in await sandbox.processes()] == [("autoclave-init",)]
    assert await answers(sandbox)


async def test_a_memory_hog_is_killed_and_nothing_else(start: Start) -> None:
    sandbox = await start(limits=Limits(memory_mb=128))
    hog = "x = bytearray()\nwhile True: x += bytes(8_000_000)"
    result = await sandbox.channel.run(["python3", "-c", hog], limit_s=60)
    assert result.exit_code != 0
    assert not result.timed_out
    assert await answers(sandbox)
    if "(cgroup" in str(sandbox.in_force["memory"]):
        assert result.exit_code == 137
        assert (sandbox.oom_kills() or 0) >= 1


async def test_filling_every_scratch_directory_ends_in_no_space(start: Start) -> None:
    sandbox = await start(limits=Limits(memory_mb=128))
    for place in ("/tmp", "/dev/shm"):
        result = await sandbox.channel.run(["sh", "-c", f"cat /dev/zero > {place}/fill"], limit_s=60)
        assert result.exit_code == 1
        assert b"No space left" in result.stderr
    assert await answers(sandbox)


async def test_files_descriptors_and_cores_are_bounded(start: Start) -> None:
    sandbox = await start(limits=Limits(file_mb=1, descriptors=128, memory_mb=256))
    big = await sandbox.channel.run(["sh", "-c", "head -c 3000000 /dev/zero > /tmp/f; stat -c %s /tmp/f"])
    assert big.stdout == b"1048576\n"
    script = "import os\nn = 0\ntry:\n while True: os.dup(1); n += 1\nexcept OSError: print(n)"
    assert 100 < int((await sandbox.channel.run(["python3", "-c", script])).stdout) < 128
    await sandbox.channel.run(["sh", "-c", "cd /tmp; kill -SEGV $$"])
    assert (await sandbox.channel.run(["ls", "/tmp"])).stdout == b"f\n"
    raised = await sandbox.channel.run(["sh", "-c", "ulimit -n 4096"])
    assert raised.exit_code != 0


async def test_no_control_group_is_left(start: Start, settings: Settings) -> None:
    sandbox = await start()
    groups = limits.detected(settings)
    paths = list(sandbox._ready.group.paths)
    assert all(path.is_dir() for path in paths)
    await sandbox.kill()
    assert not any(path.exists() for path in paths)
    assert not any(list(base.glob("*")) for _, base in groups.bases.values() if base.exists())


@pytest.mark.root
async def test_a_sweep_kills_what_an_earlier_manager_left(start: Start, settings: Settings) -> None:
    sandbox = await start()
    groups = limits.detected(settings)
    if not groups.bases:
        pytest.skip(f"no control groups: {groups.missing}")
    assert list(groups.sweep()) == [next(iter(sandbox._ready.group.paths)).name]
    assert await sandbox.wait(5)
    assert groups.sweep() == ()


def test_without_control_groups_it_says_what_holds_instead(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("25 1 0:1 / /proc rw - proc proc rw\n")
    groups = limits.Groups.detect(settings, mountinfo=tmp_path / "mountinfo")
    assert groups.bases == {}
    said = limits.in_force(groups, Limits())
    assert said["cpu"].startswith("not bounded")
    assert "RLIMIT_DATA" in said["memory"]
    assert "no such control group" in said["memory"]
    assert limits.resource_limits(Limits(memory_mb=7), groups)[resource.RLIMIT_DATA] == 7 << 20


def test_version_two_is_used_where_it_offers_the_controllers(settings: Settings, tmp_path: Path) -> None:
    """Against a directory that looks like a version 2 hierarchy, since few test machines have one to spare."""
    top = tmp_path / "cgroup"
    fake = top / "autoclave" / limits.tag(settings)
    fake.mkdir(parents=True)
    for folder in (top, top / "autoclave", fake):
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "mountinfo").write_text(f"30 1 0:2 / {top} rw - cgroup2 cgroup rw\n")
    (tmp_path / "own").write_text("0::/\n")
    groups = limits.Groups.detect(settings, mountinfo=tmp_path / "mountinfo", own=tmp_path / "own")
    assert {name: version for name, (version, _) in groups.bases.items()} == {"memory": 2, "pids": 2, "cpu": 2}
    group = groups.make("one", Limits(memory_mb=1, pids=5, cpus=0.5))
    written = {path.name: path.read_text() for path in (fake / "one").iterdir()}
    assert written == {"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "5", "cpu.max": "50000 100000"}
    (fake / "one" / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    assert group.oom_kills() == 2
    group.add(os.getpid())
    assert (fake / "one" / "cgroup.procs").read_text() == str(os.getpid())
    assert (top / "autoclave" / "cpu.weight").read_text() == str(100 * (os.cpu_count() or 1))


@pytest.mark.root
async def test_all_sandboxes_together_weigh_what_a_process_on_every_core_does(start: Start, settings: Settings) -> None:
    await start()
    version, base = limits.detected(settings).bases.get("cpu", (0, Path()))
    if not version:
        pytest.skip("no control groups for the cpu")
    said = (base.parent / ("cpu.shares" if version == 1 else "cpu.weight")).read_text()
    assert int(said) == {1: 1024, 2: 100}[version] * (os.cpu_count() or 1)
