"""Brings a directory of the host into a state directory: as one stream, the same bytes on every machine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from sandbox.errors import EnvironmentInvalid
from sandbox.model import ExecResult, Role
from sandbox.ports import SeedHost

_WHEN = 1_735_689_600  # 2025-01-01: one time for every file, since checkouts of one seed have different ones
_IGNORED = {"__pycache__", ".git"}


def archive(source: Path, *, ignore: frozenset[str] | set[str] = frozenset(_IGNORED)) -> bytes:
    """Return a directory's content as a tar stream: sorted, without owners, with one time. Blocking."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source)
            if ignore & set(name.parts):
                continue
            info = tar.gettarinfo(path, arcname=str(name))
            if info.islnk():  # each name of a file becomes a file of its own
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
            if not (info.isfile() or info.isdir() or info.issym()):
                raise EnvironmentInvalid(f"{path} is neither a file, a directory nor a link", fix="remove it from the seed")
            _plain(info)
            if info.isfile():
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    return out.getvalue()


def archive_of(files: Mapping[str, str]) -> bytes:
    """Return texts by relative path as a tar stream."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, text in sorted(files.items()):
            info = tarfile.TarInfo(name)
            data = text.encode()
            info.size, info.mode = len(data), 0o644
            _plain(info)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _plain(info: tarfile.TarInfo) -> None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = _WHEN


async def unpack(host: SeedHost, stream: bytes, target: str, *, role: Role) -> None:
    """Unpack a stream into the state directory at `target`."""
    done = await host.run(("tar", "-x", "-p", "-o", "-f", "-", "-C", target), role=role, stdin=stream)
    succeeded(done, "unpacking the seed")


def succeeded(done: ExecResult, what: str) -> bytes:
    """Return a trusted command's output; raise EnvironmentInvalid with what it said."""
    if done.exit_code or done.timed_out:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-800:]
        ended = "ran past its limit" if done.timed_out else f"ended with {done.exit_code}"
        raise EnvironmentInvalid(f"{what} {ended}: {said or 'no message'}")
    return done.stdout
