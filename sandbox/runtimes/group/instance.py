"""One running copy of an environment: a sandbox for its agent and one for each server, replaced as a whole or reset in place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar

from sandbox.aio import run_shielded, undo
from sandbox.errors import AutoclaveError, EnvironmentInvalid, InstanceLost, LimitReached, ResetFailed, SnapshotMissing
from sandbox.model import ExecResult, NamespaceId, Snapshot
from sandbox.ports import Storage
from sandbox.resources.at_rest import AtRest
from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.snapshots import joined, seal_all
from sandbox.runtimes.group.sockets import SocketDirs
from sandbox.runtimes.group.subject import Subject
from sandbox.runtimes.group.together import together
from sandbox.runtimes.group.watch import watch_disk
from sandbox.runtimes.group.world import World
from sandbox.settings import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")


class GroupInstance:
    """Implements `Instance`. Made by `open`, ended by `close`."""

    def __init__(
        self, settings: Settings, storage: Storage, boxes: Boxes, plans: Plans, namespace: NamespaceId, snapshot: Snapshot
    ) -> None:
        self.settings, self._storage, self.boxes, self.plans = settings, storage, boxes, plans
        self.namespace, self.snapshot = namespace, snapshot
        self.generation = 0
        self.sockets = SocketDirs(settings)
        self.name = f"{namespace}.{self.sockets.token}"
        self._world: World | None = None
        self.in_place = False
        self.rebased = False  # its clones were made anew in the middle of a lineage
        self._used = False
        self._written = 0  # bytes that earlier clones of this lineage held
        self._stopped: str | None = None
        self._revoked = False
        self._watcher: asyncio.Task[None] | None = None
        self._leftover: set[asyncio.Task[None]] = set()
        self._closed = False
        self._turn = asyncio.Lock()  # what stops, replaces or saves the whole instance: one at a time
        self._endings = 0  # how often its end was asked for: a save that meets one gives up

    @classmethod
    async def open(
        cls,
        settings: Settings,
        storage: Storage,
        boxes: Boxes,
        plans: Plans,
        snapshot: Snapshot,
        namespace: NamespaceId,
        generation: int,
    ) -> GroupInstance:
        """Clone, prove, start. Nothing is left when that fails."""
        instance = cls(settings, storage, boxes, plans, namespace, snapshot)
        await instance.begin(generation)
        return instance

    async def begin(self, generation: int) -> None:
        """Come up for the first time; nothing is left when that fails."""
        try:
            self._world = await self._prepare(self.snapshot)
            await self._come_up(self._world, generation)
        except BaseException as error:
            await undo(error, self.close())
            raise

    async def _prepare(self, snapshot: Snapshot) -> World:
        return await World.prepare(self.boxes, self._storage, self.plans, self.sockets, snapshot, self.name)

    async def _come_up(self, world: World, generation: int) -> None:
        await world.start(generation)
        self._world, self.generation = world, generation
        self._revoked, self._used, self._stopped = False, False, None
        usage, stop, limit_mb = partial(self._usage, world), partial(self._stop, world), self.plans.spec.limits.disk_mb
        self._watcher = asyncio.ensure_future(watch_disk(usage, lambda: self._used, limit_mb, stop, self.namespace))

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def world(self) -> World:
        if self._world is None:
            raise InstanceLost(f"the instance of namespace {self.namespace} is closed", fix="ask for a new session")
        return self._world

    @property
    def in_force(self) -> Mapping[str, Any]:
        agent = self._world.agent if self._world else None
        sandboxes = dict(agent.in_force) if agent else {}
        users = self.settings.users
        return {
            **sandboxes,
            "runtime": self.boxes.name,
            "isolation": self.plans.spec.isolation.value,
            "storage": self._storage.name,
            "users": "the manager's own" if users.agent is None else f"agent {users.agent}, servers {users.server}",
            "limits_of": "each sandbox of the instance by itself",
            "reset_scope": "in place" if self.in_place else "instance: every process, file and server",
            "resources": {r.spec.name: dict(r.in_force) for r in self.plans.resources},
        }

    def memory_peak(self) -> int | None:
        """The sum of each sandbox's own peak since it started: not less than the instance's; None where one does not count."""
        peaks = [sandbox.memory_peak() for sandbox in self.world.sandboxes]
        return None if not peaks or None in peaks else sum(peak for peak in peaks if peak is not None)

    # what the session does

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        channel = self._channel()
        with self._telling_why():
            return await channel.run(argv, stdin=stdin, env=env, cwd=cwd, limit_s=limit_s, output_bytes=output_bytes)

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        channel = self._channel()
        with self._telling_why():
            return await channel.read_file(path, limit_bytes=limit_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        channel = self._channel()
        with self._telling_why():
            await channel.write_file(path, data, mode=mode)

    @contextmanager
    def _telling_why(self) -> Iterator[None]:
        """A channel that ended because of a bound says so."""
        try:
            yield
        except InstanceLost as error:
            raise self._reason() or error from None

    def endpoint(self, resource: str) -> str:
        self._used = True
        found = next((r for r in self.plans.resources if r.spec.name == resource), None)
        if found is None:
            names = ", ".join(r.spec.name for r in self.plans.resources)
            raise EnvironmentInvalid(f"environment {self.plans.spec.name} has no resource {resource!r}", fix=f"it has {names}")
        return found.endpoint(str(self.sockets.address(resource)))

    def _channel(self) -> Channel:
        if (reason := self._reason()) is not None:
            raise reason
        agent = self.world.agent
        if self._revoked or agent is None:
            raise InstanceLost(f"the access to namespace {self.namespace} was revoked", fix="ask for a new session")
        self._used = True
        return agent.channel

    def _reason(self) -> LimitReached | None:
        if self._stopped is None:
            return None
        return LimitReached(f"namespace {self.namespace} was stopped: {self._stopped}", fix="write less, or raise limits.disk_mb")

    # what the pool does

    async def quiesce(self) -> None:
        channel, world = self._channel(), self.world
        await channel.quiesce()
        await world.disconnect()

    async def revoke(self) -> None:
        """Where the next reset replaces everything, the servers end with the agent; else every connection to them does."""
        self._endings += 1
        await run_shielded(self._in_turn(self._revoke(keep_servers=not self.plans.spec.reset.method.replaces)))

    async def _revoke(self, *, keep_servers: bool) -> None:
        self._revoked = True
        await self._end_watch()
        self.sockets.revoke()
        if self._world is None:
            return
        if keep_servers:
            await self._world.kill_agent()
            await self._world.disconnect()
        else:
            await self._world.kill()

    async def restore(self, snapshot: Snapshot, generation: int) -> None:
        self._endings += 1
        async with self._turn:
            try:
                async with self._failing("restore"):
                    await self._replace(snapshot, generation)
            except BaseException as error:
                await undo(error, self._down())
                raise

    async def _replace(self, snapshot: Snapshot, generation: int) -> None:
        old, prepared = self._world, list[World]()

        async def prepare() -> None:
            prepared.append(await self._prepare(snapshot))

        try:
            await together(self._revoke(keep_servers=False), prepare())
        except BaseException:
            for world in prepared:
                await run_shielded(world.destroy())
            raise
        self._world = prepared[0]
        if old is not None:
            self._later(old)
        self.snapshot, self.in_place, self.rebased, self._written = snapshot, False, False, 0
        await self._come_up(prepared[0], generation)

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        self._endings += 1
        async with self._turn:
            try:
                async with self._failing("hook" if hook is not None else "clean"):
                    await self._revoke(keep_servers=True)
                    await self.world.start_servers()
                    await (self._clean() if hook is None else self._run_hook(hook))
                    self.world.readdress()
                    await self.world.disconnect()
                    self.in_place = True
                    await self._come_up(self.world, generation)
            except BaseException as error:
                await undo(error, self._down())
                raise

    async def _run_hook(self, hook: Sequence[str]) -> None:
        """In a sandbox like the agent's in which nothing of the agent's runs, with the strongest rights for as long as it takes."""
        limit = self.plans.spec.reset.hook_limit_s
        async with AsyncExitStack() as stack:
            env: dict[str, str] = {}
            for resource in self.plans.resources:
                env.update(await stack.enter_async_context(resource.hook_access(self.world.lives[resource.spec.name])))
            plan = await self.plans.agent(self.name, self.world.clones, self.world.servers, hooks=True)
            async with await self.boxes.start(plan) as sandbox:
                done = await sandbox.channel.run(hook, env=env, limit_s=limit)
        if done.timed_out:
            raise ResetFailed(f"the reset hook ran past its limit of {limit:g} s", fix="raise reset.hook_limit_s")
        if done.exit_code:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-800:]
            raise ResetFailed(f"the reset hook ended with {done.exit_code}: {said or 'no message'}", fix="correct the hook")

    async def _clean(self) -> None:
        for resource in self.plans.resources:
            await resource.clean(self.world.lives[resource.spec.name])
        for state in self.plans.added:
            live = self.world.lives[state.owner]
            await AtRest(live.spec, state.directory.target).clean(live)

    async def snapshot_now(self) -> Snapshot:
        self._channel()
        return await run_shielded(self._in_turn(self._snapshot_now()))

    async def _snapshot_now(self) -> Snapshot:
        self._channel()  # its access may have been revoked while it waited for its turn
        world, generation, endings = self.world, self.generation, self._endings
        await self._end_watch()
        try:
            self.sockets.revoke()
            await world.kill_agent()
            await world.disconnect()
            await world.stop_servers()
            self._written += await world.written_bytes()
            dirs = await seal_all(self._storage, self.plans, world.clones)
            snapshot = joined(self.plans.spec, dirs, self._storage, parent=self.snapshot.id, task=None, runtime=self.boxes.name)
            if self._endings != endings and self.plans.spec.reset.method.replaces:  # else the reset needs a world to act on
                for directory in dirs:
                    await self._storage.remove(directory)
                raise InstanceLost(f"the access to namespace {self.namespace} was revoked", fix="ask for a new session")
            again = await self._prepare(snapshot)
            again.begun.update(world.begun)
            again.proof, self._world, self.rebased = world.proof, again, True
            await self._come_up(again, generation)
        except BaseException:
            await self._down()
            raise
        return snapshot

    def subject(self) -> Subject:
        return Subject(self)

    async def alive(self) -> bool:
        return self._world is not None and not self._revoked and self._stopped is None and self._world.alive()

    async def close(self) -> None:
        """Idempotent; runs to its end."""
        self._endings += 1
        await run_shielded(self._in_turn(self._close()))

    async def _close(self) -> None:
        self._closed = True
        await self._down()
        await self.boxes.release(self.name)
        world, self._world = self._world, None
        if world is not None:
            await world.destroy()
        if self._leftover:
            await asyncio.wait(self._leftover)
        self.sockets.close()

    # parts

    async def _in_turn(self, work: Awaitable[T]) -> T:
        async with self._turn:
            return await work

    async def _down(self) -> None:
        """Nothing runs and nothing can be reached any more; the state is still there."""
        await self._revoke(keep_servers=False)

    async def _end_watch(self) -> None:
        """Wait for the watch too: one that is stopping a session has done so when this returns, and stops nobody else's."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait({watcher})
            if not watcher.cancelled() and (error := watcher.exception()) is not None:  # the ending that follows meets it again
                log.warning("disk watch failed", extra={"namespace": self.namespace, "reason": str(error)})

    async def _usage(self, world: World) -> int:
        return self._written + await world.written_bytes()

    async def _stop(self, world: World, reason: str) -> None:
        """End the agent's work for a bound that it passed; the servers end too, since they may be what writes."""
        self._stopped = reason
        self.sockets.revoke()
        await world.kill()

    def _later(self, world: World) -> None:
        """Remove an old lineage's clones off the critical path."""
        task = asyncio.ensure_future(world.destroy())
        self._leftover.add(task)
        task.add_done_callback(self._swept)

    def _swept(self, task: asyncio.Task[None]) -> None:
        self._leftover.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("old clones not removed", extra={"namespace": self.namespace, "reason": str(error)})

    @asynccontextmanager
    async def _failing(self, method: str) -> AsyncIterator[None]:
        """Turn what ends a reset early into ResetFailed with its cause."""
        try:
            yield
        except (ResetFailed, SnapshotMissing, asyncio.CancelledError):
            raise
        except (AutoclaveError, OSError, TimeoutError) as error:
            raise ResetFailed(f"{method} of namespace {self.namespace} failed: {error}") from error
