"""Puts what sandboxes need where the dropped user ids can reach it, under names that say the content."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.errors import RuntimeUnavailable
from sandbox.settings import Settings


async def stage(settings: Settings, source: Path, name: str) -> Path:
    """Return `source` when the unprivileged ids can reach all of it, else a copy `store/staged/<digest>/<name>`, made once."""
    return await in_thread(stage_now, settings, source, name)


def stage_now(settings: Settings, source: Path, name: str) -> Path:
    """Like `stage`, blocking."""
    source = source.resolve()
    if not source.exists():
        raise RuntimeUnavailable(f"{name} is not at {source}", fix="reinstall the package that brings it")
    if settings.users.agent is None or reachable(source):
        return source
    return copy_together(settings, {name: source}) / name


def reachable(path: Path) -> bool:
    """True where any user can read `path` and everything below it, and pass every directory above it."""
    if not all(os.stat(parent).st_mode & stat.S_IXOTH for parent in path.parents):
        return False
    for entry in (path, *_below(path)):
        status = os.lstat(entry)
        wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else 0)
        if not stat.S_ISLNK(status.st_mode) and status.st_mode & wanted != wanted:
            return False
    return True


def copy_together(settings: Settings, parts: Mapping[str, Path]) -> Path:
    """Copy files and trees under their relative names into one directory that keeps their layout; return that directory."""
    digest = hashlib.blake2b(digest_size=16)
    for name, source in sorted(parts.items()):
        for path in (source, *_below(source)):
            digest.update(os.fsencode(f"{name}\0{path.relative_to(source)}\0"))
            digest.update(_content(path))

    def fill(folder: Path) -> None:
        for name, source in parts.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)

    return place(settings, digest.hexdigest(), fill)


def place(settings: Settings, digest: str, fill: Callable[[Path], None]) -> Path:
    """Return `store/staged/<digest>`, filled by `fill` unless it is there already; it appears whole or not at all."""
    top = staged_directory(settings)
    final = top / digest
    if final.is_dir():
        return final
    building = top / f".building-{uuid.uuid4().hex}"
    building.mkdir()
    try:
        fill(building)
        for path in (building, *_below(building)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                open_to_all = 0o555 if path.is_dir() or mode & stat.S_IXUSR else 0o444
                path.chmod(stat.S_IMODE(mode) & 0o755 | open_to_all)
        try:
            building.rename(final)
        except OSError:
            if not final.is_dir():  # another process of ours may have been first; the content is the same
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def staged_directory(settings: Settings) -> Path:
    """Make `store/staged`, passable by the unprivileged ids; raise RuntimeUnavailable naming the directory that stops them."""
    top = settings.store / "staged"
    missing = [p for p in (top, *top.parents) if not p.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    if settings.users.agent is not None:
        for path in (top, *top.parents):
            if not path.stat().st_mode & stat.S_IXOTH:
                raise RuntimeUnavailable(
                    f"the store {settings.store} cannot be used: {path} lets only its owner pass, and sandboxes run as other users",
                    fix="set AUTOCLAVE_STORE to a directory below which every directory is passable, such as /var/lib/autoclave",
                )
    return top


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            folders.sort()
            for name in sorted((*folders, *files)):
                yield Path(folder) / name


def _content(path: Path) -> bytes:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return b"link " + os.fsencode(os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return b"directory"
    with path.open("rb") as file:
        executable = b"program " if status.st_mode & stat.S_IXUSR else b"file "
        return executable + hashlib.file_digest(file, "blake2b").digest()
