"""What the docker runtime makes boxes of: containers, used again by the same instance where state is replaced in place."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import AutoclaveError
from sandbox.model import Limits, Role
from sandbox.ports import Mount
from sandbox.runtimes.channel import starter
from sandbox.runtimes.docker import leftovers, mounting
from sandbox.runtimes.docker.accounts import accounts
from sandbox.runtimes.docker.address import from_environment
from sandbox.runtimes.docker.box import DockerBox, memory_targets
from sandbox.runtimes.docker.container import Container, Order
from sandbox.runtimes.docker.engine import Engine, EngineFacts
from sandbox.runtimes.docker.images import DEFAULT, ImageFacts, image_facts
from sandbox.runtimes.docker.labels import Mark, home_identity
from sandbox.runtimes.docker.mode import PLACE, Choice, Mode, choose, room_of
from sandbox.runtimes.docker.profile import DEFAULT_RUNTIMES, Shape, configuration, fixed, follows
from sandbox.runtimes.docker.slots import Slots
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.group.together import all_of
from sandbox.settings import Settings

log = logging.getLogger(__name__)


class DockerBoxes:
    """Implements `Boxes`."""

    name = "docker"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.engine = Engine(from_environment(), home=home_identity(settings))
        self._images: dict[str, ImageFacts] = {}
        self._facts: EngineFacts | None = None
        self._choice: Choice | None = None
        self._choosing = asyncio.Lock()
        self._resting: dict[tuple[str, Shape], list[Container]] = {}  # empty containers, by who used them last
        self._containers: set[Container] = set()

    @property
    def in_force(self) -> Mapping[str, Any]:
        if self._facts is None or self._choice is None:
            return {"engine": self.engine.address.url}
        return {"engine": f"Docker {self._facts.version} at {self.engine.address.url}", "mode": str(self._choice)}

    async def identity(self, root: str, image: str) -> str:
        """What of this runtime a baseline depends on."""
        found = await self._image(image)
        return f"{self.name} {(await self._ready(found)).mode} {found.id}"

    async def start(self, plan: SandboxPlan) -> DockerBox:
        image = await self._image(plan.image)
        choice = await self._ready(image)
        shape = self._shape(plan, image)
        container = await self._rested(plan.owner, shape) or await self._container(plan, shape, image, choice)

        async def done_with(used: Container) -> None:
            await self._done_with(plan, used)

        return await DockerBox.begin(plan, container, image, self._claims(plan, shape, image, choice), done_with)

    async def release(self, owner: str) -> None:
        mine = [key for key in self._resting if key[0] == owner]
        await run_shielded(all_of(*(self._remove(container) for key in mine for container in self._resting.pop(key))))

    async def sweep(self, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
        gone = await leftovers.sweep(self.engine, keep, dry_run=dry_run)
        room = room_of(self._settings)
        if not dry_run and not self._containers and room.is_dir() and os.geteuid() == 0:
            await in_thread(mounting.remove_room, room)
            self._choice = None
        return gone

    async def close(self) -> None:
        await run_shielded(self._close())

    async def _close(self) -> None:
        try:
            try:
                await all_of(*(self._remove(container) for container in tuple(self._containers)))
            except AutoclaveError as error:  # what could not be removed is tried once more
                log.warning("a container could not be removed", extra={"event": "docker.close", "reason": str(error)})
            try:
                await leftovers.settle(self.engine)
            finally:  # mounts are this machine's: they go also where the engine has gone
                if os.geteuid() == 0:
                    await in_thread(mounting.remove_room, room_of(self._settings))
        finally:
            await self.engine.close()

    # parts

    async def _image(self, reference: str) -> ImageFacts:
        name = reference or DEFAULT
        if name not in self._images:
            self._images[name] = await image_facts(self.engine, name)
        return self._images[name]

    async def _ready(self, image: ImageFacts) -> Choice:
        async with self._choosing:
            if self._choice is None:
                self._facts = await self.engine.facts()
                self._choice = await choose(self._settings, self.engine.address.is_socket, lambda: self._trial(image))
                log.info("docker runtime", extra={"event": "docker.ready", **self.in_force})
            return self._choice

    async def _rested(self, owner: str, shape: Shape) -> Container | None:
        """Return an empty container that still lives; remove those that ended while they rested, with their engine perhaps."""
        resting = self._resting.get((owner, shape), [])
        while resting:
            container = resting.pop()
            if not container.ended.is_set():
                return container
            log.info("container ended while it rested", extra={"event": "docker.discarded", "sandbox": owner})
            try:
                await run_shielded(self._remove(container))
            except (AutoclaveError, OSError) as error:
                log.warning("a container could not be removed", extra={"event": "docker.discarded", "reason": str(error)})
        return None

    def _user(self, role: Role) -> tuple[int, int]:
        uid = self._settings.users.of(role)
        return (os.geteuid(), os.getegid()) if uid is None else (uid, uid)

    def _shape(self, plan: SandboxPlan, image: ImageFacts) -> Shape:
        uid, gid = self._user(plan.role)
        targets = sorted({*(m.target for m in plan.mounts), *memory_targets(plan, image)})
        files = sorted(m.target for m in plan.mounts if Path(m.layers[0]).is_file())
        return Shape(
            image=image.id,
            uid=uid,
            gid=gid,
            home=plan.home,
            limits=plan.limits,
            targets=tuple(targets),
            files=tuple(files),
            runtime=plan.container_runtime,
        )

    async def _container(self, plan: SandboxPlan, shape: Shape, image: ImageFacts, choice: Choice) -> Container:
        token = plan.owner.rpartition(".")[2]
        environment, _, part = plan.name.partition(".")
        mark = Mark(home=self.engine.home, environment=environment, part=part.rpartition(".")[2] or "sandbox", owner=token)
        if choice.mode is Mode.IN_PLACE and shape.runtime in DEFAULT_RUNTIMES:
            room, name = room_of(self._settings), f"{token}-{secrets.token_hex(4)}"
            return await self._make(shape, mark, Slots(room, name, shape.targets, shape.files))
        return await self._make(shape, mark, None, plan.mounts, memory_targets(plan, image))

    async def _trial(self, image: ImageFacts) -> Container:
        uid, gid = self._user(Role.AGENT)
        shape = Shape(image=image.id, uid=uid, gid=gid, home="/tmp", limits=Limits(), targets=(PLACE,))
        mark = Mark(home=self.engine.home, part="trial", owner=f"trial{secrets.token_hex(4)}")
        return await self._make(shape, mark, Slots(room_of(self._settings), mark.owner, shape.targets))

    async def _make(
        self, shape: Shape, mark: Mark, slots: Slots | None, mounts: tuple[Mount, ...] = (), memory: Mapping[str, int] | None = None
    ) -> Container:
        first = await in_thread(starter.starter, self._settings, "image")
        ours = (first.mount, *await in_thread(accounts, self._settings, shape.uid, shape.gid, shape.home))
        given = [fixed(m, mark.labels()) for m in (*ours, *mounts)]
        given += [follows(place, target) for target, place in slots.outer.items()] if slots else []
        order = Order(shape=shape, config=configuration(shape, first.argv, given, memory or {}), mark=mark, slots=slots)
        await leftovers.tried_again(self.engine)
        self.engine.held.add(mark.tag)
        try:
            container = await Container.start(self.engine, order)
        except BaseException:
            self.engine.held.discard(mark.tag)
            raise
        self._containers.add(container)
        return container

    async def _done_with(self, plan: SandboxPlan, container: Container) -> None:
        """Keep an emptied container for the next start of the same instance, or remove it."""
        if plan.kept and container.order.slots is not None and not container.ended.is_set():
            try:
                why = await container.as_new()
            except (AutoclaveError, OSError) as error:
                why = str(error)
            if not why:
                self._resting.setdefault((plan.owner, container.order.shape), []).append(container)
                return
            log.info("container is not used again", extra={"event": "docker.discarded", "sandbox": plan.name, "reason": why})
        await self._remove(container)

    async def _remove(self, container: Container) -> None:
        self._containers.discard(container)
        try:
            await container.remove()
        finally:  # where that failed, it is tried again beside the next container that is made, and at the end
            self.engine.held.discard(container.order.mark.tag)

    def _claims(self, plan: SandboxPlan, shape: Shape, image: ImageFacts, choice: Choice) -> Mapping[str, Any]:
        run = str(self._settings.run)
        programs = sorted(m.target for m in plan.mounts if m.readonly and len(m.layers) == 1 and not m.layers[0].startswith(run))
        tmp, shm = (memory_targets(plan, image).get(target, 0) for target in ("/tmp", "/dev/shm"))
        return {
            **self.in_force,
            "sandbox": "a container",
            "container_runtime": shape.runtime or "the engine's default",
            "image": f"{image.reference} ({image.id})",
            "uid": shape.uid,
            "user_namespace": "the host's",
            "capabilities": "none",
            "no_new_privileges": True,
            "seccomp": "the engine's default filter",
            "network": "none",
            "root": "the image, read-only",
            "programs_of_the_host": programs,
            "scratch": f"/tmp {tmp} MiB, /dev/shm {shm} MiB (memory)",
        }
