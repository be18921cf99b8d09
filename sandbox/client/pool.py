"""`Pool.connect()`: the pool that `autoclave pool up` keeps, from any process of its user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from sandbox.client.connection import HEARTBEAT_S, Connection
from sandbox.client.place import ours_alone, socket_path
from sandbox.errors import PoolBroken, RuntimeUnavailable
from sandbox.model import (
    Clearance,
    Depth,
    ExecResult,
    Lease,
    NamespaceId,
    PageAction,
    PageResult,
    Recall,
    Score,
    Snapshot,
    TrajectoryId,
)
from sandbox.pages import Pages, is_browser
from sandbox.settings import Settings, load


class RemoteSession:
    """A session on another process's pool; the same names as `Session`."""

    def __init__(self, connection: Connection, pages: Pages, grant: Mapping[str, Any]) -> None:
        self._connection = connection
        self._pages = pages
        self._endpoints: Mapping[str, str] = grant["endpoints"]
        self.lease: Lease = grant["lease"]
        self.environment: str = grant["environment"]
        self.in_force: Mapping[str, Any] = grant["in_force"]
        self.outcome: str | None = None
        self._used: set[str] = set()  # resources whose addresses were asked for

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.release()

    @property
    def trajectory_id(self) -> TrajectoryId:
        return self.lease.trajectory

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
        result: ExecResult = await self._call(
            "run", argv=list(argv), stdin=stdin, env=env, cwd=cwd, limit_s=limit_s, output_bytes=output_bytes
        )
        return result

    def endpoint(self, resource: str) -> str:
        address = self._address(resource)
        self._used.add(resource)
        return address

    def _address(self, resource: str) -> str:
        try:
            return self._endpoints[resource]
        except KeyError:
            known = ", ".join(sorted(self._endpoints)) or "none"
            raise KeyError(f"environment {self.environment} has no endpoint {resource!r} (it has: {known})") from None

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        data: bytes = await self._call("read_file", path=path, limit_bytes=limit_bytes)
        return data

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._call("write_file", path=path, data=data, mode=mode)

    async def page(self, resource: str | None = None) -> Any:
        """Return a Playwright page: the first tab of the environment's browser (of `resource`, where it has several)."""
        addresses = [self._address(resource)] if resource else list(self._endpoints.values())
        found = next((a for a in addresses if is_browser(a)), None)
        if found is None:
            raise RuntimeUnavailable(
                f"environment {self.environment} has no browser resource", fix="use an environment with a `browser` resource"
            )
        await self._call("given", resource=resource or "", page=True)
        return await self._pages.page(self.lease.id, found)

    async def browse(self, action: PageAction) -> PageResult:
        result: PageResult = await self._call("browse", action=action)
        return result

    async def snapshot(self) -> Snapshot:
        snapshot: Snapshot = await self._call("snapshot")
        return snapshot

    async def fork(self, snapshot: Snapshot, *, wait: float = 30.0, ttl: float | None = None) -> RemoteSession:
        return RemoteSession(self._connection, self._pages, await self._call("fork", snapshot=snapshot, wait=wait, ttl=ttl))

    async def score(self) -> Score:
        score: Score = await self._call("score")
        return score

    async def memory_peak(self) -> int | None:
        peak: int | None = await self._call("memory_peak")
        return peak

    async def heartbeat(self, extend_s: float | None = None) -> float:
        left: float = await self._call("heartbeat", extend_s=extend_s)
        return left

    async def release(self, *, outcome: str = "released") -> None:
        """End the lease. When the pool is gone it has ended already, as lost."""
        if self.outcome is None:
            self.outcome = outcome
            try:
                for resource in sorted(self._used):
                    await self._call("given", resource=resource)
                await self._call("release", outcome=outcome)
            except PoolBroken:
                self.outcome = "lost"
            finally:
                await self._pages.forget(self.lease.id)

    async def _call(self, method: str, **params: Any) -> Any:
        return await self._connection.call(f"session.{method}", session=self.lease.id, **params)


class RemotePool:
    """The same names as `Pool`, over a Unix socket. Hold it with `async with`; leaving it releases its sessions."""

    def __init__(self, settings: Settings, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._path = socket_path(settings)
        self._connection = Connection(self._path, heartbeat_s=heartbeat_s)
        self._pages = Pages()

    async def __aenter__(self) -> Self:
        if not self._path.parent.exists():
            raise PoolBroken(f"no pool listens at {self._path}", fix="start one with `autoclave pool up`")
        ours_alone(self._path.parent)
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._pages.close()
        finally:
            await self._connection.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def session(
        self,
        environment: str,
        *,
        task: str | None = None,
        wait: float = 30.0,
        ttl: float = 600.0,
        priority: int = 0,
        trajectory: str | None = None,
        group: str | None = None,
    ) -> AsyncIterator[RemoteSession]:
        session = await self.acquire(
            environment, task=task, wait=wait, ttl=ttl, priority=priority, trajectory=trajectory, group=group
        )
        async with session:
            yield session

    async def acquire(
        self,
        environment: str,
        *,
        task: str | None = None,
        wait: float = 30.0,
        ttl: float = 600.0,
        priority: int = 0,
        trajectory: str | None = None,
        group: str | None = None,
        holder: str | None = None,
    ) -> RemoteSession:
        grant = await self._connection.call(
            "acquire",
            environment=environment,
            task=task,
            wait=wait,
            ttl=ttl,
            priority=priority,
            trajectory=trajectory,
            group=group,
            holder=holder,
        )
        return RemoteSession(self._connection, self._pages, grant)

    async def clearance(self, trajectories: Sequence[str]) -> Mapping[TrajectoryId, Clearance]:
        found: Mapping[TrajectoryId, Clearance] = await self._connection.call("clearance", trajectories=list(trajectories))
        return found

    async def cleared(
        self, trajectories: Sequence[str], *, timeout: float, depth: Depth | None = None
    ) -> Mapping[TrajectoryId, Clearance]:
        found: Mapping[TrajectoryId, Clearance] = await self._connection.call(
            "cleared", trajectories=list(trajectories), timeout=timeout, depth=depth
        )
        return found

    async def ship(self, batch: str, trajectories: Sequence[str], *, policy_version: str, mode: str = "gated") -> Mapping[str, Any]:
        shipped: Mapping[str, Any] = await self._connection.call(
            "ship", batch=batch, trajectories=list(trajectories), policy_version=policy_version, mode=mode
        )
        return shipped

    async def record_update(self, update: str, *, batches: Sequence[str], checkpoint: str | None = None) -> None:
        await self._connection.call("record_update", update=update, batches=list(batches), checkpoint=checkpoint)

    async def record_checkpoint(self, checkpoint: str, *, updates: Sequence[str]) -> None:
        await self._connection.call("record_checkpoint", checkpoint=checkpoint, updates=list(updates))

    async def recall(self, quarantine: str | None = None) -> Recall:
        recall: Recall = await self._connection.call("recall", quarantine=quarantine)
        return recall

    async def release(self, trajectories: Sequence[str], *, by: str, note: str) -> Sequence[Clearance]:
        changed: Sequence[Clearance] = await self._connection.call("release", trajectories=list(trajectories), by=by, note=note)
        return changed

    async def discard(self, trajectories: Sequence[str], *, by: str, note: str) -> Sequence[Clearance]:
        changed: Sequence[Clearance] = await self._connection.call("discard", trajectories=list(trajectories), by=by, note=note)
        return changed

    async def roll(self, environment: str) -> bool:
        """Let the pool read `environment` (a name, or an absolute path) anew and give that version out from now on."""
        rolled: bool = await self._connection.call("roll", environment=environment)
        return rolled

    async def resume(self, environment: str, *, by: str, note: str) -> bool:
        stopped: bool = await self._connection.call("resume", environment=environment, by=by, note=note)
        return stopped

    async def why(self, trajectory: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._connection.call("why", trajectory=trajectory)
        return found

    async def record_audit(self, report: Mapping[str, Any]) -> None:
        await self._connection.call("record_audit", report=dict(report))

    async def status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = await self._connection.call("status")
        return status

    async def audit_namespaces(self, depth: Depth = Depth.DEEP) -> Mapping[NamespaceId, bool | None]:
        found: Mapping[NamespaceId, bool | None] = await self._connection.call("audit_namespaces", depth=depth)
        return found

    async def verify_seals(self) -> Mapping[str, bool]:
        found: Mapping[str, bool] = await self._connection.call("verify_seals")
        return found

    async def drain(self, *, grace_s: float | None = None) -> None:
        """Ask the pool to drain and end; returns when its last trajectories are checked."""
        await self._connection.call("drain", grace_s=grace_s)


def connect(settings: Settings | None = None) -> RemotePool:
    """Return the pool that listens in the settings' home; enter it with `async with`."""
    return RemotePool(settings or load())
