"""What a way of cloning must be able to do. All blocking; the store calls it in threads and owns names, budget and clean-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.model import IdentityProof
from sandbox.storage.tree import HostTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The host ids that own a state directory."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a clone lies: in `holder`, thrown away as a whole. Without `upper` it is the one plain directory of `layers`."""

    holder: Path
    layers: tuple[str, ...]
    upper: str | None = None
    work: str | None = None


class Method(Protocol):
    """One way of cloning a directory. `holder` is always an empty directory that the store has just made."""

    @property
    def name(self) -> str: ...
    @property
    def clones_in_scratch(self) -> bool:
        """True where a clone of a sealed directory is made below `settings.scratch` instead of the store."""

    def blank(self, holder: Path, owner: Owner) -> Layout: ...
    def clone(self, layers: Sequence[str], holder: Path) -> Layout: ...
    def prove(self, layers: Sequence[str], layout: Layout) -> IdentityProof:
        """Compare a clone with its origin; `seconds` is filled in by the store."""

    def tree(self, layout: Layout) -> HostTree: ...
    def sealed_tree(self, layers: Sequence[str]) -> HostTree: ...
    def beyond(self, layout: Layout) -> int:
        """Return the bytes that the clone takes beyond its origin."""

    def seal_needs(self, layout: Layout) -> int:
        """Return the bytes that sealing it adds to the store."""

    def seal(self, layout: Layout, holder: Path) -> tuple[str, ...]:
        """Make a sealed directory below `holder` (on the store's filesystem) and return its layers; consumes the clone."""

    def release(self, holder: Path) -> None:
        """Make a holder deletable as an ordinary directory."""


def allocated(tree: HostTree, *, known: Callable[[str], int] = lambda _: 0) -> int:
    """Return the bytes that a tree takes on its disk, each file once, less what `known` says of a file's path."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for node in tree.nodes(skip_unreadable=True):
        key = (node.status.st_dev, node.status.st_ino)
        if node.status.st_nlink > 1 and node.kind != "dir":
            if key in seen:
                continue
            seen.add(key)
        held = node.status.st_blocks * 512
        total += max(0, held - known(node.path)) if held and node.kind == "file" else held
    return total
