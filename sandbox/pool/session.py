"""The live handle through which a holder acts on its namespace.

Every action passes the fence first: the right generation, a lease that has not run out, an instance that still answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from sandbox.actions import ActionKind
from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid, InstanceLost, LimitReached, SessionExpired, StaleGeneration
from sandbox.model import ExecResult, Lease, PageAction, PageDo, PageResult, Score, Snapshot, SnapshotId, TrajectoryId
from sandbox.pages import Pages, browser_of
from sandbox.pool.members import Namespace, Ports
from sandbox.ports import Instance

log = logging.getLogger(__name__)
ENDED = (InstanceLost, SessionExpired, StaleGeneration)
WHOLE = ("snapshot", "score")  # they stop the agent's processes, so that nothing else of the session runs beside them


class SessionHost(Protocol):
    """What a session needs of its pool."""

    @property
    def ports(self) -> Ports: ...
    @property
    def pages(self) -> Pages: ...
    async def fork(self, parent: Session, snapshot: Snapshot, *, wait: float, ttl: float) -> Session: ...
    async def end(self, session: Session, *, outcome: str) -> None: ...


class Session:
    """One holder's use of one namespace. Hold it with `async with`; leaving it starts reset and check in the background."""

    def __init__(self, host: SessionHost, namespace: Namespace, lease: Lease, *, ttl_s: float, group: str | None = None) -> None:
        self._host = host
        self.namespace = namespace
        self.lease = lease
        self.group = group  # its forks are siblings, too
        self._ttl_s = ttl_s
        self._notes = host.ports.actions.begin(lease.trajectory)
        self._expires = lease.expires
        self._instance = namespace.live()
        self._scoring_until: float | None = None
        self._saved: dict[SnapshotId, Snapshot] = {}
        if namespace.start.fork:
            self._saved[namespace.start.snapshot.id] = namespace.start.snapshot
        self._snapshots = 0
        self._using_all = asyncio.Lock()  # snapshot and score: one at a time
        self._cuts = 0  # how often they ended what else was running
        self.outcome: str | None = None  # set when the lease ends: released, expired, lost, killed
        self.lost: InstanceLost | None = None
        self.in_force: Mapping[str, Any] = {
            **self._instance.in_force,
            "environment": namespace.environment.name,
            "environment_digest": lease.environment,
            "isolation": namespace.environment.spec.isolation.value,
            "reset": namespace.environment.spec.reset.method.value,
            "required_depth": namespace.environment.spec.check.required_depth.value,
            "start_depth": lease.start_check.depth.value,
            "start_identity": lease.start_check.identity,
            "start_digest": namespace.start.snapshot.digest,
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.release()

    def __repr__(self) -> str:
        return f"<Session {self.lease.namespace} generation {self.lease.generation} trajectory {self.trajectory_id}>"

    @property
    def trajectory_id(self) -> TrajectoryId:
        return self.lease.trajectory

    @property
    def environment(self) -> str:
        return self.namespace.environment.name

    @property
    def saved(self) -> Collection[SnapshotId]:
        """The snapshots that this session may fork."""
        return self._saved.keys()

    @property
    def has_expired(self) -> bool:
        """True when the deadline has passed; a running score() has headroom of its own."""
        clock = self._host.ports.clock
        if self._scoring_until is not None:
            return clock.monotonic() >= self._scoring_until
        return clock.now() >= self._expires

    @property
    def _has_ended(self) -> bool:
        return self.outcome is not None or self.namespace.generation != self.lease.generation

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
        """Run a command as the agent. A failing or overlong command is a result, not an error."""
        limit = self.namespace.environment.spec.limits.action_s if limit_s is None else limit_s
        async with self._acting("run") as instance:
            sent: dict[str, Any] = {"stdin": stdin, "cwd": cwd, "limit_s": limit}
            with self._notes.doing(ActionKind.RUN, argv=tuple(argv), env=dict(env or ()), **sent) as noted:
                result = await instance.run(argv, env=env, output_bytes=output_bytes, **sent)
                noted.result(result)
                return result

    def endpoint(self, resource: str) -> str:
        """Return the agent's address of a resource, good for this session only."""
        address = self.address(resource)
        self._notes.gave(ActionKind.ENDPOINT, resource)
        return address

    def address(self, resource: str) -> str:
        """The same, for whoever only passes it on: it is not recorded that the holder has it."""
        self._fence("endpoint")
        return self._instance.endpoint(resource)

    async def given(self, resource: str, *, page: bool = False) -> None:
        """Record that a holder in another process uses an address (or a page), where what it does is not seen."""
        self._notes.gave(ActionKind.PAGE if page else ActionKind.ENDPOINT, resource)

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        async with self._acting("read_file") as instance:
            return await instance.read_file(path, limit_bytes=limit_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        async with self._acting("write_file") as instance:
            with self._notes.doing(ActionKind.WRITE_FILE, path=path, data=data, mode=mode):
                await instance.write_file(path, data, mode=mode)

    async def page(self, resource: str | None = None) -> Any:
        """Return a Playwright page: the first tab of the environment's browser (of `resource`, where it has several). What is done
        with it is not recorded, as `browse` is."""
        async with self._acting("page") as instance:
            _, address = browser_of(instance, self.namespace.environment.spec, resource)
            self._notes.gave(ActionKind.PAGE, resource or "")
            return await self._host.pages.page(self.lease.id, address)

    async def browse(self, action: PageAction) -> PageResult:
        """Do one thing on that tab. What the page refuses is a result, not an error."""
        async with self._acting("browse") as instance:
            name, address = browser_of(instance, self.namespace.environment.spec, action.resource or None)
            if action.do is PageDo.LOOK:
                return await self._host.pages.act(self.lease.id, address, action)
            sent: dict[str, Any] = {"page": replace(action, data=b"", resource=name), "data": action.data, "resource": name}
            with self._notes.doing(ActionKind.BROWSE, **sent) as noted:
                result = await self._host.pages.act(self.lease.id, address, action)
                noted.exit_code = 0 if result.ok else 1
                return result

    async def snapshot(self) -> Snapshot:
        """Save the state as it is. Resources are stopped cleanly and started again: connections are lost."""
        limits = self._host.ports.limits
        if self._snapshots >= limits.session_snapshots:
            raise LimitReached(f"this session has saved {self._snapshots} snapshots (limits.session_snapshots)")
        async with self._using_all, self._acting("snapshot") as instance:
            self._cuts += 1
            with self._notes.doing(ActionKind.SNAPSHOT):
                async with asyncio.timeout(limits.reset_s):
                    snapshot = await instance.snapshot_now()
            self._snapshots += 1
            await self._host.ports.ledger.save_snapshot(snapshot)
            self._saved[snapshot.id] = snapshot
            return snapshot

    async def fork(self, snapshot: Snapshot, *, wait: float = 30.0, ttl: float | None = None) -> Session:
        """Start a second session from a snapshot of this one. Hold it with `async with`; PoolBusy when no place can come.

        Only from one that this session saved, or started from: quarantine follows ancestry, so a fork must not have another
        parent than the ledger says.
        """
        self._fence("fork")
        own = self._saved.get(snapshot.id)
        if own is None:
            raise EnvironmentInvalid(
                f"snapshot {snapshot.id} is not of this session ({self.trajectory_id})", fix="fork the session that saved it"
            )
        return await self._host.fork(self, own, wait=wait, ttl=self._ttl_s if ttl is None else ttl)

    async def score(self) -> Score:
        """Run the task's own check from outside, with the agent's processes stopped and the lease still held."""
        limits, clock = self._host.ports.limits, self._host.ports.clock
        environment = self.namespace.environment.environment
        task = environment.tasks.get(self.lease.task) if self.lease.task else None
        if task is None:
            raise EnvironmentInvalid("this session has no task to score", fix="name one: pool.session(environment, task=...)")
        async with self._using_all:
            self._fence("score")
            self._scoring_until = clock.monotonic() + limits.scoring_s
            try:
                async with self._acting("score") as instance, asyncio.timeout(limits.scoring_s):
                    self._cuts += 1
                    with self._notes.doing(ActionKind.SCORE):
                        # One that is just being made, too: it would act beside the scoring.
                        await self._host.pages.forget(self.lease.id, comes_back=True)
                        await instance.quiesce()
                    scored = await environment.score(instance.subject(), task)
                if self._has_ended:  # it may have read the reset state, or the next holder's
                    return Score(reward=None, success=False, detail="the lease ended while it was being scored")
                return scored
            except (*ENDED, LimitReached, TimeoutError) as error:  # infrastructure: no reward, never a zero
                return Score(reward=None, success=False, detail=f"{type(error).__name__}: {error}")
            finally:
                self._scoring_until = None

    async def memory_peak(self) -> int | None:
        """Return the most bytes that the instance's sandboxes held since they started (each one's peak, summed); None where nobody
        counts, or where several namespaces share the instance."""
        read: Callable[[], int | None] | None = getattr(self._instance, "memory_peak", None)
        return None if read is None else await in_thread(read)

    async def heartbeat(self, extend_s: float | None = None) -> float:
        """Say that the holder lives, and with `extend_s` move the deadline to that many seconds from now; return what is left."""
        self._fence("heartbeat")
        if extend_s is not None:
            self._expires = await self._host.ports.ledger.renew(self.lease.id, extend_s)
        return (self._expires - self._host.ports.clock.now()) / timedelta(seconds=1)

    async def release(self, *, outcome: str = "released") -> None:
        """End the lease; reset and check go on in the background. Calling it again changes nothing."""
        if self.outcome is None:
            await self._host.end(self, outcome="lost" if self.lost is not None and outcome == "released" else outcome)

    async def revoke(self) -> None:
        """Take this session's access away; the pool does so when the lease ends."""
        try:
            await self._instance.revoke()
        finally:
            self._notes.end()
            await self._host.pages.forget(self.lease.id)

    def _fence(self, action: str) -> None:
        if self.outcome == "expired" or (self.outcome is None and self.has_expired):
            raise SessionExpired(
                f"{action}: the session on {self.lease.namespace} ran past its {self._ttl_s:g} s",
                fix="ask for a longer ttl, or call heartbeat",
            )
        if self._has_ended:
            raise StaleGeneration(
                f"{action}: generation {self.lease.generation} of {self.lease.namespace} has ended",
                fix="ask the pool for a new session",
            )
        if self.lost is not None:
            raise self.lost
        if self._using_all.locked() and action in ("run", "read_file", "write_file", "browse"):
            raise LimitReached(
                f"{action}: a snapshot() or score() of this session is running", fix="wait for it: it stops the agent's processes"
            )

    @asynccontextmanager
    async def _acting(self, action: str) -> AsyncIterator[Instance]:
        """Fence before and, when the action failed, after: an action that a revocation cut short says so."""
        self._fence(action)
        cuts = self._cuts
        try:
            yield self._instance
        except InstanceLost as error:
            if action not in WHOLE and (self._cuts != cuts or self._using_all.locked()):
                raise  # cut short by this session's own snapshot() or score(), which says itself when the instance is lost
            if self.outcome is None and self.namespace.generation == self.lease.generation:
                self.lost = error
                log.warning(
                    "instance lost", extra={"event": "pool.instance_lost", "namespace": self.lease.namespace, "action": action}
                )
            else:
                self._fence(action)
            raise
