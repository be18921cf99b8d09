"""Trees as the engine's archive gives them: read without running anything of the container's. Blocking; for worker threads.

The engine's archive leaves out extended attributes other than file capabilities.
"""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from blake3 import blake3

from sandbox.errors import LimitReached

MOST_ENTRIES = 200_000
_CHUNK = 1 << 20
_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "same-as",
    tarfile.FIFOTYPE: "fifo",
    tarfile.CHRTYPE: "char",
    tarfile.BLKTYPE: "block",
}


def fetch(client: Any, container: str, path: str, file: IO[bytes]) -> None:
    """Write the archive of a path in a container to a file. Its entries begin with the path's last component."""
    stream, _ = client.get_archive(container, path, chunk_size=_CHUNK)
    for piece in stream:
        file.write(piece)


def lines_at(client: Any, container: str, path: str) -> dict[str, str]:
    """Describe everything at a path of a container, by path relative to it ("." is itself)."""
    stream, _ = client.get_archive(container, path, chunk_size=_CHUNK)
    return lines_of(Pieces(stream))


def lines_of(file: IO[bytes] | Pieces) -> dict[str, str]:
    """Describe every entry of an archive: kind, mode, owner, size, digest or link target. Times are left out."""
    found: dict[str, str] = {}
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for entry in archive:
            inner = entry.name.strip("/").partition("/")[2] or "."
            found[inner] = _line(archive, entry)
            if len(found) > MOST_ENTRIES:
                raise LimitReached(f"more than {MOST_ENTRIES} files in one tree of a container")
    return found


def _line(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    words = [_KINDS.get(entry.type, "other"), f"{stat.S_IMODE(entry.mode):04o}", f"{entry.uid}:{entry.gid}"]
    if entry.isreg():
        words += [str(entry.size), _content(archive, entry)]
    elif entry.issym():
        words.append(entry.linkname)
    elif entry.islnk():
        words.append(entry.linkname.strip("/").partition("/")[2])
    elif entry.ischr() or entry.isblk():
        words.append(f"{entry.devmajor}:{entry.devminor}")
    extra = {name: text for name, text in sorted(entry.pax_headers.items()) if name.startswith("SCHILY.xattr.")}
    if extra:
        words.append("xattrs " + hashlib.blake2b(repr(extra).encode(), digest_size=8).hexdigest())
    return " ".join(words)


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> str:
    hasher = blake3()
    content = archive.extractfile(entry)
    while content is not None and (piece := content.read(_CHUNK)):
        hasher.update(piece)
    return hasher.hexdigest()[:32]


def content_digest(data: bytes) -> str:
    return blake3(data).hexdigest()[:32]


def digest_of(lines: Mapping[str, str]) -> str:
    """Digest a described tree."""
    hasher = blake3(b"autoclave container tree 1\n")
    for path in sorted(lines):
        hasher.update(f"{path}\0{lines[path]}\0".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def of_file(source: Path, name: str, *, uid: int = 0, gid: int = 0) -> bytes:
    """Make an archive that lays a file or a directory of the host's at `name`; links stay links."""
    packed = io.BytesIO()

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid, entry.uname, entry.gname = uid, gid, "", ""
        return entry

    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname=name, filter=owned)
    return packed.getvalue()


def of_bytes(name: str, data: bytes, *, mode: int, uid: int, gid: int) -> bytes:
    """Make an archive of one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.uid, entry.gid = len(data), mode, uid, gid
        archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


class Pieces(io.RawIOBase):
    """A stream of pieces as a file that can be read forwards."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces: Iterator[bytes] = iter(pieces)
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            try:
                self._held = next(self._pieces)
            except StopIteration:
                return 0
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        return size
