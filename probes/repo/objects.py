"""Reading git's object store without git: which objects there are, and which of them the history of HEAD does not reach.

An agent that finds later commits in a repository finds the answer to its task; and an object that nothing refers to is a place to
leave a note. Nothing of the agent's is run, and its configuration is not read.

The objects are the agent's to write, so that each of them may be made to grow without end: what one may hold, how deep a chain of
deltas may go and how much is inflated in all have limits, and beyond one of them the store is not examined (ObjectsTooLarge).
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandbox.ports import Tree

LIMIT = 300_000  # objects examined
LARGEST = 400_000_000  # bytes of one pack, or of its index
OBJECT_LARGEST = 32_000_000  # bytes of one commit, tag, tree, or delta
BUDGET = 2_000_000_000  # bytes inflated and rebuilt in all
CHAIN = 200  # deltas upon deltas; git itself makes 50 at most
TREE_MODE = b"40000"
SUBMODULE = b"160000"
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS, _REF = 6, 7
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38,62}")


class ObjectMissing(LookupError):
    """An object that is referred to is not in the store."""


class ObjectsTooLarge(ValueError):
    """The store cannot be examined within its limits. A check that meets it is inconclusive: what is not read is not clean."""


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
    left: int = BUDGET

    def open(self) -> ObjectStore:
        """List what there is."""
        prefix = f"{self.top}/"
        for entry in self.tree.walk(self.top):
            rest = entry.path.removeprefix(prefix)
            if entry.kind == "file" and _LOOSE.fullmatch(rest):
                self.loose.add(bytes.fromhex(rest.replace("/", "")))
            elif entry.kind == "file" and rest.startswith("pack/") and rest.endswith(".idx"):
                index = _whole(self.tree, entry.path)
                self.packs.append(_Pack(path=entry.path[:-4] + ".pack", offsets=_offsets(index, self.hash_size)))
        return self

    def names(self) -> set[bytes]:
        return self.loose.union(*(pack.offsets for pack in self.packs))

    def read(self, name: bytes) -> tuple[str, bytes]:
        """Return an object's kind and content: the packed one where there are two, as git does. Raise ObjectMissing,
        ObjectsTooLarge, and ValueError for one that is not what its name says."""
        kind, body = self._found(name, 0)
        made = hashlib.new("sha256" if self.hash_size == 32 else "sha1", f"{kind} {len(body)}\0".encode(), usedforsecurity=False)
        made.update(body)
        if made.digest() != name:
            raise ValueError(f"the object {name.hex()} does not hold what its name says")
        return kind, body

    def _found(self, name: bytes, depth: int) -> tuple[str, bytes]:
        for pack in self.packs:
            if name in pack.offsets:
                return self._packed(pack, pack.offsets[name], depth)
        if name in self.loose:
            text = name.hex()
            path = f"{self.top}/{text[:2]}/{text[2:]}"
            head, _, body = self._inflate(self.tree.read(path, OBJECT_LARGEST), 0, path).partition(b"\0")
            return head.split(b" ")[0].decode("ascii", "replace"), body
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

    def _packed(self, pack: _Pack, offset: int, depth: int) -> tuple[str, bytes]:
        if depth > CHAIN:
            raise ObjectsTooLarge(f"{pack.path}: a chain of more than {CHAIN} deltas at {offset}")
        if pack.data is None:
            pack.data = _whole(self.tree, pack.path)
        kind, at = _head(pack.data, offset)
        if kind in _KINDS:
            return _KINDS[kind], self._inflate(pack.data, at, pack.path)
        if kind == _OFS:
            back, at = _distance(pack.data, at)
            base_kind, base = self._packed(pack, offset - back, depth + 1)
        elif kind == _REF:
            base_kind, base = self._found(pack.data[at : at + self.hash_size], depth + 1)
            at += self.hash_size
        else:
            raise ValueError(f"{pack.path}: object of kind {kind} at {offset}")
        body = _apply(base, self._inflate(pack.data, at, pack.path), pack.path)
        self._spend(len(body))
        return base_kind, body

    def _inflate(self, data: bytes, at: int, path: str) -> bytes:
        """Inflate one object, and never more of it than the limit."""
        allowed = min(OBJECT_LARGEST, self.left)
        body = zlib.decompressobj().decompress(memoryview(data)[at:], allowed + 1)
        if len(body) > allowed:
            what = f"one object holds more than {allowed} bytes" if allowed == OBJECT_LARGEST else _ALL
            raise ObjectsTooLarge(f"{path}: {what}; the repository is not examined")
        self._spend(len(body))
        return body

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ObjectsTooLarge(f"{self.top}: {_ALL}; the repository is not examined")


_ALL = f"its objects hold more than {BUDGET} bytes in all"


def _whole(tree: Tree, path: str) -> bytes:
    data = tree.read(path, LARGEST + 1)
    if len(data) > LARGEST:
        raise ObjectsTooLarge(f"{path}: more than {LARGEST} bytes; the repository is not examined")
    return data


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


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80 or shift > 63:
            return value, at


def _apply(base: bytes, delta: bytes, path: str) -> bytes:
    """Rebuild an object from its base and a delta, which may say in a few bytes to copy megabytes."""
    _, at = _size(delta, 0)
    _, at = _size(delta, at)
    parts: list[bytes] = []
    total = 0
    while at < len(delta):
        command = delta[at]
        at += 1
        if not command & 0x80:
            part = delta[at : at + command]
            at += command
        else:
            numbers = []
            for bits, width in ((command & 0x0F, 4), (command >> 4 & 0x07, 3)):
                value = 0
                for i in range(width):
                    if bits >> i & 1:
                        value |= delta[at] << (8 * i)
                        at += 1
                numbers.append(value)
            offset, size = numbers[0], numbers[1] or 0x10000
            part = base[offset : offset + size]
        total += len(part)
        if total > OBJECT_LARGEST:
            raise ObjectsTooLarge(f"{path}: a delta makes more than {OBJECT_LARGEST} bytes; the repository is not examined")
        parts.append(part)
    return b"".join(parts)
