"""Cloning directories, and reading them from the host."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sandbox.model import (
    IdentityProof,
    Role,
    SealedDir,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One path of a tree. `kind`: file, dir, link, fifo, socket, char, block. `path` is relative, "" is the top; `os.fsdecode`d
    (surrogateescape)."""

    path: str
    kind: str
    mode: int  # permission bits only
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int
    target: str | None = None


@runtime_checkable
class Tree(Protocol):
    """The host's own read-only view of a state directory: the merged state of a clone's layers, read without running
    anything of the agent's. Blocking; call it in a thread."""

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        """Yield every entry below `top` (itself excluded), sorted by path component. Never follows links."""

    def entry(self, path: str) -> TreeEntry | None: ...
    def real(self, path: str) -> Path:
        """Return the host path where that entry's data lies (inside one layer); raise FileNotFoundError."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the file's bytes without following a link; raise FileNotFoundError, OSError(ELOOP)."""

    def xattrs(self, path: str) -> Mapping[str, bytes]:
        """Return extended attributes, those of the overlay itself left out."""

    def changed(self) -> frozenset[str] | None:
        """Return the paths touched since the clone was made (including deleted ones), None where the storage cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """How a sandbox sees a directory. One layer and no upper: a bind. With `upper`: an overlay (work beside
    it). Several layers and no upper: a read-only overlay."""

    target: str
    layers: tuple[str, ...]  # top first
    upper: str | None = None
    work: str | None = None
    readonly: bool = False


class Clone(Protocol):
    """A writable state directory made from a sealed one, under a name never used before."""

    @property
    def origin(self) -> SealedDir: ...
    @property
    def role(self) -> Role: ...
    def mount(self, target: str, *, readonly: bool = False) -> Mount: ...
    def tree(self) -> Tree: ...
    async def prove(self) -> IdentityProof:
        """Prove, before anything ran on it, that it equals its origin."""

    async def usage_bytes(self) -> int:
        """Return what it holds beyond its origin."""

    async def destroy(self) -> None:
        """Make it unreachable now; the deletion itself may go on in the background."""


class Storage(Protocol):
    """Clones directories. One object per store; safe for concurrent calls."""

    @property
    def name(self) -> str:
        """btrfs, reflink, overlay or copy: what is really in force."""

    @property
    def in_force(self) -> Mapping[str, Any]: ...
    async def blank(self, name: str, role: Role) -> Clone:
        """Return an empty writable directory, for seeding."""

    async def clone(self, sealed: SealedDir) -> Clone:
        """Return a fresh clone; raise SnapshotMissing."""

    async def seal(self, clone: Clone) -> SealedDir:
        """Make an immutable directory of a clone's merged state, digest it, and consume the clone. Nothing may be running on it."""

    async def verify(self, sealed: SealedDir) -> bool:
        """Digest it again and compare."""

    async def remove(self, sealed: SealedDir) -> None: ...
    async def sweep(self, keep: Collection[SealedDir]) -> tuple[str, ...]:
        """Delete every clone, and every sealed directory not in `keep` or below one of them; return what was deleted."""

    async def usage_bytes(self) -> int: ...
    async def close(self) -> None:
        """Finish background deletions."""
