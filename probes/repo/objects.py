"""Reading git's object store without git: which objects there are, and which of them the history of HEAD does not reach.

An agent that finds later commits in a repository finds the answer to its task; and an object that nothing refers to is a place to
leave a note. Nothing of the agent's is run, and its configuration is not read.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandbox.ports import Tree

LIMIT = 300_000  # objects examined
LARGEST = 400_000_000  # bytes of one pack
TREE_MODE = b"40000"
SUBMODULE = b"160000"
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS, _REF = 6, 7
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38,62}")


class ObjectMissing(LookupError):
    """An object that is referred to is not in the store."""


@dataclass(slots=True)
class _Pack:
    path: str
    offsets: dict[bytes, int]
    data: bytes | None = None


@dataclass(slots=True)
class ObjectStore:
    """The objects below one directory (`.git/objects`); alternates are not followed, and are a field of their own."""

    tree: Tree
    top: str
    hash_size: int = 20
    loose: set[bytes] = field(default_factory=set)
    packs: list[_Pack] = field(default_factory=list)

    def open(self) -> ObjectStore:
        """List what there is."""
        prefix = f"{self.top}/"
        for entry in self.tree.walk(self.top):
            rest = entry.path.removeprefix(prefix)
            if entry.kind == "file" and _LOOSE.fullmatch(rest):
                self.loose.add(bytes.fromhex(rest.replace("/", "")))
            elif entry.kind == "file" and rest.startswith("pack/") and rest.endswith(".idx"):
                self.packs.append(
                    _Pack(path=entry.path[:-4] + ".pack", offsets=_offsets(self.tree.read(entry.path), self.hash_size))
                )
        return self

    def names(self) -> set[bytes]:
        return self.loose.union(*(pack.offsets for pack in self.packs))

    def read(self, name: bytes) -> tuple[str, bytes]:
        """Return an object's kind and content."""
        if name in self.loose:
            text = name.hex()
            raw = zlib.decompress(self.tree.read(f"{self.top}/{text[:2]}/{text[2:]}"))
            head, _, body = raw.partition(b"\0")
            return head.split(b" ")[0].decode("ascii", "replace"), body
        for pack in self.packs:
            if name in pack.offsets:
                return self._packed(pack, pack.offsets[name])
        raise ObjectMissing(name.hex())

    def reached(self, start: bytes) -> tuple[set[bytes], int]:
        """Return every object that a commit's history reaches, and how many of them are commits. What is missing is passed over."""
        seen: set[bytes] = set()
        commits = 0
        waiting = [start]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            try:
                kind, body = self.read(name)
            except ObjectMissing:
                continue
            seen.add(name)
            commits += kind == "commit"
            for child, is_blob in _children(kind, body, self.hash_size):
                if is_blob:
                    seen.add(child)
                else:
                    waiting.append(child)
        return seen, commits

    def _packed(self, pack: _Pack, offset: int) -> tuple[str, bytes]:
        if pack.data is None:
            pack.data = self.tree.read(pack.path, LARGEST)
        kind, at = _head(pack.data, offset)
        if kind in _KINDS:
            return _KINDS[kind], _inflate(pack.data, at)
        if kind == _OFS:
            back, at = _distance(pack.data, at)
            base_kind, base = self._packed(pack, offset - back)
        elif kind == _REF:
            base_kind, base = self.read(pack.data[at : at + self.hash_size])
            at += self.hash_size
        else:
            raise ValueError(f"{pack.path}: object of kind {kind} at {offset}")
        return base_kind, _apply(base, _inflate(pack.data, at))


def _children(kind: str, body: bytes, hash_size: int) -> Iterator[tuple[bytes, bool]]:
    if kind == "commit":
        for line in body.split(b"\n\n", 1)[0].split(b"\n"):
            word, _, rest = line.partition(b" ")
            if word in (b"tree", b"parent"):
                yield bytes.fromhex(rest.decode("ascii")), False
    elif kind == "tag":
        yield bytes.fromhex(body.split(b"\n", 1)[0].partition(b" ")[2].decode("ascii")), False
    elif kind == "tree":
        at = 0
        while at < len(body):
            end = body.index(b"\0", at)
            mode = body[at:end].partition(b" ")[0]
            name = body[end + 1 : end + 1 + hash_size]
            at = end + 1 + hash_size
            if mode != SUBMODULE:
                yield name, mode != TREE_MODE


def _offsets(data: bytes, hash_size: int) -> dict[bytes, int]:
    """Read a pack's index, version 2."""
    if data[:8] != b"\xfftOc\x00\x00\x00\x02":
        raise ValueError("a pack index that is not of version 2")
    count = struct.unpack_from(">I", data, 8 + 255 * 4)[0]
    names = 8 + 1024
    small = names + count * (hash_size + 4)
    large = small + count * 4
    found = {}
    for i in range(count):
        offset = struct.unpack_from(">I", data, small + i * 4)[0]
        if offset & 0x80000000:
            offset = struct.unpack_from(">Q", data, large + (offset & 0x7FFFFFFF) * 8)[0]
        found[data[names + i * hash_size : names + (i + 1) * hash_size]] = offset
    return found


def _head(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    kind = (byte >> 4) & 7
    at += 1
    while byte & 0x80:
        byte = data[at]
        at += 1
    return kind, at


def _distance(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at


def _inflate(data: bytes, at: int) -> bytes:
    return zlib.decompressobj().decompress(memoryview(data)[at:])


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _apply(base: bytes, delta: bytes) -> bytes:
    """Rebuild an object from its base and a delta."""
    _, at = _size(delta, 0)
    _, at = _size(delta, at)
    parts = []
    while at < len(delta):
        command = delta[at]
        at += 1
        if not command & 0x80:
            parts.append(delta[at : at + command])
            at += command
            continue
        numbers = []
        for bits, width in ((command & 0x0F, 4), (command >> 4 & 0x07, 3)):
            value = 0
            for i in range(width):
                if bits >> i & 1:
                    value |= delta[at] << (8 * i)
                    at += 1
            numbers.append(value)
        offset, size = numbers[0], numbers[1] or 0x10000
        parts.append(base[offset : offset + size])
    return b"".join(parts)
