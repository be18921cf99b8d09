"""One running container with our first process in it: made, checked, looked into from outside, made as new, removed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, poll, run_shielded
from sandbox.errors import InstanceLost, RuntimeUnavailable
from sandbox.model import Limits, ProcessInfo, Role
from sandbox.ports import Listener
from sandbox.runtimes import observe
from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.docker import confinement, containers, streams
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.host import Groups, first_process
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.line import Line
from sandbox.runtimes.docker.profile import Shape
from sandbox.runtimes.docker.slots import Slots

START_S = 30.0
SHUT_S = 5.0  # it greets, and then shuts itself to others
_TRIED: set[tuple[str, Shape]] = set()  # engines and shapes whose inside has tried to leave, and could not


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of the engine. With `slots` its mounts are shown to it once it runs; without, they are in `config`."""

    shape: Shape
    config: Mapping[str, Any]
    mark: Mark
    slots: Slots | None


class Container:
    """A container that runs. Made by `start`; ended by `remove`."""

    def __init__(self, engine: Engine, order: Order, identity: str, line: Line) -> None:
        self._engine, self.order, self.id, self._line = engine, order, identity, line
        self.pid = 0  # of its first process, on the host
        self.groups = Groups(paths={})
        self.bounds: Mapping[str, str] = {}
        self._own = os.geteuid() == 0
        self._first = ""
        self._channel: Channel | None = None
        self._removal: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, engine: Engine, order: Order) -> Container:
        """Create, attach, start, check. Raises RuntimeUnavailable, LimitReached, InstanceLost; nothing is left then."""
        if order.slots is not None:
            await in_thread(order.slots.make)
        container: Container | None = None
        identity = ""
        try:
            identity = await containers.create(engine, order.config, order.mark)
            container = cls(engine, order, identity, Line(await streams.attach(engine, identity)))
            async with asyncio.timeout(START_S):
                await container._come_up()
        except BaseException as error:
            await run_shielded(_undo(engine, order, identity, container))
            if isinstance(error, TimeoutError):
                raise InstanceLost(
                    f"container {identity[:12]} was not up within {START_S:g} s", fix="look at its engine's load"
                ) from error
            raise
        return container

    async def _come_up(self) -> None:
        channel = self.speak("container " + self.id[:12], limits=self.order.shape.limits, env={}, workdir="/")
        await containers.start(self._engine, self.id)
        try:
            await channel.hello()
        except InstanceLost:
            said = self._line.said(800).decode("utf-8", "replace").strip()
            raise InstanceLost(f"container {self.id[:12]} ended while starting: {said or 'it said nothing'}") from None
        found = await containers.inspect(self._engine, self.id)
        confinement.check_inspected(found, self.order.shape)
        self.pid = int(found["State"]["Pid"])
        await in_thread(self._look)
        if not await poll(self._shut, timeout=SHUT_S):
            confinement.refuse(["others of its user may look into its first process"], "the host")
        known = (self._engine.address.url, self.order.shape)
        if known not in _TRIED:
            confinement.check_tried(await channel.facts(), self.order.shape, "the inside")
            _TRIED.add(known)

    async def _shut(self) -> bool:
        return not observe.is_dumpable(self.pid, self.order.shape.uid)

    def _look(self) -> None:
        """Check it from the host's side; a container that is not on this host is found out here."""
        place = _text(Path(f"/proc/{self.pid}/cgroup"))
        if self.id not in place:
            raise RuntimeUnavailable(
                f"the Docker engine at {self._engine.address.url} is not on this machine, or its processes are hidden",
                fix="run the manager on the engine's own machine, outside of containers",
            )
        self.groups = Groups.of(self.pid)
        confinement.check_status(observe.fields(self.pid), self.order.shape, "the host")
        self.bounds = confinement.check_from_host(self.pid, self.groups, self.order.shape.limits, own=self._own)
        if self._own:
            self._first = first_process(self.pid)

    def speak(self, name: str, *, limits: Limits, env: Mapping[str, str], workdir: str) -> Channel:
        """Return a command channel of its own for the next user; the one before it is at its end."""
        self._channel = Channel.over(self._line.transport, name, limits=limits, env=env, workdir=workdir, before=self._channel)
        self._line.give_to(self._channel)
        if self._line.ended.is_set():
            self._channel.fail("the container has ended")
        return self._channel

    @property
    def ended(self) -> asyncio.Event:
        """Set when the line to its first process has ended."""
        return self._line.ended

    def said(self) -> bytes:
        return self._line.said()

    async def as_new(self) -> str:
        """End every process but the first, remove what they shared, take the mounts away; return why it may not be used again, ""
        where it may: nothing of what was there can be told from a container that was just started."""
        if self.order.slots is None:
            return "it was made for one use"
        channel = self.speak("container " + self.id[:12], limits=self.order.shape.limits, env={}, workdir="/")
        left = await channel.renew()
        await in_thread(self.order.slots.empty)
        if left:
            return f"something is left in its IPC namespace: {left[0].decode('ascii', 'replace')}"
        if others := [pid for pid in await in_thread(self.groups.pids) if pid != self.pid]:
            return f"{len(others)} processes are left"
        now = await in_thread(first_process, self.pid)
        if now != self._first:
            changed = sorted(set(now.splitlines()) ^ set(self._first.splitlines()))
            return f"its first process was changed: {'; '.join(changed)}"
        return ""

    async def remove(self) -> None:
        """Kill everything, wait until it is dead, remove the container and its directories. Idempotent."""
        if self._removal is None or _failed(self._removal):
            self._removal = asyncio.ensure_future(self._remove())
        await run_shielded(_settled(self._removal))

    async def _remove(self) -> None:
        try:
            if self._own and self.pid and self.id in await in_thread(_text, Path(f"/proc/{self.pid}/cgroup")):
                os.kill(self.pid, signal.SIGKILL)  # faster than by the engine, which is then told to remove it
                await poll(self._dead, timeout=10.0)
            self._line.close("the sandbox was ended")
            await containers.remove(self._engine, self.id)
        finally:
            if self.order.slots is not None:
                await in_thread(self.order.slots.remove)

    async def _dead(self) -> bool:
        return not await in_thread(self.groups.pids)

    async def processes(self, role: Role, resource: str | None) -> tuple[ProcessInfo, ...]:
        members = await in_thread(self.groups.members)
        return await in_thread(observe.of_members, members, role, resource)

    async def listeners(self, role: Role, resource: str | None) -> tuple[Listener, ...]:
        return await in_thread(observe.listeners, self.pid, role, resource, orphans=False)

    async def mount_table(self) -> Mapping[str, str]:
        """What is mounted at each target. Only root may read any user's table; else our first process in it does."""
        if self._own:
            text = await in_thread(_text, Path(f"/proc/{self.pid}/mountinfo"))
        else:
            assert self._channel is not None
            text = (await self._channel.read_file("/proc/self/mountinfo")).decode(errors="surrogateescape")
        return confinement.mount_lines(text)

    async def main_pid(self) -> int:
        """Host pid of the one command that was started in it; 0 where that has ended."""
        found: Sequence[observe.Member] = await in_thread(self.groups.members)
        return next((member.host for member in found if member.parent == self.pid), 0)


async def _undo(engine: Engine, order: Order, identity: str, container: Container | None) -> None:
    if container is not None:
        await container.remove()
        return
    try:
        if identity:
            await containers.remove(engine, identity)
    finally:
        if order.slots is not None:
            await in_thread(order.slots.remove)


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""
