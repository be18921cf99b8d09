"""The `docker` runtime: instances as groups of containers, or as one container of any image, on one engine."""

from __future__ import annotations

from sandbox.aio import run_shielded
from sandbox.model import NamespaceId, Snapshot, TaskSpec
from sandbox.ports import Environment, Instance, Storage
from sandbox.runtimes.docker.boxes import DockerBoxes
from sandbox.runtimes.docker.plain.definition import wanted
from sandbox.runtimes.docker.plain.runtime import PlainRuntime
from sandbox.runtimes.docker.plain.saved import is_container
from sandbox.runtimes.group.runtime import GroupRuntime
from sandbox.settings import Settings


class DockerRuntime(GroupRuntime):
    """Implements `Runtime`: each environment is the one or the other."""

    def __init__(self, settings: Settings, storage: Storage) -> None:
        boxes = DockerBoxes(settings)
        super().__init__(settings, storage, boxes)
        self._plain = PlainRuntime(settings, storage, boxes.engine)

    async def identity(self, environment: Environment) -> str:
        if wanted(environment):
            return await self._plain.identity(environment)
        return await super().identity(environment)

    async def build(self, environment: Environment) -> Snapshot:
        if wanted(environment):
            return await self._plain.build(environment)
        return await super().build(environment)

    async def derive(self, environment: Environment, golden: Snapshot, task: TaskSpec) -> Snapshot:
        if wanted(environment):
            return await self._plain.derive(environment, golden, task)
        return await super().derive(environment, golden, task)

    async def require(self, snapshot: Snapshot) -> None:
        """Implements `SavesElsewhere`."""
        if is_container(snapshot):
            await self._plain.require(snapshot)

    async def start(  # type: ignore[override]  # a pool sees an Instance
        self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int
    ) -> Instance:
        if wanted(environment):
            return await self._plain.start(environment, snapshot, namespace, generation)
        return await super().start(environment, snapshot, namespace, generation)

    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        return (*await super().sweep(dry_run=dry_run), *await self._plain.sweep(dry_run=dry_run))

    async def close(self) -> None:
        try:
            await self._plain.close()
        finally:
            await run_shielded(super().close())
