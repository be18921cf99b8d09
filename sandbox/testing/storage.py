"""Directories in memory: sealed ones by digest, clones as dictionaries."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox.errors import SnapshotMissing
from sandbox.model import NOTHING, IdentityProof, Role, SealedDir
from sandbox.ports import Mount, TreeEntry


def digest_of(files: Mapping[str, str]) -> str:
    return hashlib.blake2b(repr(sorted(files.items())).encode(), digest_size=16).hexdigest()


class MemoryTree:
    """A read-only view of files in memory."""

    def __init__(self, files: Mapping[str, str], origin: Mapping[str, str] | None = None) -> None:
        self._files = files
        self._origin = origin

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        prefix = f"{top}/" if top else ""
        for path in sorted(self._files):
            if path.startswith(prefix) and (entry := self.entry(path)) is not None:
                yield entry

    def entry(self, path: str) -> TreeEntry | None:
        if path not in self._files:
            return None
        return TreeEntry(
            path=path, kind="file", mode=0o644, uid=0, gid=0, size=len(self._files[path]), mtime_ns=0, ctime_ns=0, inode=0, links=1
        )

    def real(self, path: str) -> Path:
        raise FileNotFoundError(path)

    def read(self, path: str, limit: int | None = None) -> bytes:
        try:
            return self._files[path].encode()[:limit]
        except KeyError:
            raise FileNotFoundError(path) from None

    def xattrs(self, path: str) -> Mapping[str, bytes]:
        return NOTHING

    def changed(self) -> frozenset[str] | None:
        if self._origin is None:
            return None
        return frozenset(p for p in {*self._files, *self._origin} if self._files.get(p) != self._origin.get(p))


class MemoryClone:
    """A writable state directory in memory."""

    def __init__(self, storage: MemoryStorage, origin: SealedDir, files: dict[str, str]) -> None:
        self._storage = storage
        self.origin = origin
        self.files = files

    @property
    def role(self) -> Role:
        return self.origin.role

    def mount(self, target: str, *, readonly: bool = False) -> Mount:
        return Mount(target=target, layers=self.origin.layers, readonly=readonly)

    def tree(self) -> MemoryTree:
        return MemoryTree(self.files, self._storage.content(self.origin))

    async def prove(self) -> IdentityProof:
        holds = digest_of(self.files) == self.origin.digest
        return IdentityProof(method="digest", holds=holds, detail="" if holds else "the clone differs from its sealed directory")

    async def usage_bytes(self) -> int:
        return sum(len(self.files[p]) for p in self.tree().changed() or () if p in self.files)

    async def destroy(self) -> None:
        self._storage.clones.discard(self)


class MemoryStorage:
    """Keeps sealed directories; outlives pools, as a disk would."""

    name = "memory"

    def __init__(self) -> None:
        self.sealed: dict[str, dict[str, str]] = {}
        self.clones: set[MemoryClone] = set()
        self._numbers = itertools.count(1)

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"storage": self.name}

    def content(self, sealed: SealedDir) -> dict[str, str]:
        """Return a sealed directory's files; a test that changes them breaks its seal."""
        try:
            return self.sealed[sealed.layers[0]]
        except (KeyError, IndexError):
            raise SnapshotMissing(f"{sealed.name} is not in the store") from None

    async def blank(self, name: str, role: Role) -> MemoryClone:
        return self._clone(SealedDir(name=name, layers=(), digest=digest_of({}), role=role), {})

    async def clone(self, sealed: SealedDir) -> MemoryClone:
        return self._clone(sealed, dict(self.content(sealed)))

    async def seal(self, clone: Any) -> SealedDir:
        layer = f"memory-{next(self._numbers)}"
        self.sealed[layer] = dict(clone.files)
        await clone.destroy()
        return SealedDir(
            name=clone.origin.name, layers=(layer,), digest=digest_of(clone.files), role=clone.origin.role, files=len(clone.files)
        )

    async def verify(self, sealed: SealedDir) -> bool:
        return digest_of(self.content(sealed)) == sealed.digest

    async def remove(self, sealed: SealedDir) -> None:
        self.sealed.pop(sealed.layers[0], None)

    async def sweep(self, keep: Collection[SealedDir]) -> tuple[str, ...]:
        kept = {layer for sealed in keep for layer in sealed.layers}
        gone = tuple(layer for layer in self.sealed if layer not in kept)
        for layer in gone:
            del self.sealed[layer]
        self.clones.clear()
        return gone

    async def usage_bytes(self) -> int:
        return sum(len(text) for files in self.sealed.values() for text in files.values())

    async def close(self) -> None:
        return None

    def _clone(self, origin: SealedDir, files: dict[str, str]) -> MemoryClone:
        clone = MemoryClone(self, origin, files)
        self.clones.add(clone)
        return clone
