"""Single files of a running container, through the engine's archive."""

from __future__ import annotations

import errno
import io
import os
import posixpath
import tarfile
from typing import Any

from sandbox.errors import LimitReached
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.plain import archive

_LINKS = 16


async def read(engine: Engine, container: str, path: str, limit: int) -> bytes:
    """Return a file's bytes. Raises OSError as a program inside would meet it, LimitReached above `limit`."""
    found = await engine.call(lambda client: _read(client, container, path, limit), doing=f"reading {path}")
    if isinstance(found, OSError):
        raise found
    return found


def _read(client: Any, container: str, path: str, limit: int) -> bytes | OSError:
    from docker import errors

    place = path
    for _ in range(_LINKS):
        try:
            stream, _told = client.get_archive(container, place)
        except errors.NotFound as error:
            if "No such container" in str(error):
                raise
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with tarfile.open(fileobj=archive.Pieces(stream), mode="r|") as packed:
            entry = packed.next()
            if entry is None:
                return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if entry.issym():
                place = posixpath.normpath(posixpath.join(posixpath.dirname(place), entry.linkname))
                continue
            if entry.isdir():
                return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            content = packed.extractfile(entry)
            if content is None:
                return OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            if entry.size > limit:
                raise LimitReached(f"{path} holds {entry.size} bytes, more than {limit} (limit_bytes)")
            return content.read()
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def text(client: Any, container: str, path: str) -> str:
    """Return a small file's text; empty where there is none. Blocking."""
    found = _read(client, container, path, 1_000_000)
    return found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else ""


async def write(engine: Engine, container: str, path: str, data: bytes, mode: int) -> None:
    """Write a file as the container's user; parents are made. Raises OSError."""
    found = await engine.call(lambda client: _write(client, container, path, data, mode), doing=f"writing {path}")
    if found is not None:
        raise found


def _write(client: Any, container: str, path: str, data: bytes, mode: int) -> OSError | None:
    from docker import errors

    uid, gid = owner(client, container)
    parent, name = posixpath.split(path)
    if not name:
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    try:
        try:
            if client.put_archive(container, parent, archive.of_bytes(name, data, mode=mode, uid=uid, gid=gid)):
                return None
        except errors.NotFound as error:
            if "No such container" in str(error):
                raise
        client.put_archive(container, "/", _with_parents(path, data, mode, uid, gid))
    except errors.APIError as error:
        if "not a directory" in str(error) or "extraction point" in str(error):
            return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if "marked read-only" in str(error):
            return OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        raise
    return None


def _with_parents(path: str, data: bytes, mode: int, uid: int, gid: int) -> bytes:
    packed = io.BytesIO()
    words = path.strip("/").split("/")
    with tarfile.open(fileobj=packed, mode="w") as made:
        for depth in range(1, len(words)):
            folder = tarfile.TarInfo("/".join(words[:depth]))
            folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o755, uid, gid
            made.addfile(folder)
        entry = tarfile.TarInfo(path.strip("/"))
        entry.size, entry.mode, entry.uid, entry.gid = len(data), mode, uid, gid
        made.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def owner(client: Any, container: str) -> tuple[int, int]:
    """Return the ids of the user that a container's commands run as."""
    user, _, group = str(client.inspect_container(container)["Config"].get("User") or "0").partition(":")
    uid, own = _id(client, container, "/etc/passwd", user)
    gid, _ = _id(client, container, "/etc/group", group) if group else (own, 0)
    return uid, gid


def _id(client: Any, container: str, file: str, name: str) -> tuple[int, int]:
    """Look a user or group up: its id, and a user's own group."""
    for words in (line.split(":") for line in text(client, container, file).splitlines()):
        if len(words) > 2 and name in (words[0], words[2]) and words[2].isdigit():
            return int(words[2]), int(words[3]) if len(words) > 3 and words[3].isdigit() else 0
    return (int(name), 0) if name.isdigit() else (0, 0)
