"""An instance as probes and scorers see it: from outside, read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sandbox.errors import InstanceLost
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, NamespaceId, ProcessInfo, Role
from sandbox.ports import Listener, Mount, Tree, TreeEntry
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.live import run_once
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.world import World


class Observed(Protocol):
    """What is looked at: an instance, or a part of one."""

    @property
    def namespace(self) -> NamespaceId: ...
    @property
    def name(self) -> str: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def boxes(self) -> Boxes: ...
    @property
    def world(self) -> World: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def rebased(self) -> bool: ...
    @property
    def in_force(self) -> Mapping[str, Any]: ...


class Subject:
    """Implements `sandbox.ports.Subject` over a running instance."""

    def __init__(self, instance: Observed) -> None:
        self._instance = instance

    @property
    def environment(self) -> EnvironmentSpec:
        return self._instance.plans.spec

    @property
    def namespace(self) -> NamespaceId:
        return self._instance.namespace

    @property
    def in_place(self) -> bool:
        return self._instance.in_place

    @property
    def proof(self) -> IdentityProof | None:
        return None if self._instance.in_place else self._instance.world.proof

    @property
    def in_force(self) -> Mapping[str, Any]:
        return self._instance.in_force

    def tree(self, resource: str, state: str | None = None) -> Tree:
        """Also takes `home` and `workspace`, where the agent's own directories belong to no resource."""
        states = self._instance.plans.states_of(resource)
        chosen = [s for s in states if state in (None, s.directory.name)]
        if not chosen:
            raise InstanceLost(f"environment {self.environment.name} has no state {resource}{f'/{state}' if state else ''}")
        tree = self._instance.world.clones[chosen[0].name].tree()
        return _Rebased(tree) if self._instance.rebased else tree

    def endpoint(self, resource: str) -> str:
        found = next(r for r in self._instance.plans.resources if r.spec.name == resource)
        return found.trusted_endpoint(self._instance.world.lives[resource])

    async def processes(self) -> Sequence[ProcessInfo]:
        return [info for sandbox in self._instance.world.sandboxes for info in await sandbox.processes()]

    async def listeners(self) -> Sequence[Listener]:
        return [found for sandbox in self._instance.world.sandboxes for found in await sandbox.listeners()]

    async def mounts(self, role: Role) -> Sequence[str]:
        lines: list[str] = []
        for sandbox in self._instance.world.sandboxes:
            if sandbox.plan.role is role:
                prefix = f"{sandbox.plan.resource}: " if sandbox.plan.resource else ""
                lines += [prefix + line for line in await sandbox.mounts()]
        return lines

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        """Sees the agent's directories, not the servers'. Nothing of the agent's may write meanwhile."""
        plan = await self._instance.plans.trusted(self._instance.world.clones, binds=binds, env=env, owner=self._instance.name)
        return await run_once(self._instance.boxes, plan, argv, stdin=b"", limit_s=limit_s)


class _Rebased:
    """A tree whose clone was made in the middle of a lineage (a snapshot was taken): what changed before is no longer known."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        return self._tree.walk(top)

    def entry(self, path: str) -> TreeEntry | None:
        return self._tree.entry(path)

    def real(self, path: str) -> Path:
        return self._tree.real(path)

    def read(self, path: str, limit: int | None = None) -> bytes:
        return self._tree.read(path, limit)

    def xattrs(self, path: str) -> Mapping[str, bytes]:
        return self._tree.xattrs(path)

    def changed(self) -> frozenset[str] | None:
        return None
