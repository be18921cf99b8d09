"""Reading git's index file: what is staged, and the flags that hide edits. Versions 2, 3 and 4; stat data is left out."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from probes.canonical import digest_of, name_of

EXTENSIONS = {b"link": "split index", b"sdir": "sparse directories", b"FSMN": "file system monitor", b"UNTR": "untracked cache"}
PATH_MAX = 4096
_ASSUME, _EXTENDED, _STAGE = 0x8000, 0x4000, 0x3000
_SKIP, _INTENT = 0x4000, 0x2000


@dataclass(frozen=True, slots=True)
class IndexEntry:
    path: bytes
    mode: int
    name: bytes
    stage: int
    assume: bool = False
    skip: bool = False
    intent: bool = False


def parse_index(data: bytes, hash_size: int = 20) -> tuple[list[IndexEntry], tuple[str, ...]]:
    """Return the entries and the extensions that matter; raise ValueError for what is no index."""
    if data[:4] != b"DIRC" or len(data) < 12 + hash_size:
        raise ValueError("not an index file")
    version, count = struct.unpack(">II", data[4:12])
    if version not in (2, 3, 4):
        raise ValueError(f"index version {version} is not known")
    entries: list[IndexEntry] = []
    at, previous = 12, b""
    for _ in range(count):
        entry, at = _entry(data, at, version, hash_size, previous)
        previous = entry.path
        entries.append(entry)
    return entries, _extensions(data, at, hash_size)


def read_index(data: bytes, hash_size: int = 20) -> Mapping[str, str]:
    """Describe an index in fields."""
    entries, extensions = parse_index(data, hash_size)
    parts = (p for e in entries for p in (f"{e.mode:o} {e.name.hex()} {e.stage}", _shown(e)))
    return {
        "entries": f"{len(entries)}, {digest_of(parts)[:32]}",
        "assume-unchanged": _lines(e for e in entries if e.assume),
        "skip-worktree": _lines(e for e in entries if e.skip),
        "intent-to-add": _lines(e for e in entries if e.intent),
        "unmerged": _lines(e for e in entries if e.stage),
        "extensions": ", ".join(extensions),
    }


def _entry(data: bytes, at: int, version: int, hash_size: int, previous: bytes) -> tuple[IndexEntry, int]:
    start = at
    (mode,) = struct.unpack_from(">I", data, at + 24)
    at += 40
    name = data[at : at + hash_size]
    (flags,) = struct.unpack_from(">H", data, at + hash_size)
    at += hash_size + 2
    more = 0
    if flags & _EXTENDED:
        (more,) = struct.unpack_from(">H", data, at)
        at += 2
    if version == 4:
        dropped, at = _varint(data, at)
        end = data.index(b"\0", at)
        path = previous[: len(previous) - dropped] + data[at:end]
        at = end + 1
    else:
        end = data.index(b"\0", at)
        path = data[at:end]
        at = start + ((end - start) // 8 + 1) * 8  # padded with one to eight zero bytes
    if len(path) > PATH_MAX:  # version 4 builds on the path before it: unbounded, a small file could make gigabytes of them
        raise ValueError(f"an index entry's path has more than {PATH_MAX} bytes")
    return (
        IndexEntry(
            path=path,
            mode=mode,
            name=name,
            stage=(flags & _STAGE) >> 12,
            assume=bool(flags & _ASSUME),
            skip=bool(more & _SKIP),
            intent=bool(more & _INTENT),
        ),
        at,
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Git's offset encoding: each further byte adds one."""
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at


def _extensions(data: bytes, at: int, hash_size: int) -> tuple[str, ...]:
    found = []
    while at + 8 <= len(data) - hash_size:
        name = data[at : at + 4]
        (size,) = struct.unpack_from(">I", data, at + 4)
        if name in EXTENSIONS:
            found.append(EXTENSIONS[name])
        at += 8 + size
    return tuple(sorted(found))


def _shown(entry: IndexEntry) -> str:
    return name_of(entry.path.decode("utf-8", "surrogateescape"))


def _lines(entries: Iterable[IndexEntry]) -> str:
    return "\n".join(_shown(e) for e in entries)
