"""One container with its volumes, from its making to its removal: what an instance consists of between two replacements."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.aio import poll, run_shielded, undo
from sandbox.errors import EnvironmentInvalid, InstanceLost, RuntimeUnavailable
from sandbox.model import IdentityProof
from sandbox.runtimes.docker import containers, leftovers
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive, confined, layer, network
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.reach import Reach, is_of, reach_of
from sandbox.runtimes.docker.plain.readiness import ended, ended_at, until_ready
from sandbox.runtimes.docker.plain.saved import Saved
from sandbox.runtimes.docker.profile import DEFAULT_RUNTIMES

FILL_S = 600.0
ENDING_S = 5.0  # an engine says a moment later that a first process has ended, on a busy machine after seconds
KILLED = 137
SIGKILL = ("SIGKILL", "KILL", "9")  # as an author may write it, in any case


class Lineage:
    """A container that was made and not removed. `image` is what it was made of."""

    def __init__(self, engine: Engine, definition: Definition, mark: Mark, image: str) -> None:
        self.engine, self.definition, self.mark, self.image = engine, definition, mark, image
        self.volume_names = definition.volume_names(mark)
        self.container = ""
        self.proof: IdentityProof | None = None
        self.upper: Path | None = None  # its writable layer on the disk, where that is on this machine
        self.lower: tuple[Path, ...] = ()  # and those of its image
        self.started_at = ""
        self.bounds: Mapping[str, str] = {}  # what holds them, where that was read back
        self.reach: Reach | None = None

    @classmethod
    async def make(
        cls, engine: Engine, definition: Definition, mark: Mark, *, image: str, fresh: bool, saved: Saved | None = None
    ) -> Lineage:
        """Make a container that does not run yet; with `saved`, fill its volumes and prove it. Nothing is left when that fails."""
        lineage = cls(engine, definition, mark, image)
        await leftovers.tried_again(engine)
        try:
            connected = await network.ensure(engine) if definition.published else "none"
            config = definition.config(image, mark, network=connected, fresh=fresh)
            lineage.container = await containers.create(engine, config, mark)
            await lineage._check_made(config["HostConfig"])
            if saved is not None:
                await lineage._fill_all(saved, config)
                lineage.proof = await lineage._prove(saved)
        except BaseException as error:
            await undo(error, lineage.destroy())
            raise
        return lineage

    async def _check_made(self, asked: Mapping[str, Any]) -> None:
        """It is confined as asked, and every volume is one of ours, so that none is forgotten when the container goes."""
        found = await containers.inspect(self.engine, self.container)
        confined.check_described(found, asked)
        if self.engine.beside:
            self.upper, self.lower = layer.upper(found), layer.lower(found)
        ours = set(self.volume_names.values())
        strange = [m["Destination"] for m in found["Mounts"] if m["Type"] != "tmpfs" and m.get("Name") not in ours]
        if strange:
            raise RuntimeUnavailable(f"the engine mounted something of its own at {', '.join(strange)}")

    async def _fill_all(self, saved: Saved, config: Mapping[str, Any]) -> None:
        """Fill its volumes. An engine lays nothing into a container whose root is read-only, nor into its volumes beside: another
        one, which is never started, holds the same volumes then."""
        if not self.volume_names or not config["HostConfig"]["ReadonlyRootfs"]:
            for target in self.volume_names:
                await self._fill(self.container, target, saved)
            return
        mark = Mark(home=self.mark.home, environment=self.mark.environment, owner=self.mark.owner, part="errand")
        writable = {**config["HostConfig"], "ReadonlyRootfs": False, "NetworkMode": "none", "PortBindings": {}}
        beside = await containers.create(self.engine, {**config, "HostConfig": writable}, mark)
        try:
            for target in self.volume_names:
                await self._fill(beside, target, saved)
        finally:
            await run_shielded(containers.remove(self.engine, beside))

    async def _fill(self, container: str, target: str, saved: Saved) -> None:
        if target not in saved.volumes:
            raise EnvironmentInvalid(f"the saved state has no volume {target}", fix="build the environment again")

        def work(client: Any) -> None:
            with saved.archive(target).open("rb") as file:
                client.put_archive(container, str(PurePosixPath(target).parent), file)

        await self.engine.call(work, doing=f"filling the volume at {target}", limit_s=FILL_S)

    async def _prove(self, saved: Saved) -> IdentityProof:
        """Before anything runs: made of the saved image, nothing changed in it, and every volume reads as it was sealed."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        def work(client: Any) -> list[str]:
            wrong = []
            found = client.inspect_container(self.container)
            if found["Image"] != saved.image:
                wrong.append("it was made of another image")
            place = self.upper
            # Many an engine compares whole trees for its list, which takes seconds; an empty directory says as much.
            changed = [item["Path"] for item in client.diff(self.container) or ()] if place is None or os.listdir(place) else []
            if changed:
                wrong.append(f"changed before its start: {', '.join(changed[:5])}")
            for target, volume in saved.volumes.items():
                if archive.digest_of(archive.lines_at(client, self.container, target)) != volume.digest:
                    wrong.append(f"the volume at {target} differs")
            return wrong

        wrong = await self.engine.call(work, doing="proving a container", limit_s=FILL_S)
        return IdentityProof(method="image-id", holds=not wrong, detail="; ".join(wrong), seconds=loop.time() - began)

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        await containers.start(self.engine, self.container)
        found = await self.describe()
        if not found["State"]["Running"]:
            raise await ended(self.engine, self.container)
        beside = self.engine.beside
        host = "" if self.engine.address.is_socket else self.engine.address.host
        self.reach = reach_of(found, beside=beside, engine_host=host)
        self.started_at = str(found["State"]["StartedAt"])
        if beside and not is_of(self.reach.pid, self.container) and not await poll(self._has_ended, timeout=ENDING_S):
            raise RuntimeUnavailable(
                "the engine's processes cannot be seen from here, though its socket is on this machine",
                fix="run the manager in the engine's own PID namespace, or as an ordinary user, so that it takes the other way",
            )
        if beside and self.definition.options.runtime in DEFAULT_RUNTIMES:
            await self._check_running(self.reach.pid)
        await until_ready(self.engine, self.reach, self.definition.options, since=ended_at(found["State"]))

    async def _has_ended(self) -> bool:
        return not (await self.describe())["State"]["Running"]

    async def _check_running(self, pid: int) -> None:
        try:
            self.bounds = await confined.check_running(pid, self.definition)
        except RuntimeUnavailable:
            if await self._has_ended():  # nothing of it was left to be looked at
                raise await ended(self.engine, self.container) from None
            raise

    @property
    def running(self) -> Reach:
        if self.reach is None:
            raise InstanceLost("the container does not run", fix="ask for a new session")
        return self.reach

    async def describe(self) -> Mapping[str, Any]:
        return await containers.inspect(self.engine, self.container)

    async def stop(self) -> None:
        """Let it end by itself, so that what lies on disk is whole; raise InstanceLost where it had to be killed, though its author
        did not say that it may be."""
        limit = self.definition.options.stop_limit_s
        code = await containers.stop(self.engine, self.container, grace_s=limit)
        self.reach = None
        if code == KILLED and (self.definition.options.stop_signal or "").upper() not in SIGKILL:
            said = await containers.log_tail(self.engine, self.container)
            raise InstanceLost(
                f"the container did not end within {limit:g} s of its stop signal, so that what it holds on disk may not be whole; "
                f"it said: {said[-1500:] or 'nothing'}",
                fix="set stop_signal to one that it hears, or raise stop_limit_s; a first process that only waits, as `sleep`, "
                'hears none: where it has nothing to save, set stop_signal = "SIGKILL"',
            )

    async def kill(self) -> None:
        """End every process in it, and wait until they are dead."""
        self.reach = None
        if self.container:
            with contextlib.suppress(InstanceLost):
                await containers.kill(self.engine, self.container)
                if not await containers.wait_ended(self.engine, self.container, timeout=30):
                    raise RuntimeUnavailable(f"container {self.container[:12]} does not die", fix="look at the engine's log")

    async def destroy(self) -> None:
        """Remove the container and its volumes. Idempotent. What could not be removed is tried again by `leftovers.settle`."""
        self.reach = None
        self.engine.doubtful_volumes.update(self.volume_names.values())  # before the container they cannot go
        if not self.container and self.mark.name in self.engine.doubtful:
            return  # it may yet come, with its volumes: asked now, the engine would say that there is none
        await containers.remove(self.engine, self.container or self.mark.name)
        await leftovers.remove_volumes(self.engine, self.volume_names.values())
