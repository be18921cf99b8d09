"""The part of the `docker` runtime that makes instances of any image."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import AutoclaveError, EnvironmentInvalid, InstanceLost
from sandbox.model import NamespaceId, Snapshot, SnapshotId, TaskSpec
from sandbox.ports import Environment, Storage
from sandbox.runtimes.docker import leftovers
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive, commands, network
from sandbox.runtimes.docker.plain.definition import Definition, define, refuse_hook
from sandbox.runtimes.docker.plain.instance import PlainInstance
from sandbox.runtimes.docker.plain.lineage import Lineage
from sandbox.runtimes.docker.plain.reach import Spent
from sandbox.runtimes.docker.plain.saved import Saver
from sandbox.runtimes.group.together import all_of
from sandbox.settings import Settings

log = logging.getLogger(__name__)
SETUP_S = 300.0


class PlainRuntime:
    """Implements `Runtime` for environments that are a container of any image."""

    name = "docker"

    def __init__(self, settings: Settings, storage: Storage, engine: Engine) -> None:
        self._storage = storage
        self._engine = engine
        self._saver = Saver(settings, storage, engine)
        self._instances: set[PlainInstance] = set()
        self._spent = Spent()
        self._definitions: dict[str, Definition] = {}

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"runtime": self.name, "engine": self._engine.address.url, **self._storage.in_force}

    async def identity(self, environment: Environment) -> str:
        definition = await self._define(environment)
        how = "beside its engine" if self._engine.beside else "away from its engine"
        return f"{self.name} {how} {definition.options.runtime or 'default'} {definition.image['Id']}"

    async def build(self, environment: Environment) -> Snapshot:
        """Start the image once, let it set itself up, stop it cleanly, and save what it holds then."""
        definition = await self._define(environment)
        token = secrets.token_hex(6)
        mark = Mark(home=self._engine.home, environment=definition.spec.name, part="seed", owner=token)
        self._engine.held.add(token)
        image = str(definition.image["Id"])
        try:
            lineage = await Lineage.make(self._engine, definition, mark, image=image, fresh=True)
            try:
                await self._seed(lineage)
                return await self._saver.save(
                    definition.spec, definition.resource, lineage.container, definition.volumes, parent=None
                )
            finally:
                await run_shielded(lineage.destroy())
        except InstanceLost as error:
            image = definition.options.image or definition.spec.image
            said = f"environment {definition.spec.name}: image {image} does not come up: {error.message}"
            raise EnvironmentInvalid(said, fix=error.fix) from error
        finally:
            self._engine.held.discard(token)

    async def _seed(self, lineage: Lineage) -> None:
        definition = lineage.definition
        for item in definition.options.copy_:
            place = PurePosixPath(item.to)
            packed = await in_thread(archive.of_file, Path(item.source), str(place).strip("/"))

            def work(client: Any, packed: bytes = packed) -> None:
                client.put_archive(lineage.container, "/", packed)

            await self._engine.call(work, doing=f"copying to {place}")
        await lineage.start()
        for argv in definition.options.setup:
            done = await commands.run(self._engine, lineage.running, argv, limit_s=SETUP_S)
            if done.exit_code:
                said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-800:]
                what = f"environment {definition.spec.name}: setup {' '.join(argv)!r}"
                raise EnvironmentInvalid(f"{what} ended with {done.exit_code}: {said or 'no message'}")
        await lineage.stop()

    async def derive(self, environment: Environment, golden: Snapshot, task: TaskSpec) -> Snapshot:
        if task.start:
            raise EnvironmentInvalid(
                f"task {task.id} of environment {environment.spec.name}: a container of any image has no start states of tasks",
                fix="make one environment for each start state",
            )
        return dataclasses.replace(golden, id=SnapshotId(f"{golden.id}-{secrets.token_hex(3)}"), parent=golden.id, task=task.id)

    async def require(self, snapshot: Snapshot) -> None:
        """Raise SnapshotMissing where a saved state's image is gone from the engine."""
        await self._saver.read(snapshot)

    async def start(self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> PlainInstance:
        definition = await self._define(environment)
        facts = await self._engine.facts()
        root = Path(facts.data_root) if self._engine.beside and Path(facts.data_root).is_dir() else None
        instance = await PlainInstance.open(
            self._engine, self._saver, definition, snapshot, namespace, generation, root, self._spent
        )
        self._instances = {i for i in self._instances if not i.closed} | {instance}
        return instance

    async def _define(self, environment: Environment) -> Definition:
        known = self._definitions.get(environment.spec.digest)
        if known is None:
            known = self._definitions[environment.spec.digest] = await define(self._engine, environment)
        await refuse_hook(self._engine, environment.spec)  # another reset method does not make it another environment
        return known

    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Images of saved states whose directory has gone. All else that is ours on the engine, the whole runtime sweeps."""
        return await self._saver.sweep(dry_run=dry_run)

    async def close(self) -> None:
        """Close every instance, and remove what creations may have left whose answer never came."""
        try:
            await run_shielded(all_of(*(instance.close() for instance in tuple(self._instances))))
        except AutoclaveError as error:  # what it could not remove is tried once more
            log.warning("an instance could not be closed", extra={"event": "docker.close", "reason": str(error)})
        self._instances.clear()
        self._spent.close()
        await run_shielded(all_of(leftovers.settle(self._engine), network.remove(self._engine)))
