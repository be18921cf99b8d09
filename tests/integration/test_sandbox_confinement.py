"""What a sandbox cannot reach. Each refusal stands beside a control that succeeds, so that `blocked` is not just `broken`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sandbox import staging
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.model import Role
from sandbox.ports import Mount
from sandbox.runtimes.namespaces import profile, rootfs
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces
Start = Callable[..., Awaitable[Sandbox]]


def owned_by(settings: Settings, role: Role, directory: Path, mode: int = 0o700) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    uid = settings.users.of(role)
    if uid is not None:
        os.chown(directory, uid, uid)
    directory.chmod(mode)
    return directory


async def output(sandbox: Sandbox, *argv: str) -> str:
    result = await sandbox.channel.run(argv)
    assert result.exit_code == 0, result
    return result.stdout.decode()


async def test_the_first_process_and_its_children_have_nothing(start: Start) -> None:
    sandbox = await start()
    for text in (await output(sandbox, "cat", "/proc/self/status"), (await sandbox.channel.facts())["status"].decode()):
        found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(found[name], 16) == 0
        assert found["NoNewPrivs"].strip() == "1"
        assert found["Seccomp"].strip() == "2"
        assert set(found["Uid"].split()) == {"1000"}
        # An ordinary user cannot drop the groups that he is in; inside they have no number.
        assert set(found["Groups"].split()) <= ({"1000"} if os.geteuid() == 0 else {"1000", "65534"})
    assert sandbox.in_force["uid"] == (os.geteuid() or sandbox.in_force["uid"]) != 0


async def test_host_files_cannot_be_read(start: Start, settings: Settings, passable_dir: Path) -> None:
    settings.home.mkdir(parents=True, exist_ok=True)
    ledger, theirs, mine = settings.home / "ledger.sqlite", passable_dir / "theirs", passable_dir / "mine"
    owned_by(settings, Role.AGENT, mine)
    owned_by(settings, Role.SERVER, theirs)
    for path in (ledger, theirs / "secret", mine / "note"):
        path.write_text("content of the host")
        path.chmod(0o644)
    sandbox = await start(mounts=(Mount(target="/workspace", layers=(str(mine),)),))
    assert await output(sandbox, "cat", "/workspace/note") == "content of the host"  # the control
    places = ["/etc/shadow", "/etc/gshadow", "/etc/ssh", "/root", "/home", "/var/lib", "/sys", "/boot", "/mnt", "/opt", "/srv"]
    places += [str(p) for p in (ledger, settings.store, theirs / "secret", passable_dir, Path(__file__))]
    for place in places:
        assert os.path.lexists(place) or place.startswith("/")
        for reader in (["cat", place], ["ls", "-a", place]):
            result = await sandbox.channel.run(reader)
            assert result.exit_code != 0, f"{reader} said {result.stdout!r}"
    for pid in ("1", "self"):
        for way in (f"/proc/{pid}/root/etc/shadow", f"/proc/{pid}/cwd/../../etc/shadow"):
            assert (await sandbox.channel.run(["cat", way])).exit_code != 0
    assert "root:x:0:0" in await output(sandbox, "cat", "/etc/passwd")
    host_names = {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    assert not {line.split(":")[0] for line in (await output(sandbox, "cat", "/etc/passwd")).splitlines()} & (
        host_names - {"root", "nobody", "agent"}
    )


@pytest.mark.root
async def test_as_root_another_roles_files_are_closed_even_when_mounted(
    start: Start, settings: Settings, passable_dir: Path
) -> None:
    theirs = owned_by(settings, Role.SERVER, passable_dir / "server")
    (theirs / "secret").write_text("x")
    (theirs / "secret").chmod(0o600)
    shadow = Mount(target="/hostetc", layers=("/etc",), readonly=True)
    sandbox = await start(mounts=(Mount(target="/server", layers=(str(theirs),)), shadow))
    assert (await sandbox.channel.run(["cat", "/server/secret"])).exit_code != 0
    assert (await sandbox.channel.run(["cat", "/hostetc/shadow"])).exit_code != 0
    assert (await sandbox.channel.run(["cat", "/hostetc/passwd"])).exit_code == 0  # the control: the mount itself works
    server = await start(role=Role.SERVER, mounts=(Mount(target="/server", layers=(str(theirs),)),))
    theirs.joinpath("note").write_text("y")
    theirs.joinpath("note").chmod(0o644)
    assert await output(server, "cat", "/server/note") == "y"


async def test_nothing_of_the_system_can_be_written(start: Start) -> None:
    sandbox = await start()
    for place in (
        "/x",
        "/usr/x",
        "/etc/x",
        "/etc/passwd",
        "/dev/x",
        "/run/x",
        "/var/x",
        "/.autoclave/x",
        "/proc/sys/kernel/hostname",
    ):
        result = await sandbox.channel.run(["sh", "-c", f"echo x > {place}"])
        assert result.exit_code != 0, place
    for place in ("/tmp/x", "/dev/shm/x", "/var/tmp/x", "/dev/null"):
        assert (await sandbox.channel.run(["sh", "-c", f"echo x > {place}"])).exit_code == 0, place


@pytest.fixture
def host_server() -> Iterator[tuple[int, str]]:
    """A TCP server on the host's loopback and a socket in its abstract namespace."""
    abstract = f"autoclave-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{abstract}")
        unix.listen()
        tcp.settimeout(30)
        yield tcp.getsockname()[1], abstract


CONNECT = """
import socket, sys
host, port = sys.argv[1:]
s = socket.socket(socket.AF_UNIX if host == "unix" else socket.AF_INET)
s.settimeout(3)
s.connect("\\0" + port if host == "unix" else (host, int(port)))
print("connected")
"""


async def test_there_is_no_network_but_its_own_loopback(start: Start, host_server: tuple[int, str]) -> None:
    port, abstract = host_server
    with socket.create_connection(("127.0.0.1", port), timeout=3):  # the control
        pass
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(f"\0{abstract}")
    sandbox = await start()
    for target in (["127.0.0.1", str(port)], ["unix", abstract], ["169.254.169.254", "80"], ["1.1.1.1", "53"]):
        result = await sandbox.channel.run(["python3", "-c", CONNECT, *target])
        assert result.exit_code != 0, target
        assert b"connected" not in result.stdout
    own = "import socket; s = socket.create_server(('', 0)); socket.create_connection(s.getsockname(), 3); print('connected')"
    assert await output(sandbox, "python3", "-c", own) == "connected\n"  # loopback of its own works
    vsock = await sandbox.channel.run(["python3", "-c", "import socket; socket.socket(40, socket.SOCK_STREAM)"])
    assert vsock.exit_code != 0


SYSCALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        return os.strerror(ctypes.get_errno())
    return "done"
mount = ("mount", b"x", b"/tmp", b"tmpfs", 0, None)
for name, *arguments in (("unshare", 0x10000000), ("ptrace", 16, 1, 0, 0), mount, ("getppid",)):
    print(call(name, *arguments))
"""


async def test_the_filter_is_in_force_and_lets_the_rest_through(start: Start) -> None:
    said = (await output(await start(), "python3", "-c", SYSCALLS)).splitlines()
    assert said == ["Operation not permitted"] * 3 + ["done"]


async def test_the_init_cannot_be_touched_by_the_agent(start: Start) -> None:
    sandbox = await start()
    for command in ("kill -9 1", "kill -STOP 1", "kill -INT 1", "kill -TERM 1"):
        await sandbox.channel.run(["sh", "-c", command])
    for way in ("/proc/1/mem", "/proc/1/fd/60", "/proc/1/environ", "/proc/1/maps"):
        assert (await sandbox.channel.run(["cat", way])).exit_code != 0, way
    assert (await sandbox.channel.run(["sh", "-c", "echo junk > /proc/1/fd/60"])).exit_code != 0
    held = await output(sandbox, "sh", "-c", "ls /proc/self/fd")
    assert set(held.split()) <= {"0", "1", "2", "3"}
    assert await sandbox.channel.ping() < 5
    assert sandbox.alive()


async def test_only_its_own_processes_are_visible(start: Start) -> None:
    sandbox = await start()
    seen = await output(
        sandbox, "python3", "-c", "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit())[:1])"
    )
    assert seen == "[1]\n"
    assert int(await output(sandbox, "sh", "-c", "ls -d /proc/[0-9]* | wc -l")) < 10
    assert len([n for n in os.listdir("/proc") if n.isdigit()]) > 10  # the host has more than that


async def test_a_sandbox_that_is_not_as_claimed_is_refused_by_the_line() -> None:
    good = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000")
    good |= {"NoNewPrivs": "1", "Seccomp": "2", "Uid": "64100 64100 64100 64100", "Groups": ""}
    profile.check_process(good, host_uid=64100, who="x")
    for name, value in (
        ("CapEff", "0000000000000001"),
        ("NoNewPrivs", "0"),
        ("Seccomp", "0"),
        ("Uid", "0 0 0 0"),
        ("Groups", "0 27"),
    ):
        with pytest.raises(RuntimeUnavailable, match=name):
            profile.check_process({**good, name: value}, host_uid=64100, who="x")
    with pytest.raises(RuntimeUnavailable, match="the pid namespace is the host's"):
        profile.check_namespace(os.getpid(), targets=frozenset(), inside_uid=1000, host_uid=os.geteuid(), who="x")


async def test_an_unasked_mount_is_noticed(start: Start, passable_dir: Path, settings: Settings) -> None:
    sandbox = await start(mounts=(Mount(target="/data", layers=(str(passable_dir),), readonly=True),))
    arguments = {"inside_uid": 1000, "host_uid": sandbox.in_force["uid"], "who": "x"}
    asked = rootfs.TARGETS | {"/data", "/.autoclave"}
    profile.check_namespace(sandbox.pid, targets=asked, **arguments)
    with pytest.raises(RuntimeUnavailable, match="/data is mounted and was not asked for"):
        profile.check_namespace(sandbox.pid, targets=asked - {"/data"}, **arguments)


def copy_program(program: str, image: Path) -> None:
    shutil.copy2(os.path.realpath(program), image / "bin" / Path(program).name)
    for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split():
        if word.startswith("/"):
            target = image / word.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(word), target)


async def test_an_unpacked_image_is_the_whole_root(start: Start, passable_dir: Path) -> None:
    """A root with busybox or the host's shell copied in: no Python of its own, and the channel works all the same."""
    image = passable_dir / "image"
    for folder in ("bin", "lib64", "etc"):
        (image / folder).mkdir(parents=True)
    for program in ("/bin/sh", "/bin/cat", "/bin/ls"):
        copy_program(program, image)
    (image / "etc" / "motd").write_text("from the image")
    sandbox = await start(root=str(image), workdir="/tmp")
    assert await output(sandbox, "cat", "/etc/motd") == "from the image"
    assert (await sandbox.channel.run(["ls", "/usr/share"])).exit_code != 0
    assert (await sandbox.channel.run(["sh", "-c", "echo x > /etc/motd"])).exit_code != 0
    assert (image / "etc" / "motd").read_text() == "from the image"
    assert sandbox.in_force["root"] == "unpacked image, read-only"
    with pytest.raises(EnvironmentInvalid, match="not an unpacked image"):
        await start(root=str(passable_dir / "nothing"))


@pytest.mark.root
def test_what_the_dropped_ids_cannot_reach_is_staged_once(settings: Settings, tmp_path: Path, passable_dir: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "tool").write_text("#!/bin/sh\n")
    (tree / "bin" / "tool").chmod(0o700)
    (tree / "link").symlink_to("bin/tool")
    staged = staging.stage_now(settings, tree, "tree")
    assert staged != tree
    assert staging.reachable(staged)
    assert os.readlink(staged / "link") == "bin/tool"
    assert staging.stage_now(settings, tree, "tree") == staged
    (tree / "bin" / "tool").write_text("#!/bin/sh\n# changed\n")
    assert staging.stage_now(settings, tree, "tree") != staged
    assert not list((settings.store / "staged").glob(".building-*"))
    open_tree = passable_dir / "open"
    open_tree.mkdir(mode=0o755)
    assert staging.stage_now(settings, open_tree, "open") == open_tree
