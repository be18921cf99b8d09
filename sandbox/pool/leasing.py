"""The way of a lease: a claimed namespace, made to fit, written in the ledger, handed over; and back again at its end.

A namespace that somebody claimed is in nobody else's reach. Whoever gives up in between puts it back, or leaves it to the
background step that is working on it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from sandbox.aio import run_shielded
from sandbox.errors import AutoclaveError, EnvironmentInvalid, LedgerConflict, LimitReached, PoolBroken, PoolBusy, ResetFailed
from sandbox.lifecycle import Event, State
from sandbox.model import Depth, Lease, LeaseId, Snapshot, TrajectoryId
from sandbox.pages import Pages
from sandbox.pool.crew import Crew
from sandbox.pool.members import Namespace, Ports, Prepared, StartState, Superseded
from sandbox.pool.preparation import Preparer
from sandbox.pool.session import Session
from sandbox.pool.turnover import Turnover

log = logging.getLogger(__name__)
FORK_PRIORITY = 10  # a parent holds a place while its fork waits for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a holder asks for."""

    task: str | None = None
    wait: float = 30.0
    ttl: float = 600.0
    priority: int = 0
    trajectory: TrajectoryId | None = None
    group: str | None = None
    holder: str = ""
    parent: TrajectoryId | None = None


class Leasing:
    """Grants and ends leases."""

    def __init__(self, ports: Ports, *, preparer: Preparer, turnover: Turnover, crew: Crew, wake: Callable[[], None]) -> None:
        self.ports = ports
        self.sessions: dict[LeaseId, Session] = {}
        self.closed: str = ""  # why no request is admitted
        self.acquire_s: deque[float] = deque(maxlen=10_000)  # the latest requests that got a session
        self.unfinished: list[Session] = []  # ended for their holders, but the ledger could not write it yet
        self.idle = asyncio.Event()  # no session is open, and no lease is being written
        self.idle.set()
        self.pages = Pages()
        self._preparer = preparer
        self._turnover = turnover
        self._crew = crew
        self._wake = wake
        self._granting = 0  # leases that are being written
        self._deriving: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def acquire(self, prepared: Prepared, request: Request) -> Session:
        """Return a session on a verified namespace; PoolBusy when none came free in `request.wait` seconds."""
        began = self.ports.clock.monotonic()
        try:
            async with asyncio.timeout(request.wait) as deadline:
                prepared = prepared.latest
                self._admit(prepared)
                start = await self._start_state(prepared, request.task)
                until = deadline.when()
                while True:
                    while prepared.successor is not None:  # again where another follows while its start state is made
                        prepared = prepared.latest
                        start = await self._start_state(prepared, request.task)
                    try:
                        namespace = await self._claim(prepared, start, request.priority, since=began)
                    except Superseded:
                        continue
                    if not await self._fit(namespace, start):
                        self._admit(prepared)
                        continue
                    if (stopped := self._stopped(prepared)) is not None:  # while the namespace was made to fit
                        self._settle(namespace)
                        raise stopped
                    deadline.reschedule(None)  # the wait is over; so that wait=0 takes what is ready
                    if (session := await self._grant(namespace, request)) is not None:
                        self.acquire_s.append(self.ports.clock.monotonic() - began)
                        return session
                    deadline.reschedule(until)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise self._busy(prepared, f"no namespace of {prepared.name} came free within {request.wait:g} s") from None

    async def fork(self, parent: Session, snapshot: Snapshot, *, wait: float, ttl: float) -> Session:
        """Return a session that starts from `snapshot`; PoolBusy at once where only the end of a lease could bring a place."""
        prepared = parent.namespace.environment
        if snapshot.environment != prepared.spec.digest:
            raise EnvironmentInvalid(f"snapshot {snapshot.id} is not of environment {prepared.name} as it is now")
        start = StartState(snapshot=snapshot, baseline=parent.namespace.start.baseline, fork=True)
        request = Request(
            task=parent.lease.task,
            wait=wait,
            ttl=ttl,
            holder=parent.lease.holder,
            parent=parent.trajectory_id,
            group=parent.group,
        )
        if not prepared.can_come:
            raise self._no_lease_awaited(prepared)
        try:
            async with asyncio.timeout(wait) as deadline:
                self._admit(prepared)
                namespace = await self._claim(prepared, prepared.golden, FORK_PRIORITY, awaits_leases=False)
                if not await self._outside(namespace, self._turnover.become_fork(namespace, start, parent.trajectory_id)):
                    raise ResetFailed(
                        f"the fork of {parent.trajectory_id} did not pass its start check",
                        fix="`autoclave pool status` names what differed",
                    )
                if (stopped := self._stopped(prepared)) is not None:
                    self._settle(namespace)
                    raise stopped
                if (session := await self._grant(namespace, request)) is not None:
                    return session
        except Superseded:
            raise self._no_lease_awaited(prepared) from None
        except TimeoutError:
            if not deadline.expired():
                raise
        raise self._busy(prepared, f"no namespace of {prepared.name} could take the fork within {wait:g} s")

    def refuse_forks(self, prepared: Prepared) -> None:
        """Fail the forks that wait, where only the end of a lease could bring a place now: parents never wait for each other."""
        if not prepared.can_come:
            prepared.waiting.fail_all(self._no_lease_awaited(prepared), only=lambda waiter: not waiter.awaits_leases)

    async def end(self, session: Session, *, outcome: str) -> None:
        """Close the fence, revoke, record the end, and start reset and check in the background. Finishes even when cancelled."""
        if session.outcome is not None:
            return
        session.outcome = outcome
        await run_shielded(self.finish(session))

    async def finish(self, session: Session) -> None:
        """Revoke and record the end of a session whose fence is closed. An instance that cannot be revoked is lost: restored."""
        namespace = session.namespace
        outcome = session.outcome or "released"
        event = Event.RELEASE if session.lost is None else Event.LOST
        try:
            async with asyncio.timeout(self.ports.limits.revoke_s):
                await session.revoke()
        except Exception as error:  # noqa: BLE001 - of a runtime or resource that may be anyone's: the lease ends all the same
            log.warning(
                "revoke failed",
                extra={"event": "pool.revoke_failed", "namespace": namespace.id, "reason": f"{type(error).__name__}: {error}"},
            )
            event = Event.LOST
        try:
            namespace.record = await self.ports.ledger.end_lease(session.lease.id, outcome=outcome, event=event)
        except BaseException:
            self.unfinished.append(session)  # the expiry duty tries again
            raise
        clock = self.ports.clock
        if namespace.deep_since is None:
            namespace.deep_since = clock.monotonic()
        namespace.environment.leased -= 1
        self.sessions.pop(session.lease.id, None)
        self._rest()
        self._crew.spawn(self._turnover.recycle(namespace, since=session.lease.granted.timestamp()), name=f"recycle {namespace.id}")

    async def finish_all(self) -> list[AutoclaveError]:
        """Try once more to record the ends that the ledger refused; return what it refuses still."""
        refused: list[AutoclaveError] = []
        for _ in range(len(self.unfinished)):  # one that is refused again goes to the end of the list
            try:
                await run_shielded(self.finish(self.unfinished.pop(0)))
            except AutoclaveError as error:
                refused.append(error)
        return refused

    def _stopped(self, prepared: Prepared) -> Exception | None:
        """Return why no lease of it is given."""
        return PoolBroken(self.closed) if self.closed else prepared.broken or prepared.halted

    def _admit(self, prepared: Prepared) -> None:
        if (stopped := self._stopped(prepared)) is not None:
            raise stopped
        if prepared.breaker.is_open and not prepared.members and not prepared.creating and not prepared.breaker.can_try():
            raise PoolBroken(
                f"no namespace of {prepared.name} can be made: {prepared.breaker.reason}",
                fix=f"the next attempt is in {prepared.breaker.retry_after_s:.0f} s; `autoclave doctor` looks at the machine",
            )

    def _busy(self, prepared: Prepared, what: str) -> PoolBusy:
        waiting = len(prepared.waiting)
        retry = max(0.1, prepared.breaker.retry_after_s, prepared.cycle_s * (waiting + 1) / max(1, prepared.size))
        why = f"; creation fails: {prepared.breaker.reason}" if prepared.breaker.reason else ""
        counts = f"{len(prepared.members)} of {prepared.size} live, {prepared.leased} leased, {waiting} waiting"
        return PoolBusy(
            f"{what} ({counts}){why}", retry_after_s=round(retry, 3), fix="ask again later, or open the pool with a larger size"
        )

    def _no_lease_awaited(self, prepared: Prepared) -> PoolBusy:
        if (newer := prepared.successor) is not None:
            return self._busy(
                prepared,
                f"{prepared.name} {newer.spec.version} has taken the place of its version {prepared.spec.version}: no more forks",
            )
        return self._busy(prepared, f"a fork does not wait for a lease, and nothing else frees a namespace of {prepared.name}")

    async def _claim(
        self, prepared: Prepared, start: StartState, priority: int, *, since: float | None = None, awaits_leases: bool = True
    ) -> Namespace:
        self._admit(prepared)  # it may have stopped since, and nobody fails those who join the line after that
        if (namespace := prepared.take(start.snapshot.id)) is not None:
            return namespace
        try:
            waiter = prepared.waiting.join(priority, wants=start, since=since, awaits_leases=awaits_leases)
        except LimitReached as error:
            raise self._busy(prepared, error.message) from error
        self._wake()
        return await waiter.received(give_back=prepared.put)

    async def _start_state(self, prepared: Prepared, task: str | None) -> StartState:
        """Derive in a task of the pool's own, which all who ask share and no cancelled request takes down."""
        if task is None:
            return prepared.golden
        if (known := self._preparer.known(prepared, task)) is not None:
            return known
        key = (prepared.spec.digest, task)  # each version has its own
        job = self._deriving.get(key)
        if job is None:

            async def derive() -> StartState | Exception:
                try:
                    return await self._preparer.start_state(prepared, task)
                except Exception as error:  # noqa: BLE001 - carried to everyone who asked
                    return error
                finally:
                    self._deriving.pop(key, None)

            job = self._deriving[key] = self._crew.spawn(derive(), name=f"derive {task}")
        await asyncio.wait({job})
        if isinstance(result := job.result(), Exception):
            raise result
        assert isinstance(result, StartState)
        return result

    async def _fit(self, namespace: Namespace, start: StartState) -> bool:
        """Make a claimed namespace stand for `start`, with a check that is young enough; False: another one is needed."""
        if namespace.start.snapshot.id != start.snapshot.id:
            return await self._outside(namespace, self._turnover.retarget(namespace, start))
        if not self._turnover.is_fresh(namespace):
            return await self._outside(namespace, self._turnover.recheck(namespace, Depth.QUICK, purpose="recheck"))
        return True

    async def _outside(self, namespace: Namespace, work: Coroutine[Any, Any, bool]) -> bool:
        """Run a step on a claimed namespace in the crew: when the request is cancelled the step goes on, and then others get it."""
        job = self._crew.spawn(work, name=f"fit {namespace.id}")
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError:
            job.add_done_callback(lambda _: self._settle(namespace))
            raise
        return job.result() is True

    def _settle(self, namespace: Namespace) -> None:
        if namespace.state is State.READY and namespace.start.fork:
            self._crew.spawn(self._turnover.return_fork(namespace), name=f"return {namespace.id}")
        else:
            namespace.environment.put(namespace)

    async def _grant(self, namespace: Namespace, request: Request) -> Session | None:
        """Write the lease, then make the session; None when the ledger says that the namespace is not as we think."""
        granted: list[Session] = []
        if namespace.live().generation != namespace.generation:  # not the instance that was checked
            await self._turnover.out_of_service(namespace)
            return None
        self._granting += 1
        self.idle.clear()
        try:
            await run_shielded(self._write_lease(namespace, request, granted))
        except LedgerConflict:
            record = await self.ports.ledger.namespace(namespace.id)
            if State(record.state) is State.READY and record.generation == namespace.generation:
                self._settle(namespace)
                if await self._instance_serves(namespace):
                    raise  # the conflict is the request's own: its trajectory exists already
                return None
            await self._turnover.out_of_service(namespace)
            return None
        except BaseException:
            if granted:  # cancelled at the moment of the hand-over: the lease exists, so it is ended like any other
                self._crew.spawn(self.end(granted[0], outcome="released"), name=f"end {namespace.id}")
            else:
                self._settle(namespace)
            raise
        finally:
            self._granting -= 1
            self._rest()
        return granted[0]

    def _rest(self) -> None:
        if not self.sessions and not self._granting:
            self.idle.set()

    async def _instance_serves(self, namespace: Namespace) -> bool:
        """False where the ledger gives no leases on it because of the instance that it shares."""
        if namespace.host is None:
            return True
        return (await self.ports.ledger.namespace(namespace.host.record.id)).state == State.READY

    async def _write_lease(self, namespace: Namespace, request: Request, granted: list[Session]) -> None:
        lease: Lease = await self.ports.ledger.lease(
            namespace.id,
            generation=namespace.generation,
            lease=LeaseId(f"s-{secrets.token_hex(8)}"),
            trajectory=request.trajectory or TrajectoryId(f"t-{secrets.token_hex(8)}"),
            holder=request.holder,
            task=request.task,
            ttl_s=request.ttl,
            parent=request.parent,
        )
        session = Session(self, namespace, lease, ttl_s=request.ttl, group=request.group)
        namespace.record = replace(namespace.record, state=State.LEASED, sequence=lease.sequence)
        namespace.environment.leased += 1
        self.refuse_forks(namespace.environment)
        if namespace.host is not None:
            namespace.host.used(self.ports.clock.monotonic())
        self.sessions[lease.id] = session
        granted.append(session)
        if request.group is not None:
            await self.ports.ledger.join_group(request.group, [lease.trajectory])
