"""A container as one sandbox of an instance: for a plan, until it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import InstanceLost
from sandbox.model import ProcessInfo
from sandbox.ports import Listener
from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.channel.frames import Frame
from sandbox.runtimes.docker.confinement import check_mounts
from sandbox.runtimes.docker.container import Container
from sandbox.runtimes.docker.images import ImageFacts
from sandbox.runtimes.group.box import SandboxPlan, scratch
from sandbox.runtimes.group.tail import Tail


class DockerBox:
    """Implements `Box`. Its first process holds the channel; a server is the one command that this process was given."""

    def __init__(self, plan: SandboxPlan, container: Container, done_with: Callable[[Container], Awaitable[None]]) -> None:
        self._plan, self._container, self._done_with = plan, container, done_with
        self._channel: Channel | None = None
        self._server: asyncio.Future[Frame] | None = None
        self._tail = Tail(plan.log, plan.log_bytes)
        self._main = -1  # pidfd of the server
        self._killing: asyncio.Task[None] | None = None
        self.in_force: Mapping[str, Any] = {}

    @classmethod
    async def begin(
        cls,
        plan: SandboxPlan,
        container: Container,
        image: ImageFacts,
        claims: Mapping[str, Any],
        done_with: Callable[[Container], Awaitable[None]],
    ) -> DockerBox:
        """Show the plan's mounts to a container that runs empty, and start its server. In the end the container is given to
        `done_with`, whatever came of it."""
        box = cls(plan, container, done_with)
        try:
            await box._begin(image)
        except BaseException as error:
            await undo(error, box.kill())
            raise
        box.in_force = {**claims, **container.bounds}
        return box

    async def _begin(self, image: ImageFacts) -> None:
        plan, container = self._plan, self._container
        memory = memory_targets(plan, image)
        if container.order.slots is not None:
            await in_thread(container.order.slots.fill, plan.mounts, memory)
        readonly = [m.target for m in plan.mounts if m.readonly]
        check_mounts(await container.mount_table(), [*(m.target for m in plan.mounts), *memory], readonly)
        env = image.environment(plan.environment())
        self._channel = container.speak(plan.name, limits=plan.limits, env=env, workdir=plan.workdir)
        if plan.argv is not None:
            self._server = await self._channel.serve(plan.argv, env=env, cwd=plan.workdir, output=self._tail.take)
            await self._channel.ping()  # by then the command was started, or its end was told
            if pid := await container.main_pid():
                with contextlib.suppress(ProcessLookupError):
                    self._main = os.pidfd_open(pid)

    @property
    def plan(self) -> SandboxPlan:
        return self._plan

    @property
    def channel(self) -> Channel:
        if self._channel is None or self._server is not None:
            raise InstanceLost(f"{self._plan.name} is a server and takes no commands", fix="run commands in the agent's sandbox")
        return self._channel

    def alive(self) -> bool:
        if self._killing is not None or self._container.ended.is_set() or self._channel is None or self._channel.dead is not None:
            return False
        return self._server is None or not self._server.done()

    def signal(self, number: int) -> None:
        if self._main >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._main, number)

    async def wait(self, timeout: float) -> bool:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._container.ended.wait())]
        if self._server is not None:
            waits.append(self._server)
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits[0].cancel()
        return bool(done)

    async def kill(self) -> None:
        if self._killing is None:
            self._killing = asyncio.ensure_future(self._kill())
        await run_shielded(_settled(self._killing))

    async def _kill(self) -> None:
        try:
            await self._done_with(self._container)
        finally:
            if self._main >= 0:
                os.close(self._main)
                self._main = -1
            self._tail.close()

    async def processes(self) -> tuple[ProcessInfo, ...]:
        return await self._container.processes(self._plan.role, self._plan.resource)

    async def listeners(self) -> tuple[Listener, ...]:
        self._must_run()
        return await self._container.listeners(self._plan.role, self._plan.resource)

    async def mounts(self) -> Sequence[str]:
        self._must_run()
        return tuple((await self._container.mount_table()).values())

    def _must_run(self) -> None:
        if self._container.ended.is_set():
            raise self._lost("its container has ended")

    def memory_peak(self) -> int | None:
        return self._container.groups.memory_peak()

    def log_tail(self, limit: int = 4000) -> bytes:
        return self._tail.last(limit) or self._container.said()[-limit:]

    def _lost(self, what: str) -> InstanceLost:
        killed = self._container.groups.oom_kills()
        why = f" ({killed} killed for memory, limit {self._plan.limits.memory_mb} MiB)" if killed else ""
        return InstanceLost(f"sandbox {self._plan.name}: {what}{why}", fix="ask for a new session")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.kill()


def memory_targets(plan: SandboxPlan, image: ImageFacts) -> dict[str, int]:
    """Where a container gets empty memory, and how many MiB: scratch space, and the directories that its image wants as volumes,
    which would outlive it otherwise."""
    tmp, shm = scratch(plan.limits)
    taken = {m.target.rstrip("/") for m in plan.mounts}
    found = {"/tmp": tmp, "/dev/shm": shm, "/var/tmp": tmp} | {v.rstrip("/"): tmp for v in image.volumes}
    return {target: size for target, size in found.items() if target not in taken}


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
