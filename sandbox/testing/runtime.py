"""A runtime whose instances are dictionaries, with faults and leaks that a test scripts."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.model import (
    EnvironmentSpec,
    InstanceId,
    NamespaceId,
    ResetMethod,
    Role,
    Snapshot,
    SnapshotId,
    TaskSpec,
)
from sandbox.ports import Environment
from sandbox.testing.faults import Faults
from sandbox.testing.instance import MemoryInstance
from sandbox.testing.shared import MemoryShared
from sandbox.testing.storage import MemoryClone, MemoryStorage


class Machine:
    """What runs. It outlives a runtime object as a machine's processes outlive their manager, until something sweeps it."""

    def __init__(self) -> None:
        self.running: set[MemoryInstance] = set()
        self.counter = itertools.count(1)


class MemoryRuntime:
    """Makes memory instances. `leaks` maps a reset method to patterns (`file/...`, `process/...`) that it misses."""

    name = "memory"
    makes: type[MemoryInstance] = MemoryInstance

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        *,
        machine: Machine | None = None,
        leaks: Mapping[ResetMethod, Sequence[str]] | None = None,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.machine = machine or Machine()
        self.leaks: Mapping[ResetMethod, Sequence[str]] = {} if leaks is None else leaks  # the caller's own: it may change it
        self.faults = Faults()
        self._owned: set[MemoryInstance] = set()

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"runtime": self.name, "isolation": "none: a fake for tests"}

    async def identity(self, environment: Environment) -> str:
        return self.name

    async def build(self, environment: Environment) -> Snapshot:
        await self.faults.at("build")
        options = environment.spec.resources[0].options
        clone = await self.storage.blank("state/files", Role.AGENT)
        clone.files.update(options["files"])
        clone.files.update({path: secrets.token_hex(4) for path in options["per_build"]})
        return await self.seal(environment.spec, clone, parent=None, task=None)

    async def derive(self, environment: Environment, golden: Snapshot, task: TaskSpec) -> Snapshot:
        await self.faults.at("derive")
        clone = await self.storage.clone(golden.dirs[0])
        clone.files.update(task.start["state"])
        return await self.seal(environment.spec, clone, parent=golden.id, task=task.id)

    async def start(self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> MemoryInstance:
        await self.faults.at("start")
        instance = self.makes(self, environment.spec, snapshot, namespace, generation)
        await instance.come_up(snapshot, generation)
        self.own(instance)
        return instance

    def own(self, instance: MemoryInstance) -> None:
        """Count an instance among those that run, and are ours."""
        self.machine.running.add(instance)
        self._owned.add(instance)

    async def start_shared(
        self, environment: Environment, snapshot: Snapshot, instance: InstanceId, generation: int
    ) -> MemoryShared:
        await self.faults.at("start_shared")
        return MemoryShared(self, environment.spec, snapshot, instance, generation)

    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        strays = [instance for instance in self.machine.running if instance not in self._owned]
        for instance in () if dry_run else strays:
            await instance.close()
        return tuple(f"instance {instance.namespace}" for instance in strays)

    async def close(self) -> None:
        for instance in list(self._owned):
            await instance.close()
        self._owned.clear()
        await asyncio.sleep(0)

    async def seal(
        self, environment: EnvironmentSpec, clone: MemoryClone, *, parent: SnapshotId | None, task: str | None
    ) -> Snapshot:
        """Make a snapshot of one clone."""
        sealed = await self.storage.seal(clone)
        number = f"snapshot-{environment.name}-{next(self.machine.counter)}"
        return Snapshot(
            id=SnapshotId(number),
            environment=environment.digest,
            digest=sealed.digest,
            dirs=(sealed,),
            parent=parent,
            task=task,
            storage=self.storage.name,
            runtime=self.name,
        )
