"""What every runtime does alike: builds golden states, derives task states, starts instances, removes what was left behind."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import EnvironmentInvalid
from sandbox.model import InstanceId, NamespaceId, Role, SealedDir, Snapshot, TaskSpec
from sandbox.ports import Clone, Environment, Storage
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.instance import GroupInstance
from sandbox.runtimes.group.live import run_once
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.seeding import Seeder
from sandbox.runtimes.group.shared import GroupShared
from sandbox.runtimes.group.snapshots import joined, seal_all
from sandbox.runtimes.group.sockets import SocketDirs, remove_empty, sweep_sockets
from sandbox.runtimes.group.together import all_of
from sandbox.settings import Settings

log = logging.getLogger(__name__)


class GroupRuntime:
    """Implements `Runtime` over what one runtime makes boxes of."""

    def __init__(self, settings: Settings, storage: Storage, boxes: Boxes) -> None:
        self._settings = settings
        self._boxes = boxes
        self.name = boxes.name
        self._storage = storage
        self._instances: set[GroupInstance] = set()
        self._shared: set[GroupShared] = set()
        self._seeding: set[str] = set()
        self._plans: dict[int, tuple[Environment, Plans]] = {}

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def in_force(self) -> Mapping[str, Any]:
        users = self._settings.users
        return {
            "runtime": self.name,
            **self._boxes.in_force,
            "users": "the manager's own" if users.agent is None else f"agent {users.agent}, servers {users.server}",
            **self._storage.in_force,
        }

    async def identity(self, environment: Environment) -> str:
        return await self._boxes.identity(environment.spec.root, environment.spec.image)

    async def build(self, environment: Environment) -> Snapshot:
        plans = self._planned(environment)
        clones = {s.name: await self._storage.blank(s.name, s.directory.role) for s in plans.states}
        try:
            for resource in plans.resources:
                await self._seed(plans, clones, resource.spec.name, None)
            await self._make_mount_points(plans, clones)
            dirs = await seal_all(self._storage, plans, clones)
        except BaseException as error:
            await undo(error, *(clone.destroy() for clone in clones.values()))
            raise
        return joined(plans.spec, dirs, self._storage, parent=None, task=None, runtime=self.name)

    async def derive(self, environment: Environment, golden: Snapshot, task: TaskSpec) -> Snapshot:
        """Directories of resources that the task does not change are golden's own."""
        plans = self._planned(environment)
        unknown = sorted(set(task.start) - {r.spec.name for r in plans.resources})
        if unknown:
            raise EnvironmentInvalid(
                f"task {task.id} of environment {plans.spec.name}: no resource {', '.join(unknown)} to start from"
            )
        changed = [s for s in plans.states if s.owner in task.start]
        clones: dict[str, Clone] = {}
        sealed: dict[str, SealedDir] = {}
        try:
            for state in changed:
                clones[state.name] = await self._storage.clone(plans.sealed(state, golden.dirs))
            for owner, options in task.start.items():
                await self._seed(plans, clones, owner, options)
            for state in changed:
                sealed[state.name] = await self._storage.seal(clones[state.name])
        except BaseException as error:
            removals = (self._storage.remove(directory) for directory in sealed.values())
            await undo(error, *(clone.destroy() for clone in clones.values()), *removals)
            raise
        dirs = [sealed.get(d.name, d) for d in golden.dirs]
        return joined(plans.spec, dirs, self._storage, parent=golden.id, task=task.id, runtime=self.name)

    async def start(self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> GroupInstance:
        plans = self._planned(environment)
        instance = await GroupInstance.open(self._settings, self._storage, self._boxes, plans, snapshot, namespace, generation)
        self._instances = {i for i in self._instances if not i.closed} | {instance}
        return instance

    async def start_shared(
        self, environment: Environment, snapshot: Snapshot, instance: InstanceId, generation: int
    ) -> GroupShared:
        plans = self._planned(environment)
        shared = await GroupShared.begin(self._settings, self._storage, self._boxes, plans, instance, snapshot, generation)
        self._shared = {s for s in self._shared if not s.closed} | {shared}
        return shared

    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        keep = {i.sockets.token for i in self._instances if not i.closed} | self._seeding
        keep |= {token for shared in self._shared if not shared.closed for token in shared.tokens()}
        keep |= {plans.token for _, plans in self._plans.values()}
        tokens = frozenset(keep)
        gone = await self._boxes.sweep(tokens, dry_run=dry_run)
        return (*gone, *await in_thread(sweep_sockets, self._settings, tokens, dry_run=dry_run))

    async def close(self) -> None:
        """Close everything, whatever of it fails."""
        async with AsyncExitStack() as stack:  # in the reverse order
            stack.push_async_callback(in_thread, remove_empty, self._settings)
            stack.push_async_callback(self._boxes.close)
            stack.push_async_callback(_close_all, self._instances)
            stack.push_async_callback(_close_all, self._shared)

    def _planned(self, environment: Environment) -> Plans:
        """Plans are kept with their environment: they remember which programs were staged."""
        known = self._plans.get(id(environment))
        if known is None or known[0] is not environment:
            known = self._plans[id(environment)] = (environment, Plans(self._settings, environment))
        return known[1]

    async def _seed(self, plans: Plans, clones: Mapping[str, Clone], owner: str, options: Mapping[str, Any] | None) -> None:
        resource = next(r for r in plans.resources if r.spec.name == owner)
        sockets = SocketDirs(self._settings)
        self._seeding.add(sockets.token)
        seeder = Seeder(self._boxes, plans, resource, clones, sockets)
        try:
            await (resource.seed(seeder) if options is None else resource.start_state(seeder, options))
        finally:
            await run_shielded(seeder.close())
            sockets.close()
            self._seeding.discard(sockets.token)

    async def _make_mount_points(self, plans: Plans, clones: Mapping[str, Clone]) -> None:
        """Directories at which others will be mounted belong to the state: they must not appear only when the agent starts."""
        for state in plans.states:
            inner = plans.inner_directories(state) if state.directory.role is Role.AGENT else ()
            if inner:
                paths = [f"{state.directory.target}/{name}" for name in inner]
                plan = await plans.errand(state.owner, clones, role=Role.AGENT)
                done = await run_once(self._boxes, plan, ("mkdir", "-p", "--", *paths), stdin=b"", limit_s=60)
                if done.exit_code:
                    raise EnvironmentInvalid(
                        f"environment {plans.spec.name}: {', '.join(paths)} cannot be made: {done.stderr.decode(errors='replace')}"
                    )


async def _close_all(held: set[Any]) -> None:
    try:
        await all_of(*(each.close() for each in tuple(held)))
    finally:
        held.clear()
