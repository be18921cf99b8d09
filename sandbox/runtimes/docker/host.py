"""A container's processes, bounds and mounts as the host's own /proc and control groups show them. Blocking."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.runtimes import observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The control groups of one container: directory and cgroup version by controller."""

    paths: Mapping[str, tuple[int, Path]]

    @classmethod
    def of(cls, pid: int) -> Groups:
        """Find them by the membership of a container's first process."""
        found: dict[str, tuple[int, Path]] = {}
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, names, place = line.split(":", 2)
            for name in names.split(",") if names else ("memory", "pids", "cpu"):
                if (mount := _hierarchies().get(name)) is not None and (mount[0] == 1) == bool(names):
                    found[name] = (mount[0], mount[1] / place.lstrip("/"))
        return cls(paths=found)

    def pids(self) -> list[int]:
        """Host pids of everything that runs in the container; no process can leave its group."""
        _, path = self.paths["pids"]
        found: list[int] = []
        for folder, _, _ in os.walk(path):  # which says nothing of a directory that was removed with its container
            try:
                found += [int(line) for line in Path(folder, "cgroup.procs").read_text().split()]
            except OSError:
                continue
        return found

    def members(self) -> list[observe.Member]:
        """Every process with its pids outside and inside."""
        found = []
        for pid in self.pids():
            status = observe.fields(pid)
            if inside := status.get("NSpid", "").split():
                found.append(observe.Member(host=pid, inside=int(inside[-1]), parent=int(status.get("PPid", "0"))))
        return sorted(found, key=lambda member: member.inside)

    def value(self, controller: str, *names: str) -> str | None:
        """Read the first of these files that there is."""
        _, path = self.paths.get(controller, (0, Path("/nonexistent")))
        for name in names:
            try:
                return (path / name).read_text().strip()
            except OSError:
                continue
        return None

    def oom_kills(self) -> int:
        """How many processes the kernel killed here for memory."""
        text = self.value("memory", "memory.events", "memory.oom_control") or ""
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)

    def memory_peak(self) -> int | None:
        """The most bytes that were in use here at once, page cache included; None where nobody counts."""
        text = self.value("memory", "memory.peak", "memory.max_usage_in_bytes")
        return int(text) if text else None


@functools.cache
def _hierarchies() -> Mapping[str, tuple[int, Path]]:
    """Where each controller's hierarchy is mounted. One of version 1 holds what it lists, version 2 the rest."""
    found: dict[str, tuple[int, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        point, (kind, _, options) = Path(left.split()[4]), right.split(" ", 2)
        if kind == "cgroup":
            for name in options.split(","):
                found[name] = (1, point)
        elif kind == "cgroup2":
            for name in ("memory", "pids", "cpu"):
                found.setdefault(name, (2, point))
    return found


def first_process(pid: int) -> str:
    """Everything about a container's first process that a process of the same user could change and its children would inherit."""
    folder = Path(f"/proc/{pid}")
    status = observe.fields(pid)
    kept: tuple[str, ...] = (
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "SigBlk",
    )
    kept += ("SigIgn", "SigCgt", "Threads", "Cpus_allowed", "Mems_allowed", "CoreDumping", "Speculation_Store_Bypass")
    stat = (folder / "stat").read_text().rpartition(")")[2].split()
    scheduling = {"nice": stat[16], "priority": stat[15], "realtime": stat[37], "policy": stat[38]}
    clamps = [line for line in _text(folder / "sched").splitlines() if line.startswith("uclamp") or "effective" in line]
    descriptors = sorted((link.name, _target(link)) for link in (folder / "fd").iterdir())
    parts = [
        *(f"{name}: {status.get(name)}" for name in kept),
        *(f"{name}: {value}" for name, value in scheduling.items()),
        *clamps,
        f"io priority: {observe.io_priority(pid)}",
        f"out of memory: {_text(folder / 'oom_score_adj')}",
        f"directory: {_target(folder / 'cwd')}",
        *(f"descriptor {name}: {target}" for name, target in descriptors),
        _text(folder / "limits"),
    ]
    return "\n".join(parts)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
