"""A namespace of an instance that several share: a sandbox and directories of its own, and a part of what the instance serves."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sandbox.errors import EnvironmentInvalid, ResetFailed
from sandbox.model import IdentityProof, InstanceId, NamespaceId, Role, Snapshot
from sandbox.ports import Divisible, LiveResource, Part, Resource, Sharing, Storage, Tree
from sandbox.runtimes.group.box import Box, Boxes
from sandbox.runtimes.group.instance import GroupInstance
from sandbox.runtimes.group.plans import Plans, State
from sandbox.runtimes.group.subject import Subject
from sandbox.runtimes.group.together import all_of, together
from sandbox.runtimes.group.tree_parts import SharedTree
from sandbox.runtimes.group.world import World
from sandbox.settings import Settings


class Host(Protocol):
    """What a tenant needs of the instance that it shares."""

    @property
    def id(self) -> InstanceId: ...
    @property
    def served(self) -> Serving | None:
        """The server that is shared; None where it is a tree."""

    @property
    def tree(self) -> SharedTree | None: ...
    @property
    def names(self) -> Collection[str]: ...
    def tree_of(self, resource: str, state: str | None) -> Tree:
        """Return the shared server's own state directory."""

    def forget(self, namespace: NamespaceId) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running server that is shared, and the code that knows how to divide it."""

    resource: Resource
    divisible: Divisible
    live: LiveResource

    @property
    def name(self) -> str:
        return self.resource.spec.name

    @property
    def up(self) -> bool:
        return self.live.socket_dir is not None and self.live.alive()


class TenantWorld(World):
    """One generation's own directories, sandbox and part."""

    part: Part
    served: Serving | None = None

    @property
    def servers(self) -> Mapping[str, Path]:
        socket_dir = None if self.served is None else self.served.live.socket_dir
        return {} if self.served is None or socket_dir is None else {self.served.name: socket_dir}

    @property
    def sandboxes(self) -> Sequence[Box]:
        return () if self.agent is None else (self.agent,)

    def alive(self) -> bool:
        return self.agent is not None and self.agent.alive() and (self.served is None or self.served.up)

    async def start(self, generation: int) -> None:
        await super().start(generation)
        if self.served is not None:
            _write_own(self.secret_file(self.served), self.served.divisible.part_secret(self.part))

    def secret_file(self, served: Serving) -> Path:
        return self._sockets.address(f"{served.name}.secret")

    async def _start_all(self) -> None:
        if self.proof is not None and not self.proof.holds:
            raise ResetFailed(f"a clone of {self._name} is not what was sealed: {self.proof.detail}")
        steps = [self._start_agent()]
        if self.served is not None:
            steps.append(self.served.divisible.make_part(self.served.live, self.part))
        await together(*steps)

    async def _start_agent(self) -> None:
        plan = await self._plans.agent(self._name, self.clones, self.servers)
        own = {} if self.served is None else self.served.divisible.part_env(self.part)
        self.agent = await self._boxes.start(dataclasses.replace(plan, env={**plan.env, **own}))

    async def disconnect(self) -> None:
        if self.served is not None and self.served.up:
            await self.served.divisible.disconnect_part(self.served.live, self.part)

    async def kill(self) -> None:
        """End the agent's processes, and every session on its part."""
        await all_of(self.kill_agent(), self._fence())

    async def _fence(self) -> None:
        if self.served is not None and self.served.up:
            await self.served.divisible.fence_part(self.served.live, self.part)

    async def drop(self) -> None:
        if self.served is not None and self.served.up:
            await self.served.divisible.drop_part(self.served.live, self.part)

    async def written_bytes(self) -> int:
        more = 0
        if self.served is not None and self.served.up:
            more = await self.served.divisible.part_bytes(self.served.live, self.part)
        return more + await super().written_bytes()


class Tenant(GroupInstance):
    """Implements `Instance` for a namespace of a shared instance."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        boxes: Boxes,
        plans: Plans,
        namespace: NamespaceId,
        snapshot: Snapshot,
        *,
        host: Host,
        part_name: str,
    ) -> None:
        super().__init__(settings, storage, boxes, plans, namespace, snapshot)
        self.host = host
        self.part_name = part_name

    @property
    def tenancy(self) -> TenantWorld:
        world = self.world
        assert isinstance(world, TenantWorld)
        return world

    @property
    def in_force(self) -> Mapping[str, Any]:
        isolation = self.plans.spec.isolation.value
        return {
            **super().in_force,
            "instance": self.host.id,
            "limits_of": "its sandbox; a shared server has those of all of its namespaces together",
            "reset_scope": f"{isolation}: its own {isolation} is made anew from golden, the instance that it shares is not",
        }

    def endpoint(self, resource: str) -> str:
        served = self.host.served
        if served is None or served.name != resource:
            return super().endpoint(resource)
        self._used = True
        secret = self.tenancy.secret_file(served)
        return served.divisible.part_endpoint(str(self.sockets.address(resource)), str(secret), self.tenancy.part)

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        raise ResetFailed(
            f"namespace {self.namespace} shares its instance: nothing is undone in place there", fix='set reset.method = "restore"'
        )

    async def snapshot_now(self) -> Snapshot:
        raise EnvironmentInvalid(
            f"namespace {self.namespace} shares its instance, of which no snapshot can be taken for one holder",
            fix='snapshots and forks need `isolation = "instance"`',
        )

    def subject(self) -> TenantSubject:
        return TenantSubject(self)

    async def swept_up(self) -> None:
        """Wait until what it left of earlier generations is removed."""
        if self._leftover:
            await asyncio.wait(self._leftover)

    async def _prepare(self, snapshot: Snapshot) -> World:
        part = Part(
            isolation=self.plans.spec.isolation,
            namespace=self.namespace,
            name=self.part_name,
            secret=secrets.token_urlsafe(24),
        )
        world = await self._own_world(snapshot)
        world.part, world.served = part, self.host.served
        return world

    async def _own_world(self, snapshot: Snapshot) -> TenantWorld:
        own = [s for s in self.plans.states if s.directory.role is Role.AGENT]
        tree = self.host.tree
        if tree is None:
            return await TenantWorld.prepare(self.boxes, self._storage, self.plans, self.sockets, snapshot, self.name, states=own)
        clones: dict[str, Any] = {}

        async def one(state: State) -> None:
            clones[state.name] = await tree.make(self.part_name, state, self.plans.sealed(state, snapshot.dirs))

        try:
            await together(*(one(state) for state in own))
        except BaseException:
            await all_of(*(clone.destroy() for clone in clones.values()))
            raise
        return TenantWorld(self.boxes, self._storage, self.plans, self.sockets, clones, self.name)

    async def _close(self) -> None:
        world = self._world
        try:
            if isinstance(world, TenantWorld):
                await self._down()
                await world.drop()
        finally:
            await super()._close()
            self.host.forget(self.namespace)


class TenantSubject(Subject):
    """A namespace of a shared instance, as probes see it: its own part, and what nobody may change."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(tenant)
        self._tenant = tenant

    @property
    def in_place(self) -> bool:
        """The instance was not replaced, and no proof covers a part of it: everything is read."""
        return True

    @property
    def proof(self) -> IdentityProof | None:
        return None

    @property
    def sharing(self) -> Sharing:
        host = self._tenant.host
        own = self._tenant.tenancy.part
        if host.tree is None:
            return Sharing(own=own, names=host.names)
        return Sharing(own=own, names=host.names, tree=host.tree.clone.tree(), directories=host.tree.directories)

    def tree(self, resource: str, state: str | None = None) -> Tree:
        served = self._tenant.host.served
        if served is not None and served.name == resource:
            return self._tenant.host.tree_of(resource, state)
        return super().tree(resource, state)

    def endpoint(self, resource: str) -> str:
        served = self._tenant.host.served
        if served is not None and served.name == resource:
            return served.divisible.trusted_part_endpoint(served.live, self._tenant.tenancy.part)
        return super().endpoint(resource)


def _write_own(path: Path, text: str) -> None:
    """Write a file that only we can read."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
