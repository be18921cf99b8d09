"""The kind `shared-tree`: what a tree of directories that several namespaces share has beside the directories of each (isolation
`directory`), and what ties two of them together."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from probes.canonical import name_of
from probes.kinds import Options, digest_of_kind, read_options
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Sharing, Tree, TreeEntry

WAITS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


class TreeOptions(Options):
    """Nothing can be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTreeProbe:
    """Reads the top of the tree, and links between directories that belong to different namespaces."""

    name: str
    digest: str

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return Depth.QUICK

    def of_instance(self, field: str) -> bool:
        """No holder sees anything but its own directories, so that none of this is a holder's to change."""
        return True

    async def read(self, context: ProbeContext) -> Findings:
        sharing = context.sharing
        if sharing is None or sharing.tree is None:
            return Findings(fields={"tree": "none is shared"})
        return Findings(fields=await self._settled(sharing, sharing.tree))

    async def _settled(self, sharing: Sharing, tree: Tree) -> dict[str, str]:
        """Read it once no directory goes meanwhile: that of an earlier generation is removed while the next one is checked already,
        and nobody else takes anything away here."""
        for wait_s in WAITS_S:
            with suppress(FileNotFoundError):
                return await read_in_thread(_read, sharing, tree, frozenset(sharing.directories))
            await asyncio.sleep(wait_s)
        return await read_in_thread(_read, sharing, tree, frozenset(sharing.directories))


def _read(sharing: Sharing, tree: Tree, before: Collection[str]) -> dict[str, str]:
    """Directories come and go with the parts; what is nobody's is what no list of those that were made explains."""
    own = None if sharing.own is None else sharing.own.name
    top = tree.entry("")
    children = [entry for name in sorted(os.listdir(tree.real(""))) if (entry := tree.entry(name)) is not None]
    known = {*before, *tuple(sharing.directories)}
    strange = sorted(f"{e.kind} {name_of(e.path)}" for e in children if e.path not in known)
    walked = tree.walk() if own is None else (e for c in children if c.path.startswith(f"{own}.") for e in tree.walk(c.path))
    return {
        "top": "gone" if top is None else f"{top.kind} {top.mode:04o}",
        "nobody's": "\n".join(strange),
        "modes": "\n".join(sorted({f"{e.kind} {e.mode:04o}" for e in children if own and e.path.startswith(f"{own}.")})),
        "linked from elsewhere": "\n".join(_linked(walked)),
    }


def _linked(entries: Iterable[TreeEntry]) -> list[str]:
    """Name files that have a name outside of the directories of one part: more links than names in it."""
    names: dict[tuple[int, str], list[str]] = defaultdict(list)
    links: dict[tuple[int, str], int] = {}
    for entry in entries:
        if entry.kind != "dir" and entry.links > 1:
            key = (entry.inode, entry.path.partition(".")[0])
            names[key].append(entry.path)
            links[key] = entry.links
    return sorted(name_of(path.partition("/")[2]) for key, paths in names.items() if len(paths) < links[key] for path in paths)


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> SharedTreeProbe:
    """Make the probe of a shared tree."""
    options = read_options(spec, TreeOptions, environment)
    return SharedTreeProbe(name=spec.name, digest=digest_of_kind(spec, options))
