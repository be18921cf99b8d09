"""A directory for each namespace under one shared tree (isolation `directory`).

The tree is a plain directory of the store. A part is made under a name never used before, by a trusted copy of golden that runs as
the agent's user and sees the new directory and golden only; a holder's sandbox sees its own directory and nothing of the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.aio import undo
from sandbox.errors import ResetFailed, SnapshotMissing
from sandbox.model import IdentityProof, Role, SealedDir
from sandbox.ports import Clone, Mount, Tree, TreeEntry
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.live import run_once
from sandbox.runtimes.group.plans import Plans, State

TREE = "/tree"
_GOLDEN = "/golden"
_COPY = 'umask 077; mkdir "$2" && cp -a "$1/." "$2/"'
_REMOVE = 'for d; do [ ! -e "$d" ] || { chmod -R u+rwX "$d"; rm -rf "$d"; }; done'


class SharedTree:
    """Makes and removes parts of one shared directory."""

    def __init__(self, boxes: Boxes, plans: Plans, clone: Clone) -> None:
        self._boxes = boxes
        self._plans = plans
        self.clone = clone
        self._numbers = itertools.count(1)
        self.directories: set[str] = set()  # made, and not removed yet

    @property
    def top(self) -> Path:
        return Path(self.clone.mount(TREE).layers[0])

    async def make(self, part: str, state: State, sealed: SealedDir) -> TreeClone:
        """Copy golden's directory to a fresh one of that part."""
        name = f"{part}.{state.owner}.{next(self._numbers)}"
        made = TreeClone(self, name, sealed)
        self.directories.add(name)
        golden = Mount(target=_GOLDEN, layers=sealed.layers, readonly=True)
        argv = ("/bin/sh", "-ec", _COPY, "sh", _GOLDEN, f"{TREE}/{name}")
        try:
            await self._errand(argv, golden, what=f"copying golden to {name}")
        except BaseException as error:
            await undo(error, self.remove(name))
            raise
        return made

    async def remove(self, *names: str) -> None:
        """Where the whole tree is gone already, so are they."""
        try:
            with contextlib.suppress(SnapshotMissing):
                await self._errand(("/bin/sh", "-c", _REMOVE, "sh", *(f"{TREE}/{n}" for n in names)), what="removing directories")
        finally:  # what is left of one that could not be removed is nobody's
            self.directories.difference_update(names)

    async def _errand(self, argv: tuple[str, ...], *binds: Mount, what: str) -> None:
        mounts = (self.clone.mount(TREE), *binds)
        plan = await self._plans.errand("", {}, role=Role.AGENT, binds=mounts)
        done = await run_once(self._boxes, plan, argv, stdin=b"", limit_s=300)
        if done.exit_code or done.timed_out:
            raise ResetFailed(f"{what}: {done.stderr.decode('utf-8', 'replace').strip()[-500:] or 'no message'}")


class TreeClone:
    """Implements `Clone` over one part's directory."""

    def __init__(self, tree: SharedTree, name: str, origin: SealedDir) -> None:
        self._tree = tree
        self.name = name
        self._origin = origin

    @property
    def origin(self) -> SealedDir:
        return self._origin

    @property
    def role(self) -> Role:
        return self._origin.role

    def mount(self, target: str, *, readonly: bool = False) -> Mount:
        return Mount(target=target, layers=(str(self._tree.top / self.name),), readonly=readonly)

    def tree(self) -> Tree:
        return Below(self._tree.clone.tree(), self.name)

    async def prove(self) -> IdentityProof:
        return IdentityProof(method="digest", holds=False, detail="a copy in a shared tree is proven by reading it")

    async def usage_bytes(self) -> int:
        return sum(entry.size for entry in self.tree().walk()) - self._origin.bytes

    async def destroy(self) -> None:
        await self._tree.remove(self.name)


class Below:
    """A tree below a directory of another."""

    def __init__(self, tree: Tree, top: str) -> None:
        self._tree = tree
        self._top = top

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        for entry in self._tree.walk(self._inside(top)):
            yield self._outside(entry)

    def entry(self, path: str) -> TreeEntry | None:
        found = self._tree.entry(self._inside(path))
        return None if found is None else self._outside(found)

    def real(self, path: str) -> Path:
        return self._tree.real(self._inside(path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        return self._tree.read(self._inside(path), limit)

    def xattrs(self, path: str) -> Mapping[str, bytes]:
        return self._tree.xattrs(self._inside(path))

    def changed(self) -> frozenset[str] | None:
        return None

    def _inside(self, path: str) -> str:
        return f"{self._top}/{path}" if path else self._top

    def _outside(self, entry: TreeEntry) -> TreeEntry:
        return dataclasses.replace(entry, path=entry.path.removeprefix(self._top).removeprefix("/"))
