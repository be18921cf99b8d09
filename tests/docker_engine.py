#!/usr/bin/env python3
"""A Docker engine for tests: the one that answers, else one of our own. Standard library only.

`DOCKER_HOST`, or /var/run/docker.sock, is used where an engine answers there. Otherwise, as root and with dockerd installed, one is
started below /run/autoclave-tests; every run on this machine shares it, and it ends with the last of them, however that ends. Its
images stay in /var/cache/autoclave-tests (`make clean` removes them), so that they are built once.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RUN = Path("/run/autoclave-tests")
CACHE = Path("/var/cache/autoclave-tests")
SOCKET, LOG, USERS, STARTING, FACTS = (RUN / name for name in ("docker.sock", "log", "users", "starting", "facts.json"))
BRIDGE = Path("/sys/class/net/docker0")
SYSTEM = "unix:///var/run/docker.sock"
BUILD = Path(__file__).resolve().parents[1] / "images" / "build"
EXAMPLES = """examples:
  tests/docker_engine.py run -- make bench          a command with DOCKER_HOST set
  tests/docker_engine.py run --images -- sh         the same with our images built first
"""
# What is tried in turn, and the network of builds: machines differ in which iptables works; without, containers have no way out.
WAYS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("iptables", (), "default"),
    ("iptables-legacy", (), "default"),
    ("no iptables", ("--iptables=false", "--ip-masq=false"), "host"),
)


class NoEngine(Exception):
    """Why there is none."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that answers. `build_network` is what `docker build --network` wants there."""

    host: str
    build_network: str = "default"
    ours: bool = False

    def environment(self) -> dict[str, str]:
        """What a process needs to use it; an engine of the user's own is left as it was named."""
        return {"DOCKER_HOST": self.host, "AUTOCLAVE_BUILD_NETWORK": self.build_network} if self.ours else {}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run a command with an engine; without one where none can be had")
    running.add_argument("--images", action="store_true", help="build our images first")
    running.add_argument("words", nargs="+", metavar="COMMAND")
    commands.add_parser("hold", help="say as JSON where the engine is, and keep it until stdin ends")
    commands.add_parser("keep", help="(used by this program) run our engine until nobody uses it")
    commands.add_parser("clean", help="remove what our engine keeps between runs")
    given = parser.parse_args(argv)
    if given.command == "clean":
        return clean()
    if given.command == "keep":
        return keep()
    if given.command == "hold":
        return hold()
    return run(given.words, images=given.images)


def run(words: Sequence[str], *, images: bool) -> int:
    required = "docker" in os.environ.get("AUTOCLAVE_TEST_REQUIRE", "").split(",")
    with contextlib.ExitStack() as stack:
        environ = dict(os.environ)
        try:
            environ |= stack.enter_context(engine()).environment()
            if images:
                subprocess.run([sys.executable, str(BUILD)], env=environ, check=True, stdout=sys.stderr)
        except (NoEngine, subprocess.CalledProcessError) as error:
            print(f"tests/docker_engine.py: {error}", file=sys.stderr)
            if required:
                return 3
        process = subprocess.Popen(words, env=environ)
        signal.signal(signal.SIGINT, _ignore)  # the terminal sends it to the command, too, and we end after the command
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: process.send_signal(number))
        return process.wait()


def hold() -> int:
    signal.signal(signal.SIGINT, _ignore)  # ends with its stdin, so that what its user still removes can be removed
    try:
        with engine() as found:
            print(json.dumps(asdict(found)), flush=True)
            sys.stdin.read()
    except NoEngine as error:
        print(json.dumps({"missing": str(error)}), flush=True)
    return 0


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """The engine to use, kept while the context is open."""
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise NoEngine(f"tests know only a local Docker engine, not {host}")
    if os.geteuid() != 0 or host != f"unix://{SOCKET}":  # one of ours that root holds serves others while root does
        why = silent(host or SYSTEM)
        if not why:
            yield Engine(host=host or SYSTEM, build_network=os.environ.get("AUTOCLAVE_BUILD_NETWORK", "default"))
            return
        if host:
            raise NoEngine(why)
    if os.geteuid() != 0:
        raise NoEngine(f"no Docker engine at {SYSTEM} that this user can reach, and only root can start one")
    if shutil.which("dockerd") is None:
        raise NoEngine(f"no Docker engine at {SYSTEM}, and dockerd is not installed: apt-get install docker.io iptables")
    RUN.mkdir(mode=0o755, exist_ok=True)
    with USERS.open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # the keeper stops the engine when it gets this lock for itself
        with STARTING.open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if silent(f"unix://{SOCKET}"):
                start()
        yield Engine(**json.loads(FACTS.read_text()))
    time.sleep(0.3)  # if we were the last, the keeper has the lock now: then wait until its engine has gone
    with USERS.open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)


def silent(host: str) -> str:
    """Why no engine answers at a Unix socket; empty where one does."""
    connection = http.client.HTTPConnection("docker", timeout=10)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        connection.sock.connect(host.removeprefix("unix://"))
        connection.request("GET", "/_ping")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no Docker engine at {host} ({getattr(error, 'strerror', None) or error})"
    finally:
        connection.close()
    return "" if status == 200 else f"the Docker engine at {host} is not well (status {status})"


def start() -> None:
    """Start the keeper, and wait until its engine answers or it has given up."""
    keeper = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "keep"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env={k: v for k, v in os.environ.items() if not k.startswith(("COV_", "PYTEST_"))},
    )
    assert keeper.stderr is not None
    said = keeper.stderr.readline().decode(errors="replace").strip()
    if said != "ready":
        keeper.wait(60)
        raise NoEngine(said or "the engine's keeper ended")


def keep() -> int:
    """Run dockerd until nobody holds the users' lock. The first line on stderr is `ready`, or why there is no engine."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)  # ends by the lock alone
    before = rules()
    try:
        dockerd = started()
    except NoEngine as error:
        print(" ".join(str(error).split()), file=sys.stderr, flush=True)
        return 1
    print("ready", file=sys.stderr, flush=True)
    with USERS.open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        empty()
        stop(dockerd)
        tidy()
        unplug(before)
    return 0


def empty() -> None:
    """Remove the containers, networks and volumes that killed runs left on our engine: nobody uses it, and all of it is tests'."""
    removals = (
        ("ps -aq", "rm --force --volumes"),
        ("network ls -q --filter type=custom", "network rm"),
        ("volume ls -q", "volume rm"),
    )
    environ = {**os.environ, "DOCKER_HOST": f"unix://{SOCKET}"}
    for listing, removal in removals:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            found = subprocess.run(
                ["docker", *listing.split()], env=environ, capture_output=True, timeout=60, check=False
            ).stdout.split()
            if found:
                subprocess.run(["docker", *removal.split(), *found], env=environ, capture_output=True, timeout=120, check=False)


def _ignore(number: int, frame: object) -> None:
    """A handler and not SIG_IGN, which programs that are started would inherit."""


def _end_with_keeper() -> None:
    """In dockerd before it runs: the kernel ends it when its keeper is killed, so that no engine stays without one."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def started() -> subprocess.Popen[bytes]:
    tidy()
    prepare()
    failures = []
    for name, words, network in WAYS:
        path = os.environ.get("PATH", os.defpath)
        if name == "iptables-legacy":
            if (legacy := shutil.which(name)) is None:
                continue
            shims = RUN / "legacy"
            shims.mkdir(exist_ok=True)
            for tool in ("iptables", "ip6tables"):
                with contextlib.suppress(FileExistsError):
                    (shims / tool).symlink_to(legacy.replace("iptables", tool))
            path = f"{shims}:{path}"
        elif name == "iptables" and shutil.which(name) is None:
            continue
        command = ["dockerd", "--host", f"unix://{SOCKET}", "--data-root", str(CACHE / "engine"), "--exec-root", str(RUN / "exec")]
        command += ["--pidfile", str(RUN / "pid"), "--group", "root", *words]
        with LOG.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": path},
                preexec_fn=_end_with_keeper,
            )
        deadline = time.monotonic() + 60
        while silent(f"unix://{SOCKET}") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        if process.poll() is None and not silent(f"unix://{SOCKET}"):
            facts = Engine(host=f"unix://{SOCKET}", build_network=network, ours=True)
            FACTS.write_text(json.dumps(asdict(facts)))
            return process
        stop(process)
        failures.append(f"with {name}: {last_words()}")
    raise NoEngine(
        f"dockerd does not start here (it needs the rights of a real machine or a privileged container): {'; '.join(failures)}"
    )


def prepare() -> None:
    """Make the engine's data directory. In a container it would lie on an overlay, on which no overlay can be mounted, so that the
    engine would copy whole images: memory holds it then, where there is enough."""
    data = CACHE / "engine"
    data.mkdir(mode=0o711, parents=True, exist_ok=True)
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(data)], capture_output=True, text=True, check=False).stdout.strip()
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free_mb = int(memory["MemAvailable"].split()[0]) // 1024
    if kind == "overlayfs" and free_mb >= 12_000:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={free_mb // 2}m,mode=711", "autoclave-tests", str(data)]
        subprocess.run(mount, check=False, capture_output=True, timeout=30)


def rules() -> str | None:
    """The machine's packet rules, before an engine adds its own; None where another engine has already, or where there are none."""
    if BRIDGE.exists() or shutil.which("iptables-save") is None:
        return None
    return subprocess.run(["iptables-save"], capture_output=True, text=True, check=False, timeout=30).stdout


def unplug(before: str | None) -> None:
    """Take away the bridge and the packet rules that our engine made and that an ending engine leaves."""
    if before is None:
        return
    with socket.socket() as wire:
        name = BRIDGE.name.encode().ljust(16, bytes(1))
        with contextlib.suppress(OSError):
            fcntl.ioctl(wire, 0x8914, name + struct.pack("h22x", 0))  # SIOCSIFFLAGS: down
            fcntl.ioctl(wire, 0x89A1, name)  # SIOCBRDELBR
    table, chains, policies = "", [], [line for line in before.splitlines() if line.startswith(":FORWARD")]
    now = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False, timeout=30).stdout
    for line in now.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A") and "docker" in line.lower():
            iptables(table, "-D", *shlex.split(line)[1:])
        elif line.startswith(":DOCKER"):
            chains.append((table, line[1:].split()[0]))
    for table, chain in chains:
        iptables(table, "-F", chain)
    for table, chain in chains:
        iptables(table, "-X", chain)
    if ":FORWARD DROP" in now and not any(line.startswith(":FORWARD DROP") for line in policies):
        iptables("filter", "-P", "FORWARD", "ACCEPT")


def iptables(table: str, *words: str) -> None:
    subprocess.run(["iptables", "-t", table, *words], check=False, capture_output=True, timeout=30)


def clean() -> int:
    """Remove our engine's images and its folder, once nobody uses it."""
    if os.geteuid() == 0 and (RUN.is_dir() or CACHE.is_dir()):
        RUN.mkdir(exist_ok=True)
        with USERS.open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            tidy()
            shutil.rmtree(CACHE, ignore_errors=True)
        shutil.rmtree(RUN, ignore_errors=True)
    return 0


def last_words() -> str:
    lines = LOG.read_text(errors="replace").splitlines()
    telling = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed to start" in line]
    return " ".join((telling or lines or ["it said nothing"])[-1].split())[-400:]


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(45)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tidy() -> None:
    """Remove what an engine leaves behind when it ends: mounts, its socket and its files below RUN; never its images."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for target in sorted(mounts, reverse=True):
        if target.startswith((f"{RUN}/", f"{CACHE}/")):
            subprocess.run(["umount", "--lazy", target], check=False, capture_output=True, timeout=30)
    for path in RUN.iterdir():
        if path not in (USERS, STARTING, LOG):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
