"""A container's writable layer: on the disk where it is on this machine, else through the engine. Blocking; for threads."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.runtimes.docker.plain import archive
from sandbox.storage.tree import PlainTree, raw_xattrs

GONE = "gone meanwhile"
_OVERLAYS = "trusted.overlay."


def upper(found: Mapping[str, Any]) -> Path | None:
    """The container's writable layer on the disk, where the engine says so."""
    place = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
    return Path(place) if place and Path(place).is_dir() else None


def lower(found: Mapping[str, Any]) -> tuple[Path, ...]:
    """The layers of its image on the disk, top first, where the engine says so."""
    places = ((found.get("GraphDriver") or {}).get("Data") or {}).get("LowerDir") or ""
    return tuple(Path(place) for place in places.split(":") if place)


def copied_up(place: Path, below: Sequence[Path] = ()) -> Iterator[str]:
    """Yield the paths of all files in that layer, and of directories that are not as the layers `below` have them. The engine's own
    list leaves out files of the size and time that they had, directories of which owner or attributes alone were changed, and the
    top."""
    for directory, folders, names in os.walk(place, followlinks=False):
        for name in ("", *folders, *names) if directory == str(place) else (*folders, *names):
            path = Path(directory, name)
            try:
                found = os.lstat(path)
                inner = str(path.relative_to(place))
                if stat.S_ISDIR(found.st_mode):
                    told = _altered(path, found, [layer / inner for layer in below])
                else:
                    told = not (stat.S_ISCHR(found.st_mode) and found.st_rdev == 0)  # a whiteout: removed, which the engine lists
            except FileNotFoundError:
                continue  # its program lives, and removed it meanwhile
            if told:
                yield "/" if inner == "." else f"/{inner}"


def _altered(path: Path, found: os.stat_result, below: Sequence[Path]) -> bool:
    """True for a directory that is not as the first of `below` has it; a new one is in the engine's list."""
    for other in below:
        try:
            had = os.lstat(other)
        except (FileNotFoundError, NotADirectoryError):
            continue
        same = (found.st_mode, found.st_uid, found.st_gid) == (had.st_mode, had.st_uid, had.st_gid)
        return not same or _attributes(path) != _attributes(other)
    return False


def _attributes(path: Path) -> dict[str, bytes]:
    return {name: value for name, value in raw_xattrs(str(path)).items() if not name.startswith(_OVERLAYS)}


def size_of(place: Path) -> int:
    """Bytes of all files below; what goes meanwhile counts nothing, and keeps nothing else from being counted. Blocking."""
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


def on_disk(place: Path | str, path: str) -> str:
    """Describe one path of that layer; links are not followed."""
    try:
        return _described(PlainTree(place), path)
    except FileNotFoundError:
        return GONE


def _described(tree: PlainTree, path: str) -> str:
    entry = tree.entry(path.strip("/"))
    if entry is None:
        return GONE
    words = [entry.kind, f"{entry.mode:04o}", f"{entry.uid}:{entry.gid}"]
    if entry.kind == "file":
        words += [str(entry.size), archive.content_digest(tree.read(entry.path))]
    elif entry.kind == "link":
        words.append(entry.target or "")
    elif entry.kind in ("char", "block"):
        device = os.lstat(tree.real(entry.path)).st_rdev
        words.append(f"{os.major(device)}:{os.minor(device)}")
    found = tree.xattrs(entry.path)
    named = sorted(n for n in found if not n.startswith(_OVERLAYS))
    if named:
        words.append("xattrs " + " ".join(f"{n}={found[n].hex()}" for n in named))
    return " ".join(words)


def through_engine(client: Any, container: str, path: str) -> str:
    """Describe one path as the engine's archive gives it."""
    from docker import errors

    try:
        stream, told = client.get_archive(container, path)
        if told["mode"] >> 31 & 1:  # Go's mark of a directory: its own line alone, for what changed below is listed itself
            stream.close()
            return f"dir {told['mode'] & 0o777:04o}"
        return archive.lines_of(archive.Pieces(stream)).get(".", GONE)
    except errors.NotFound:
        return GONE
