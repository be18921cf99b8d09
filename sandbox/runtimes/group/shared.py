"""An instance that several namespaces share: one server (or one tree) with a part for each of them."""

from __future__ import annotations

import copy
import dataclasses
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.aio import run_shielded, undo
from sandbox.errors import AutoclaveError, EnvironmentInvalid, InstanceLost
from sandbox.model import IdentityProof, InstanceId, Isolation, Limits, Mismatch, NamespaceId, Role, Snapshot
from sandbox.ports import Divisible, Part, Resource, Sharing, Storage, Tree
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.sockets import SocketDirs
from sandbox.runtimes.group.subject import Subject
from sandbox.runtimes.group.tenant import Serving, Tenant
from sandbox.runtimes.group.together import all_of
from sandbox.runtimes.group.tree_parts import SharedTree
from sandbox.runtimes.group.tree_walls import leave_marks, marks_seen
from sandbox.runtimes.group.world import World
from sandbox.settings import Settings

log = logging.getLogger(__name__)
CANARY = "canary"
_TREE = "parts/tree"


class HostWorld(World):
    """What is shared: servers and their state, and nobody's commands."""

    def alive(self) -> bool:
        return self._servers_alive()

    async def _start_agent(self) -> None:
        return


class GroupShared:
    """Implements `SharedInstance`. Made by `begin`, ended by `close`."""

    def __init__(
        self, settings: Settings, storage: Storage, boxes: Boxes, plans: Plans, instance: InstanceId, snapshot: Snapshot
    ) -> None:
        self.settings, self._storage, self.boxes = settings, storage, boxes
        self.tenant_plans, self.plans = plans, _together(plans)
        self.id, self.snapshot = instance, snapshot
        self.generation = 0
        self.sockets = SocketDirs(settings)
        self.name = f"{instance}.{self.sockets.token}"
        self.names: set[str] = set()
        self._tenants: dict[NamespaceId, Tenant] = {}
        self._divided = _divided(plans)
        self._world: HostWorld | None = None
        self._tree: SharedTree | None = None
        self._touched = False  # a part was made since it started
        self.closed = False

    @classmethod
    async def begin(
        cls,
        settings: Settings,
        storage: Storage,
        boxes: Boxes,
        plans: Plans,
        instance: InstanceId,
        snapshot: Snapshot,
        generation: int,
    ) -> GroupShared:
        """Clone, prove, start. Nothing is left when that fails."""
        shared = cls(settings, storage, boxes, plans, instance, snapshot)
        try:
            await shared._come_up(snapshot, generation)
        except BaseException as error:
            await undo(error, shared.close())
            raise
        return shared

    # what the pool does

    async def open(self, namespace: NamespaceId, generation: int) -> Tenant:
        # The name is new each time: what bore the old one may still be on its way out.
        name = f"ns_{secrets.token_hex(6)}"
        self.names.add(name)
        tenant = Tenant(
            self.settings,
            self._storage,
            self.boxes,
            self.tenant_plans,
            namespace,
            self.snapshot,
            host=self,
            part_name=name,
        )
        self._tenants[namespace] = tenant
        self._touched = True
        await tenant.begin(generation)
        return tenant

    async def rebuild(self, snapshot: Snapshot, generation: int) -> None:
        old = self._world
        await self._down()
        # Two must not delete one tree: what one of them misses is left.
        await all_of(*(tenant.swept_up() for tenant in tuple(self._tenants.values())))
        if old is not None:
            await old.destroy()
        self.snapshot = snapshot
        await self._come_up(snapshot, generation)

    async def _come_up(self, snapshot: Snapshot, generation: int) -> None:
        self._touched, self._tree = False, None
        if self.plans.spec.isolation is Isolation.DIRECTORY:
            clone = await self._storage.blank(_TREE, Role.AGENT)
            self._world = HostWorld(self.boxes, self._storage, self.plans, self.sockets, {_TREE: clone}, self.name)
            self._tree = SharedTree(self.boxes, self.plans, clone)
        else:
            states = [s for s in self.plans.states if s.directory.role is Role.SERVER]
            self._world = await HostWorld.prepare(
                self.boxes, self._storage, self.plans, self.sockets, snapshot, self.name, states=states
            )
        await self._world.start(generation)
        self.generation = generation

    async def canaries(self) -> Sequence[Mismatch]:
        """A part of our own leaves marks; every other looks for them. What differs is the wall's, and so the instance's."""
        served = self.served
        if not self._tenants:
            return ()
        if served is None:
            return await self._try_tree()
        writer = Part(
            isolation=self.plans.spec.isolation,
            namespace=NamespaceId(CANARY),
            name=f"ns_{secrets.token_hex(6)}",
            secret=secrets.token_urlsafe(24),
        )
        self.names.add(writer.name)
        found: list[Mismatch] = []
        try:
            await served.divisible.make_part(served.live, writer)
            for tenant in tuple(self._tenants.values()):
                if await tenant.alive():
                    seen = await served.divisible.try_walls(served.live, writer, tenant.tenancy.part)
                    found += _through_walls(seen, tenant)
        finally:
            await run_shielded(served.divisible.drop_part(served.live, writer))
            self.names.discard(writer.name)
        return found

    async def _try_tree(self) -> Sequence[Mismatch]:
        """The same where a tree is shared: in sandboxes like those that holders have."""
        readers = tuple(self._tenants.values())
        mark = f"mark-{secrets.token_hex(8)}"
        directories = [s.directory.target for s in self.plans.states if s.directory.role is Role.AGENT]
        found: list[Mismatch] = []
        writer = await self.open(NamespaceId(f"{self.id}-{CANARY}"), 1)
        try:
            await leave_marks(writer, mark, directories)
            for tenant in readers:
                if await tenant.alive():
                    found += _through_walls(await marks_seen(tenant, mark, writer.part_name, directories), tenant)
        finally:
            await run_shielded(writer.close())
        return found

    def subject(self) -> HostSubject:
        return HostSubject(self)

    async def alive(self) -> bool:
        return self._world is not None and self._world.alive()

    async def close(self) -> None:
        """Idempotent; runs to its end."""
        await run_shielded(self._close())

    async def _close(self) -> None:
        self.closed = True
        await self._down()
        await all_of(*(tenant.close() for tenant in tuple(self._tenants.values())))
        await self.boxes.release(self.name)
        world, self._world = self._world, None
        if world is not None:
            await world.destroy()
        self.sockets.close()

    async def _down(self) -> None:
        """Nothing of the instance runs any more; its tenants' own sandboxes end first. A server that does not answer cannot fence
        them off: it is ended all the same, and they are asked once more without it."""
        unfenced = False
        try:
            await self._revoke_tenants()
        except AutoclaveError as error:
            log.warning("not fenced off by its server", extra={"instance": self.id, "reason": error.message})
            unfenced = True
        finally:
            self.sockets.revoke()
            if self._world is not None:
                await self._world.kill()
        if unfenced:
            await self._revoke_tenants()

    async def _revoke_tenants(self) -> None:
        await all_of(*(tenant.revoke() for tenant in tuple(self._tenants.values())))

    # what tenants and subjects need

    @property
    def namespace(self) -> NamespaceId:
        return NamespaceId(self.id)

    @property
    def world(self) -> World:
        if self._world is None:
            raise InstanceLost(f"the shared instance {self.id} is closed", fix="ask for a new session")
        return self._world

    @property
    def in_place(self) -> bool:
        return self._touched or self._tree is not None

    @property
    def rebased(self) -> bool:
        return False

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {
            "runtime": self.boxes.name,
            "isolation": self.plans.spec.isolation.value,
            "storage": self._storage.name,
            "namespaces_per_instance": self.plans.spec.namespaces_per_instance,
            "resources": {r.spec.name: dict(r.in_force) for r in self.plans.resources},
        }

    @property
    def served(self) -> Serving | None:
        if self._divided is None:
            return None
        resource, divisible = self._divided
        return Serving(resource=resource, divisible=divisible, live=self.world.lives[resource.spec.name])

    @property
    def tree(self) -> SharedTree | None:
        return self._tree

    def tree_of(self, resource: str, state: str | None) -> Tree:
        return Subject(self).tree(resource, state)

    def tokens(self) -> set[str]:
        """What the sandboxes and sockets of the instance and its tenants are known by."""
        return {self.sockets.token, *(tenant.sockets.token for tenant in self._tenants.values())}

    def forget(self, namespace: NamespaceId) -> None:
        tenant = self._tenants.pop(namespace, None)
        if tenant is not None:
            self.names.discard(tenant.part_name)


class HostSubject(Subject):
    """A shared instance as a whole."""

    def __init__(self, shared: GroupShared) -> None:
        super().__init__(shared)
        self._shared = shared

    @property
    def sharing(self) -> Sharing:
        tree, names = self._shared.tree, self._shared.names
        if tree is None:
            return Sharing(own=None, names=names)
        return Sharing(own=None, names=names, tree=tree.clone.tree(), directories=tree.directories)

    @property
    def proof(self) -> IdentityProof | None:
        return None if self.in_place else self._shared.world.proof

    def tree(self, resource: str, state: str | None = None) -> Tree:
        if self._shared.tree is not None:
            return self._shared.tree.clone.tree()
        return super().tree(resource, state)


def _through_walls(seen: Sequence[str], tenant: Tenant) -> list[Mismatch]:
    said = f"seen from {tenant.namespace}"
    return [Mismatch(probe=CANARY, field=what, expected=None, actual=said, shared=True) for what in seen]


def _divided(plans: Plans) -> tuple[Resource, Divisible] | None:
    """Return the one resource whose server is shared, None where it is a tree; raise EnvironmentInvalid."""
    spec = plans.spec
    servers = [r for r in plans.resources if r.server() is not None]
    able = [r for r in servers if isinstance(r, Divisible) and spec.isolation in r.isolations]
    wanted = 0 if spec.isolation is Isolation.DIRECTORY else 1
    if len(able) != wanted or len(servers) != wanted:
        names = ", ".join(f"{r.spec.name} ({r.spec.kind})" for r in servers) or "none"
        raise EnvironmentInvalid(
            f"environment {spec.name}: isolation {spec.isolation.value!r} needs {wanted} server that it can divide, not {names}",
            fix='set `isolation = "instance"`',
        )
    return (able[0], able[0]) if able else None


def _together(plans: Plans) -> Plans:
    """The plans of what is shared: its bounds are those of all namespaces together."""
    one, count = plans.spec.limits, plans.spec.namespaces_per_instance
    whole = Limits(
        memory_mb=one.memory_mb * count,
        cpus=one.cpus * count,
        pids=one.pids * count,
        disk_mb=one.disk_mb * count,
        file_mb=one.file_mb,
        descriptors=one.descriptors,
        output_bytes=one.output_bytes,
        action_s=one.action_s,
    )
    shared = copy.copy(plans)
    shared.spec = dataclasses.replace(plans.spec, limits=whole)
    return shared
