"""A container's writable layer: on the disk where it is on this machine, else through the engine. Blocking; for threads."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox.runtimes.docker.plain import archive
from sandbox.storage.tree import PlainTree


def upper(found: Mapping[str, Any]) -> Path | None:
    """The container's writable layer on the disk, where the engine says so."""
    place = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
    return Path(place) if place and Path(place).is_dir() else None


def copied_up(place: Path) -> Iterator[str]:
    """Yield the paths of all files in that layer. The engine's own list leaves out those of the size and time that they had."""
    for directory, _, names in os.walk(place, followlinks=False):
        for name in names:
            path = Path(directory) / name
            found = os.lstat(path)
            if not (stat.S_ISCHR(found.st_mode) and found.st_rdev == 0):  # a whiteout: what was removed, which the engine lists
                yield f"/{path.relative_to(place)}"


def on_disk(place: Path | str, path: str) -> str:
    """Describe one path of that layer; links are not followed."""
    tree = PlainTree(place)
    entry = tree.entry(path.strip("/"))
    if entry is None:
        return "gone meanwhile"
    words = [entry.kind, f"{entry.mode:04o}", f"{entry.uid}:{entry.gid}"]
    if entry.kind == "file":
        words += [str(entry.size), archive.content_digest(tree.read(entry.path))]
    elif entry.kind == "link":
        words.append(entry.target or "")
    elif entry.kind in ("char", "block"):
        device = os.lstat(tree.real(entry.path)).st_rdev
        words.append(f"{os.major(device)}:{os.minor(device)}")
    named = sorted(n for n in tree.xattrs(entry.path) if not n.startswith("trusted.overlay."))
    if named:
        words.append("xattrs " + " ".join(f"{n}={tree.xattrs(entry.path)[n].hex()}" for n in named))
    return " ".join(words)


def through_engine(client: Any, container: str, path: str) -> str:
    """Describe one path as the engine's archive gives it."""
    from docker import errors

    try:
        stream, told = client.get_archive(container, path)
        if told["mode"] >> 31 & 1:  # Go's mark of a directory: its own line alone, for what changed below is listed itself
            stream.close()
            return f"dir {told['mode'] & 0o777:04o}"
        return archive.lines_of(archive.Pieces(stream)).get(".", "gone meanwhile")
    except errors.NotFound:
        return "gone meanwhile"
