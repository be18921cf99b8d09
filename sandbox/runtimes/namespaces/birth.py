"""Starting a process inside its control groups, instead of moving it there.

To move another process the kernel waits for a grace period, 8 ms and more on a quiet machine. A thread that moves itself alone
does not wait, and what it starts is born where it is. Version 1 control groups take threads; elsewhere the process is moved.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.runtimes.namespaces.limits import Group

_ITSELF = b"0"


class Birthplace:
    """The doors of a group's directories and of the manager's own, opened by the manager for a thread with fewer rights."""

    def __init__(self, inside: list[int], outside: list[int]) -> None:
        self._inside, self._outside = inside, outside

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the calling thread inside. It starts one process and does nothing else there."""
        try:
            for door in self._inside:
                os.write(door, _ITSELF)
            yield
        finally:
            for door in self._outside:
                os.write(door, _ITSELF)

    def close(self) -> None:
        for door in (*self._inside, *self._outside):
            os.close(door)


def birthplace(
    group: Group, *, mountinfo: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")
) -> Birthplace | None:
    """Return the doors of a group; None where there is none, where it is of version 2, or where the way back could not be found."""
    if not group.paths or any(version != 1 for version in group.paths.values()):
        return None
    doors: list[int] = []
    try:
        inside = [_opened(path, doors) for path in group.paths]
        outside = [_opened(_ours(path, mountinfo, own), doors) for path in group.paths]
    except (OSError, LookupError):
        for door in doors:
            os.close(door)
        return None
    return Birthplace(inside, outside)


def _opened(folder: Path, doors: list[int]) -> int:
    doors.append(os.open(folder / "tasks", os.O_WRONLY | os.O_CLOEXEC))
    return doors[-1]


def _ours(path: Path, mountinfo: Path, own: Path) -> Path:
    """Return the manager's own directory in the hierarchy that `path` lies in; raise LookupError."""
    for line in mountinfo.read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind != "cgroup" or not path.is_relative_to(point):
            continue
        controllers = set(options.split(","))
        for entry in own.read_text().splitlines():
            _, names, place = entry.split(":", 2)
            if names and set(names.split(",")) <= controllers:
                return Path(point) / Path(place).relative_to(root)
    raise LookupError(f"no hierarchy of ours holds {path}")
