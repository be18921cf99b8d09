"""One running copy of an environment that is a container of any image."""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import AutoclaveError, InstanceLost, LimitReached, ResetFailed, SnapshotMissing
from sandbox.model import NOTHING, ExecResult, NamespaceId, Snapshot
from sandbox.runtimes.docker import containers
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import commands, files, layer
from sandbox.runtimes.docker.plain.addresses import Addresses
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.lineage import Lineage
from sandbox.runtimes.docker.plain.reach import Spent
from sandbox.runtimes.docker.plain.saved import Saver
from sandbox.runtimes.docker.plain.view import PlainSubject
from sandbox.runtimes.group.watch import watch_disk

log = logging.getLogger(__name__)
_UNREACHED = ("/dev", "/proc", "/sys")
_SETTLE_S = 30.0
_ON_DISK = "read in the writable layer on the disk"
_LISTED = "as the engine lists them: not what kept its size and time, nor attributes of directories"
_PUBLISHED = (
    "ports published at {} of the engine's machine, on a bridge of this home. No wall: from inside, every service of that machine "
    "on its bridge or on all its addresses is reached, and what it routes to is sent packets"
)


class PlainInstance:
    """Implements `Instance`. Made by `open`, ended by `close`. Every restore makes a new container under a new name."""

    def __init__(
        self,
        engine: Engine,
        saver: Saver,
        definition: Definition,
        snapshot: Snapshot,
        namespace: NamespaceId,
        data_root: Path | None,
        spent: Spent,
    ) -> None:
        self.engine, self._saver, self.definition = engine, saver, definition
        self.snapshot, self.namespace, self.data_root = snapshot, namespace, data_root
        self.generation = 0
        self.in_place = False
        self.token = secrets.token_hex(6)
        self.closed = False
        self._lineage: Lineage | None = None
        self._addresses = Addresses(definition, spent)
        self._revoked = True
        self._used = False
        self._stopped: str | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # what stops, replaces or saves the container: one at a time
        self._acts = 0  # actions of the session that have not come to their end
        self._endings = 0  # how often its end was asked for: a save that meets one gives up
        engine.held.add(self.token)

    @classmethod
    async def open(
        cls,
        engine: Engine,
        saver: Saver,
        definition: Definition,
        snapshot: Snapshot,
        namespace: NamespaceId,
        generation: int,
        data_root: Path | None,
        spent: Spent,
    ) -> PlainInstance:
        """Make, fill, prove, start. Nothing is left when that fails."""
        instance = cls(engine, saver, definition, snapshot, namespace, data_root, spent)
        try:
            instance._lineage = await instance._make(snapshot, generation)
            await instance._come_up(generation)
        except BaseException as error:
            await undo(error, instance.close())
            raise
        return instance

    async def _make(self, snapshot: Snapshot, generation: int) -> Lineage:
        saved = await self._saver.read(snapshot)
        mark = self._mark(generation)
        return await Lineage.make(self.engine, self.definition, mark, image=saved.image, fresh=False, saved=saved)

    def _mark(self, generation: int) -> Mark:
        name = self.definition.spec.name
        part = self.definition.resource
        return Mark(
            home=self.engine.home, environment=name, namespace=self.namespace, generation=generation, part=part, owner=self.token
        )

    async def _come_up(self, generation: int) -> None:
        lineage = self.lineage
        if lineage.reach is None:
            await lineage.start()
        await self._addresses.open(lineage.running)
        self.generation = generation
        self._revoked, self._used, self._stopped = False, False, None
        self._watcher = asyncio.ensure_future(
            watch_disk(self._written, lambda: self._used, self.definition.spec.limits.disk_mb, self._stop, self.namespace)
        )

    @property
    def lineage(self) -> Lineage:
        if self._lineage is None:
            raise InstanceLost(f"the instance of namespace {self.namespace} is closed", fix="ask for a new session")
        return self._lineage

    @property
    def in_force(self) -> Mapping[str, Any]:
        chosen = self.definition.options
        limits = self.definition.spec.limits
        config = self.definition.image.get("Config") or {}
        beside = self.engine.beside
        counted = "the writable layer and the volumes" if self.data_root else "the writable layer; volumes are not counted"
        bounds = self._lineage.bounds if self._lineage is not None else {}
        return {
            "runtime": "docker",
            "engine": self.engine.address.url,
            "engine_runtime": chosen.runtime or "the engine's default",
            "image": str(self.definition.image.get("Id", "")),
            "isolation": self.definition.spec.isolation.value,
            "state": "recreated from its saved image; volumes filled through the engine's archive",
            "network": _PUBLISHED.format(self.definition.publish_at) if self.definition.published else "none: loopback alone",
            "endpoints": "TCP on this machine's loopback, open to its users; a port is one generation's, and then kept unused",
            "user": chosen.user or config.get("User") or "root (of the container, with the capabilities below)",
            "capabilities": sorted(chosen.capabilities),
            "no_new_privileges": True,
            "seccomp": "the engine's default profile",
            "read_only_root": chosen.read_only,
            "limits": f"memory {limits.memory_mb} MiB, pids {limits.pids}, cpus {limits.cpus:g}",
            "profile": "read back from the engine's description and the host's /proc" if bounds else "by the engine's description",
            **{f"bound_{name}": text for name, text in bounds.items() if name in ("memory", "pids", "cpu")},
            "changed_files": _ON_DISK if self._lineage is not None and self._lineage.upper is not None else _LISTED,
            "observed": "engine and the host's /proc" if beside else "engine alone: no listeners, no mount table",
            "disk_bound": f"{limits.disk_mb} MiB of {counted}",
            "commands": "one exec each",
            "extended_attributes": "of volumes: file capabilities alone",
            "reset_scope": "in place" if self.in_place else "instance: container and volumes",
        }

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
        lineage = self._acting()
        limits = self.definition.spec.limits
        async with self._telling_why():
            return await commands.run(
                self.engine,
                lineage.running,
                argv,
                stdin=stdin,
                env=env or NOTHING,
                cwd=cwd,
                limit_s=limit_s or limits.action_s,
                output_bytes=output_bytes or limits.output_bytes,
            )

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        lineage = self._acting()
        async with self._telling_why():
            return await files.read(self.engine, lineage.container, self._absolute(path), limit_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        lineage = self._acting()
        bound = self.definition.spec.limits.file_mb << 20
        if len(data) > bound:
            raise LimitReached(f"{path}: {len(data)} bytes are more than limits.file_mb allows")
        async with self._telling_why():
            await files.write(self.engine, lineage.container, self._absolute(path), data, mode)

    def _absolute(self, path: str) -> str:
        base = self.definition.options.workdir or (self.definition.image.get("Config") or {}).get("WorkingDir") or "/"
        found = posixpath.normpath(posixpath.join(base, path))
        if any(f"{found}/".startswith(f"{top}/") for top in (*_UNREACHED, *self.definition.options.tmpfs)):
            said = "it lies in memory of the container, which its engine's archive does not reach: use a command"
            raise OSError(errno.EOPNOTSUPP, said, found)
        return found

    def endpoint(self, resource: str) -> str:
        self._acting()
        return self._addresses.session(resource)

    def trusted_endpoint(self, resource: str) -> str:
        return self._addresses.trusted(resource)

    def _acting(self) -> Lineage:
        if self._stopped is not None:
            raise self._reason()
        if self._revoked:
            raise InstanceLost(f"generation {self.generation} of namespace {self.namespace} has ended", fix="ask for a new session")
        self._used = True
        return self.lineage

    def _reason(self) -> LimitReached:
        return LimitReached(f"the instance of namespace {self.namespace} was stopped: {self._stopped}", fix="raise limits.disk_mb")

    @asynccontextmanager
    async def _telling_why(self) -> AsyncIterator[None]:
        self._acts += 1
        try:
            yield
        except InstanceLost:
            if self._stopped is not None:
                raise self._reason() from None
            raise
        finally:
            self._acts -= 1

    async def _settled(self) -> None:
        """Wait until no action of the generation that has ended can do anything more: the engine may begin late what it was asked
        for before. Its commands are killed as they appear."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _SETTLE_S
        while acts := self._acts:
            if loop.time() > give_up:
                raise ResetFailed(
                    f"{acts} actions of the generation that ended did not end in {_SETTLE_S:g} s", fix='use method "restore"'
                )
            await asyncio.sleep(0.02)
            await in_thread(commands.kill_marked, self.lineage.running, None)

    async def quiesce(self) -> None:
        """End the agent's commands and what they left. Its orphans without a mark are the check's to find."""
        await self._addresses.cut()
        reach = self.lineage.running
        if reach.pid:
            await in_thread(commands.kill_marked, reach, None)

    # resets

    async def revoke(self) -> None:
        self._endings += 1
        async with self._turn:
            await self._revoke()

    async def _revoke(self) -> None:
        self._revoked = True
        self._cancel_watch()
        await self._addresses.close()
        if self._lineage is not None and self._lineage.reach is not None and self._lineage.reach.pid:
            await in_thread(commands.kill_marked, self._lineage.reach, None)

    async def restore(self, snapshot: Snapshot, generation: int) -> None:
        self._endings += 1
        async with self._turn, self._failing("restore"):
            await self._revoke()
            old, self._lineage = self._lineage, None
            if old is not None:
                await run_shielded(old.destroy())
            self._lineage = await self._make(snapshot, generation)
            self.snapshot, self.in_place = snapshot, False
            await self._come_up(generation)

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        if hook is None:
            raise ResetFailed(
                f"resource {self.definition.resource} (kind container) cannot be cleaned: nobody knows what it holds in memory",
                fix='use method "restore", or a hook of your own',
            )
        self._endings += 1
        async with self._turn, self._failing("hook"):
            if not self.lineage.running.pid:
                raise ResetFailed("what a hook leaves in memory cannot be seen from here", fix='use method "restore"')
            await self._revoke()
            await self._settled()
            limit = self.definition.spec.reset.hook_limit_s
            done = await commands.run(self.engine, self.lineage.running, hook, limit_s=limit)
            if done.exit_code:
                said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-800:]
                raise ResetFailed(f"the reset hook ended with {done.exit_code}: {said or 'no message'}", fix="correct the hook")
            self.in_place = True
            await self._come_up(generation)

    async def snapshot_now(self) -> Snapshot:
        return await run_shielded(self._snapshot_now())

    async def _snapshot_now(self) -> Snapshot:
        async with self._turn:
            return await self._save()

    async def _save(self) -> Snapshot:
        lineage, generation, endings = self._acting(), self.generation, self._endings
        try:
            await self._revoke()
            await lineage.stop()
            volumes = tuple(lineage.volume_names)
            saved = await self._saver.save(
                self.definition.spec, self.definition.resource, lineage.container, volumes, parent=self.snapshot.id
            )
            if self._endings == endings or not self.definition.spec.reset.method.replaces:  # a hook needs it running
                await self._come_up(generation)
        except BaseException:
            await lineage.kill()
            raise
        return saved

    def subject(self) -> PlainSubject:
        return PlainSubject(self)

    async def alive(self) -> bool:
        if self._lineage is None or self._revoked or self._stopped is not None:
            return False
        try:
            return bool((await self._lineage.describe())["State"]["Running"])
        except AutoclaveError:
            return False

    async def close(self) -> None:
        """Idempotent; runs to its end."""
        self._endings += 1
        await run_shielded(self._close())

    async def _close(self) -> None:
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        self.closed = True
        lineage, self._lineage = self._lineage, None
        try:
            await self._revoke()
        finally:
            try:
                if lineage is not None:
                    await lineage.destroy()
            finally:
                self.engine.held.discard(self.token)

    # parts

    async def _written(self) -> int:
        container = self.lineage.container

        def work(client: Any) -> int:
            found = client.containers(all=True, size=True, filters={"id": container})
            return int(found[0].get("SizeRw", 0)) if found else 0

        total = await self.engine.call(work, doing="measuring a container")
        for target in self.lineage.volume_names if self.data_root is not None else ():
            total += await in_thread(layer.size_of, self.subject().tree(self.definition.resource, target).real(""))
        return total

    async def _stop(self, reason: str) -> None:
        self._stopped = reason
        await self._addresses.close()
        await containers.kill(self.engine, self.lineage.container)

    def _cancel_watch(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher is not asyncio.current_task():
            watcher.cancel()

    @asynccontextmanager
    async def _failing(self, method: str) -> AsyncIterator[None]:
        """Turn what ends a reset early into ResetFailed with its cause; nothing runs then."""
        try:
            yield
        except (ResetFailed, SnapshotMissing, asyncio.CancelledError):
            await run_shielded(self._down())
            raise
        except (AutoclaveError, OSError, TimeoutError) as error:
            await run_shielded(self._down())
            raise ResetFailed(f"{method} of namespace {self.namespace} failed: {error}") from error

    async def _down(self) -> None:
        await self._revoke()
        if self._lineage is not None:
            try:
                await self._lineage.kill()
            except AutoclaveError as error:
                log.warning("a container could not be ended", extra={"namespace": self.namespace, "reason": str(error)})
