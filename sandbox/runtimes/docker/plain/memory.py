"""What a container holds in memory beside its processes, read from the host: mounted memory, System V objects, message queues.

After a restore all of it is new with the container; what a hook leaves of it would be read by nobody else. Blocking.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.errors import InstanceLost, LimitReached
from sandbox.runtimes.docker.plain import layer
from sandbox.runtimes.docker.plain.reach import CLONE_NEWIPC, enter
from sandbox.storage.tree import PlainTree

_KINDS = ("tmpfs", "ramfs", "mqueue")
_SYSTEM = ("/proc", "/sys")  # what the engine covers there with empty memory, read-only
_MOST = 20_000
_ESCAPED = re.compile(r"\\([0-7]{3})")


def contents(pid: int) -> dict[str, dict[str, str]]:
    """Describe everything in the memory that is mounted in a container, by where it is mounted and by path ("." is the top)."""
    return {target: _described(pid, target) for target in _mounted(pid)}


def objects(pid: int, container: str) -> tuple[str, ...]:
    """One line for each System V object of a container: kind, key, mode, size and owner; what is new each time is left out."""
    found: list[str] = []
    errors: list[Exception] = []

    def work() -> None:  # a thread of its own enters the container's namespace, and ends there
        try:
            enter(pid, container, "ipc", CLONE_NEWIPC)
            found.extend(line for kind in _COLUMNS for line in _table(kind))
        except (OSError, ValueError, IndexError) as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="autoclave-ipc", daemon=True)
    thread.start()
    thread.join(timeout=30)
    if errors or thread.is_alive():
        raise InstanceLost(f"the System V objects of container {container[:12]} cannot be read: {errors or 'no answer'}")
    return tuple(sorted(found))


_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "shm": ("key", "perms", "size", "uid", "gid", "cuid", "cgid"),
    "sem": ("key", "perms", "nsems", "uid", "gid", "cuid", "cgid"),
    "msg": ("key", "perms", "cbytes", "qnum", "uid", "gid", "cuid", "cgid"),
}


def _table(kind: str) -> Iterator[str]:
    head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    names = head.split()
    for line in lines:
        row = dict(zip(names, line.split(), strict=False))
        yield " ".join([kind, *(f"{name}={row[name]}" for name in _COLUMNS[kind])])


def _mounted(pid: int) -> list[str]:
    found = set()
    for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        target = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), left.split()[4])
        if right.split()[0] in _KINDS and not any(target == top or target.startswith(f"{top}/") for top in _SYSTEM):
            found.add(target)
    return sorted(found)


def _described(pid: int, target: str) -> dict[str, str]:
    with _opened(pid, target) as top:
        tree = PlainTree(top)
        device = tree.top().status.st_dev
        lines = {".": layer.on_disk(top, "")}
        waiting = [tree.top()]
        while waiting:
            for node in tree.children(waiting.pop()).values():
                if node.status.st_dev != device:
                    continue  # something else is mounted there, and is read at its own place
                with contextlib.suppress(FileNotFoundError):
                    lines[node.path] = layer.on_disk(top, node.path)
                if node.kind == "dir":
                    waiting.append(node)
                if len(lines) > _MOST:
                    raise LimitReached(f"more than {_MOST} files in the memory at {target} of a container")
        return lines


@contextlib.contextmanager
def _opened(pid: int, target: str) -> Iterator[str]:
    """Open a directory of a container by its path there; no component may be a link, for it would be followed on the host."""
    descriptor = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in filter(None, target.split("/")):
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield f"/proc/self/fd/{descriptor}/."
    finally:
        os.close(descriptor)
