"""Bounds on a sandbox: control groups where the machine allows them, else resource limits, and which of the two holds."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import resource
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.model import Limits
from sandbox.settings import Settings

_log = logging.getLogger(__name__)
CONTROLLERS = ("memory", "pids", "cpu")
_MIB = 1 << 20
_CPU_PERIOD_US = 100_000


def tag(settings: Settings) -> str:
    """Name this manager's home: the same after a restart, so that what an earlier process left can be found and removed."""
    return f"{os.geteuid()}-{hashlib.blake2b(os.fsencode(settings.home), digest_size=4).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Where this manager may make control groups: for each controller its cgroup version and directory; `missing` says why not."""

    bases: dict[str, tuple[int, Path]]
    missing: dict[str, str]
    settings: Settings

    @classmethod
    def detect(
        cls, settings: Settings, *, mountinfo: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")
    ) -> Groups:
        """Find them by making the directories, never by name alone. Blocking, a few system calls."""
        bases: dict[str, tuple[int, Path]] = {}
        missing: dict[str, str] = {}
        mounts = _cgroup_mounts(mountinfo)
        for controller in CONTROLLERS:
            reason = "the kernel offers no such control group"
            for version, mount in mounts.get(controller, ()):
                try:
                    bases[controller] = (version, _base(version, mount, controller, tag(settings), own))
                    break
                except OSError as error:
                    reason = f"cgroup v{version} at {mount} cannot be used: {error.strerror or error}"
            if controller not in bases:
                missing[controller] = reason
        return cls(bases=bases, missing=missing, settings=settings)

    def make(self, name: str, limits: Limits) -> Group:
        """Make the groups of one sandbox, with its limits written. `name` must be unique."""
        group = Group(paths={}, controllers=dict(self.bases))
        try:
            for version, base in set(self.bases.values()):
                path = base / name
                try:
                    path.mkdir()
                except FileNotFoundError:  # the last sandbox of this home took the directory away with it
                    Groups.detect(self.settings)
                    path.mkdir()
                group.paths[path] = version
            for controller, (version, base) in self.bases.items():
                for file, value in _values(controller, version, limits):
                    try:
                        (base / name / file).write_text(value)
                    except FileNotFoundError:
                        if "swap" not in file and "memsw" not in file:  # a kernel without swap accounting has no swap to bound
                            raise
        except OSError:
            group.remove(timeout=0.1)
            raise
        return group

    def sweep(self) -> tuple[str, ...]:
        """Kill whatever still runs in groups of this manager's tag and remove them; call it before any sandbox is started."""
        removed: set[str] = set()
        for version, base in set(self.bases.values()):
            for path in [p for p in base.iterdir() if p.is_dir()] if base.is_dir() else []:
                Group(paths={path: version}, controllers={}).remove(timeout=5.0)
                removed.add(path.name)
            with contextlib.suppress(OSError):
                base.rmdir()  # made anew with the next sandbox
        return tuple(sorted(removed))


@dataclass(slots=True, kw_only=True)
class Group:
    """The control groups of one sandbox."""

    paths: dict[Path, int]
    controllers: dict[str, tuple[int, Path]]

    def add(self, pid: int) -> None:
        for path in self.paths:
            (path / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int] | None:
        """Every process of the sandbox and bubblewrap's own outer one; None where there is no group."""
        for path in self.paths:
            try:
                return [int(line) for line in (path / "cgroup.procs").read_text().split()]
            except FileNotFoundError:  # removed with its sandbox
                return []
        return None

    def oom_kills(self) -> int | None:
        """How many processes the kernel killed here for memory."""
        if "memory" not in self.controllers:
            return None
        version, base = self.controllers["memory"]
        path = next(p for p in self.paths if p.parent == base)
        try:
            text = (path / ("memory.events" if version == 2 else "memory.oom_control")).read_text()
        except OSError:
            return None
        counts = dict(line.split() for line in text.splitlines())
        return int(counts["oom_kill"]) if "oom_kill" in counts else None

    def memory_peak(self) -> int | None:
        """The most bytes that were in use here at once, page cache included; None where nobody counts."""
        if "memory" not in self.controllers:
            return None
        version, base = self.controllers["memory"]
        path = next(p for p in self.paths if p.parent == base)
        try:
            return int((path / ("memory.peak" if version == 2 else "memory.max_usage_in_bytes")).read_text())
        except OSError:
            return None

    def remove(self, *, timeout: float) -> None:
        """Kill what is left and remove the directories. Blocking; a group that cannot be removed is logged and left to `sweep`."""
        give_up = time.monotonic() + timeout
        for path in self.paths:
            while path.is_dir():
                try:
                    path.rmdir()
                except OSError as error:
                    if time.monotonic() > give_up:
                        _log.warning("control group not removed", extra={"path": str(path), "reason": str(error)})
                        break
                    _kill_members(path)
                    time.sleep(0.002)
            for parent in path.parents[:2]:  # ours alone, and not empty while another sandbox runs
                with contextlib.suppress(OSError):
                    parent.rmdir()


def _kill_members(path: Path) -> None:
    try:
        pids = (path / "cgroup.procs").read_text().split()
    except OSError:
        return
    for pid in pids:
        if int(pid) == os.getpid():  # a thread of ours that starts a process here (see `birth`)
            continue
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            continue


def _cgroup_mounts(mountinfo: Path) -> dict[str, list[tuple[int, Path]]]:
    found: dict[str, list[tuple[int, Path]]] = {}
    try:
        lines = mountinfo.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(left.split()[4])
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup":
            for controller in set(options.split(",")) & set(CONTROLLERS):
                found.setdefault(controller, []).append((1, point))
        elif kind == "cgroup2":
            try:
                offered = (point / "cgroup.controllers").read_text().split()
            except OSError:
                continue
            for controller in set(offered) & set(CONTROLLERS):
                found.setdefault(controller, []).insert(0, (2, point))
    return found


def _base(version: int, mount: Path, controller: str, name: str, own: Path) -> Path:
    """Make and return the directory for our groups; raise OSError where that is not allowed."""
    if version == 1:
        base = mount / "autoclave" / name
        base.mkdir(parents=True, exist_ok=True)
        if not os.access(base, os.W_OK):
            raise PermissionError(13, "not writable")
        _weigh(version, mount / "autoclave", controller)
        return base
    top = mount
    if os.geteuid() != 0:  # only the subtree that was delegated to us
        path = next((line[3:].strip() for line in own.read_text().splitlines() if line.startswith("0::")), "/")
        top = mount / path.lstrip("/")
    base = top / "autoclave" / name
    base.mkdir(parents=True, exist_ok=True)
    for folder in (top, top / "autoclave", base):
        if controller not in (folder / "cgroup.subtree_control").read_text().split():
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    _weigh(version, top / "autoclave", controller)
    return base


def _weigh(version: int, ours: Path, controller: str) -> None:
    """Give all sandboxes together the weight of as many processes as there are cores.

    The kernel weighs a group like one process of the level above: a trainer with a thread for each core would leave dozens of
    sandboxes one process' share, and every deadline in them would be late.
    """
    if controller == "cpu":
        file, one, most = ("cpu.shares", 1024, 262_144) if version == 1 else ("cpu.weight", 100, 10_000)
        with contextlib.suppress(OSError):
            (ours / file).write_text(str(min(one * (os.cpu_count() or 1), most)))


def _values(controller: str, version: int, limits: Limits) -> list[tuple[str, str]]:
    memory, quota = str(limits.memory_mb * _MIB), int(limits.cpus * _CPU_PERIOD_US)
    if version == 2:
        return {
            "memory": [("memory.max", memory), ("memory.swap.max", "0")],
            "pids": [("pids.max", str(limits.pids))],
            "cpu": [("cpu.max", f"{quota} {_CPU_PERIOD_US}")],
        }[controller]
    return {
        # memory + swap together may hold what memory may: no swap. The order matters: memsw may never be the smaller one.
        "memory": [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)],
        "pids": [("pids.max", str(limits.pids))],
        "cpu": [("cpu.cfs_period_us", str(_CPU_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))],
    }[controller]


def resource_limits(limits: Limits, groups: Groups) -> dict[int, int]:
    """The limits that each process carries and its children inherit."""
    found = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_mb * _MIB,
        resource.RLIMIT_NOFILE: limits.descriptors,
    }
    if "memory" not in groups.bases:
        found[resource.RLIMIT_DATA] = limits.memory_mb * _MIB
    return found


def bound_process(pid: int, bounds: Mapping[int, int]) -> None:
    """Set resource limits of a process that has not started anything yet. To be called under its own user id, since root without
    CAP_SYS_RESOURCE may not."""
    for kind, value in bounds.items():
        _, hard = resource.prlimit(pid, kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, kind, (value, value))


def bound_forks(pid: int, limits: Limits) -> None:
    """Bound the processes of one user namespace. Set from outside once the namespace exists: since Linux 5.14 the kernel counts
    this limit per user namespace, so sandboxes that share a host uid do not count against each other."""
    bound_process(pid, {resource.RLIMIT_NPROC: limits.pids})


def forks_can_be_bounded() -> bool:
    """True where RLIMIT_NPROC is counted per user namespace."""
    major, minor = (int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    return (major, minor) >= (5, 14)


def in_force(groups: Groups, limits: Limits) -> dict[str, str]:
    """Say for each bound what holds it."""

    def by_group(controller: str, value: str, otherwise: str) -> str:
        if controller in groups.bases:
            return f"{value} (cgroup v{groups.bases[controller][0]})"
        return f"{otherwise}: {groups.missing[controller]}"

    forks = f"{limits.pids} (RLIMIT_NPROC of the user namespace)" if forks_can_be_bounded() else "not bounded"
    return {
        "memory": by_group("memory", f"{limits.memory_mb} MiB, no swap", f"{limits.memory_mb} MiB a process (RLIMIT_DATA)"),
        "pids": by_group("pids", str(limits.pids), forks),
        "cpu": by_group("cpu", f"{limits.cpus:g} cores", "not bounded"),
        "file_size": f"{limits.file_mb} MiB (RLIMIT_FSIZE)",
        "descriptors": f"{limits.descriptors} (RLIMIT_NOFILE)",
        "core_dumps": "none (RLIMIT_CORE)",
    }


@functools.lru_cache(maxsize=8)
def detected(settings: Settings) -> Groups:
    """The groups of these settings, looked for once. Blocking."""
    return Groups.detect(settings)
