"""The command channel against a real sandbox."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable

import pytest

from sandbox.errors import InstanceLost, LimitReached
from sandbox.model import Limits
from sandbox.runtimes.namespaces.sandbox import Sandbox

pytestmark = pytest.mark.namespaces
Start = Callable[..., Awaitable[Sandbox]]
EVERY_BYTE = bytes(range(256))


async def test_binary_input_and_output_round_trip(start: Start) -> None:
    channel = (await start()).channel
    for data in (b"", b"\0", EVERY_BYTE * 16, os.urandom(5_000_000)):
        result = await channel.run(["cat"], stdin=data, output_bytes=6_000_000)
        assert (result.exit_code, result.stdout, result.truncated) == (0, data, False)


async def test_stdout_stderr_and_exit_code_are_apart(start: Start) -> None:
    channel = (await start()).channel
    result = await channel.run(["sh", "-c", "printf out; printf err >&2; exit 7"])
    assert (result.exit_code, result.stdout, result.stderr, result.timed_out) == (7, b"out", b"err", False)
    assert (await channel.run(["sh", "-c", "kill -15 $$"])).exit_code == 128 + 15
    for argv, code in ((["/nonexistent"], 127), (["nonexistent"], 127), (["/etc/passwd"], 126)):
        result = await channel.run(argv)
        assert result.exit_code == code
        assert b"cannot start" in result.stderr


async def test_environment_and_directory_are_the_plans_plus_the_calls(start: Start) -> None:
    channel = (await start(env={"A": "plan", "B": "plan"}, workdir="/usr")).channel
    result = await channel.run(["sh", "-c", 'echo "$A $B $HOME"; pwd'], env={"B": "call"})
    assert result.stdout == b"plan call /tmp\n/usr\n"
    assert (await channel.run(["pwd"], cwd="/tmp")).stdout == b"/tmp\n"
    assert (await channel.run(["pwd"], cwd="/nonexistent")).exit_code == 127
    assert (await channel.run(["sh", "-c", 'printf %s "$X"'], env={"X": "\udcff\udc80"})).stdout == b"\xff\x80"


async def test_output_is_cut_at_the_cap_and_the_command_goes_on(start: Start) -> None:
    channel = (await start()).channel
    script = "head -c 1000000000 /dev/zero; head -c 50000 /dev/zero >&2; echo end > /tmp/end"
    result = await channel.run(["sh", "-c", script], output_bytes=10_000)
    assert (len(result.stdout), len(result.stderr), result.truncated, result.exit_code) == (10_000, 10_000, True, 0)
    assert await channel.read_file("/tmp/end") == b"end\n"
    exact = await channel.run(["head", "-c", "10000", "/dev/zero"], output_bytes=10_000)
    assert (len(exact.stdout), exact.truncated) == (10_000, False)


async def test_a_command_that_does_not_read_its_input_does_not_hang(start: Start) -> None:
    channel = (await start()).channel
    assert (await channel.run(["true"], stdin=bytes(3_000_000))).exit_code == 0
    result = await channel.run(["sh", "-c", "exec <&-; sleep 0.2; echo on"], stdin=bytes(3_000_000))
    assert result.stdout == b"on\n"
    assert (await channel.run(["head", "-c", "3"], stdin=b"abcdef")).stdout == b"abc"


SURVIVORS = """
trap '' TERM
python3 -c 'import os, time, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)' &
setsid sleep 1000 &
sleep 1000
"""


async def test_at_the_limit_the_group_and_every_straggler_die(start: Start) -> None:
    sandbox = await start()
    other = asyncio.ensure_future(sandbox.channel.run(["sh", "-c", "sleep 1.5; echo lives"]))
    result = await sandbox.channel.run(["sh", "-c", SURVIVORS], limit_s=0.7)
    assert result.timed_out
    assert result.exit_code == 137
    assert [p.argv for p in await sandbox.processes() if "1000" in " ".join(p.argv)] == []
    assert (await other).stdout == b"lives\n"


async def test_a_background_process_does_not_hold_its_command(start: Start) -> None:
    sandbox = await start()
    result = await sandbox.channel.run(["sh", "-c", "(while echo tick; do sleep 0.01; done) & echo done"], limit_s=5)
    assert not result.timed_out
    assert b"done\n" in result.stdout
    await asyncio.sleep(0.2)
    assert any("tick" in " ".join(p.argv) for p in await sandbox.processes()), "it died of a closed pipe"
    await sandbox.channel.quiesce()
    assert [p.pid for p in await sandbox.processes()] == [1]


async def test_quiesce_leaves_nobody(start: Start) -> None:
    sandbox = await start(limits=Limits(pids=64))
    bomb = asyncio.ensure_future(sandbox.channel.run(["sh", "-c", "b() { b | b & }; b; sleep 100"], limit_s=60))
    daemons = "import os, signal\nfor _ in range(5):\n if os.fork() == 0:\n  os.setsid(); signal.signal(15, 1)\n  while 1: pass"
    await sandbox.channel.run(["python3", "-c", daemons], limit_s=10)
    await asyncio.sleep(0.2)
    await sandbox.channel.quiesce()
    assert not (await bomb).timed_out
    assert [p.argv for p in await sandbox.processes()] == [("autoclave-init",)]
    assert (await sandbox.channel.run(["echo", "on"])).stdout == b"on\n"


async def test_kill_minus_one_spares_the_channel(start: Start) -> None:
    sandbox = await start()
    victim = asyncio.ensure_future(sandbox.channel.run(["sleep", "100"]))
    await asyncio.sleep(0.1)
    await sandbox.channel.run(["sh", "-c", "kill -9 -1"])
    assert (await victim).exit_code == 137
    assert (await sandbox.channel.run(["echo", "on"])).stdout == b"on\n"


async def test_a_cancelled_command_is_gone_when_the_cancellation_arrives(start: Start) -> None:
    sandbox = await start()
    task = asyncio.ensure_future(sandbox.channel.run(["sleep", "1000"]))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [p.argv for p in await sandbox.processes()] == [("autoclave-init",)]
    big = asyncio.ensure_future(sandbox.channel.run(["sleep", "1000"], stdin=bytes(2_000_000)))
    await asyncio.sleep(0.1)
    big.cancel()
    with pytest.raises(asyncio.CancelledError):
        await big
    assert (await sandbox.channel.run(["echo", "on"])).stdout == b"on\n"


async def test_many_commands_at_once_keep_their_own_output(start: Start) -> None:
    channel = (await start()).channel
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(channel.run(["sh", "-c", f"cat; sleep 0.0{n % 5}; exit {n}"], stdin=b"%d" % n * 9000))
            for n in range(32)
        ]
    for n, task in enumerate(tasks):
        assert (task.result().exit_code, task.result().stdout) == (n, b"%d" % n * 9000)


async def test_more_commands_than_the_channel_takes_are_refused_not_lost(start: Start) -> None:
    channel = (await start(limits=Limits(pids=400))).channel
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(channel.run(["sleep", "1"]))) for _ in range(140)]
    refused = [t.result() for t in tasks if t.result() is not None]
    assert 1 <= len(refused) <= 12
    assert all(isinstance(e, LimitReached) for e in refused)


async def attempt(work: Awaitable[object]) -> BaseException | None:
    try:
        await work
    except LimitReached as error:
        return error
    return None


async def test_files_round_trip_and_errors_are_the_systems_own(start: Start) -> None:
    channel = (await start(workdir="/tmp", limits=Limits(memory_mb=128))).channel
    for data in (b"", EVERY_BYTE, os.urandom(9_000_000)):
        await channel.write_file("/tmp/a/b/c.bin", data, mode=0o640)
        assert await channel.read_file("/tmp/a/b/c.bin") == data
    assert (await channel.run(["stat", "-c", "%a %U", "a/b/c.bin"])).stdout == b"640 agent\n"
    await channel.write_file("relative", b"r")
    assert await channel.read_file("/tmp/relative") == b"r"
    with pytest.raises(FileNotFoundError):
        await channel.read_file("/tmp/nothing")
    with pytest.raises(IsADirectoryError):
        await channel.read_file("/tmp")
    with pytest.raises(IsADirectoryError):
        await channel.write_file("/tmp/a", b"")
    with pytest.raises(OSError, match="Read-only"):
        await channel.write_file("/usr/x", b"")
    with pytest.raises(LimitReached, match="limit_bytes"):
        await channel.read_file("/tmp/a/b/c.bin", limit_bytes=8_999_999)
    await channel.run(["mkfifo", "/tmp/pipe"])
    with pytest.raises(OSError, match="Invalid"):
        await channel.read_file("/tmp/pipe")
    assert b"processor" in await channel.read_file("/proc/cpuinfo")
    with pytest.raises(OSError, match="No space"):
        await channel.write_file("/tmp/full", bytes(80_000_000))
    assert (await channel.run(["sh", "-c", "ls -A /tmp"])).stdout == b"a\npipe\nrelative\n"


async def test_a_dead_channel_is_noticed_by_every_waiter_at_once(start: Start) -> None:
    sandbox = await start()
    waiters = [asyncio.ensure_future(sandbox.channel.run(["sleep", "100"])) for _ in range(4)]
    await asyncio.sleep(0.1)
    os.kill(sandbox.pid, 9)
    async with asyncio.timeout(5):
        for waiter in waiters:
            with pytest.raises(InstanceLost):
                await waiter
    assert not sandbox.alive()
    with pytest.raises(InstanceLost):
        await sandbox.channel.run(["true"])


def bare_run() -> None:
    subprocess.run(["/bin/true"], check=True)


async def test_how_long_an_action_takes(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints; the bars are judged by the benchmarks, side by side."""
    begun = time.perf_counter()
    sandbox = await start()
    started = time.perf_counter() - begun
    inside, bare = [], []
    for _ in range(30):
        begun = time.perf_counter()
        await sandbox.channel.run(["/bin/true"])
        inside.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        bare_run()
        bare.append(time.perf_counter() - begun)
    with capsys.disabled():
        print(f"\nstart {started * 1e3:.1f} ms", end="")
        print(f", action p50 {statistics.median(inside) * 1e3:.2f} ms, bare {statistics.median(bare) * 1e3:.2f} ms")
