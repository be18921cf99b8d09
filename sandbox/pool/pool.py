"""The pool: what trainers hold. It is given its ports; `sandbox.wiring` is where they are put together."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from sandbox.actions.log import Recorder, Unrecorded
from sandbox.aio import run_shielded
from sandbox.errors import AutoclaveError, EnvironmentInvalid, PoolBroken
from sandbox.lifecycle import State
from sandbox.model import Clearance, ClearanceState, Depth, NamespaceId, Recall, TrajectoryId
from sandbox.pool.checking import Checker
from sandbox.pool.creation import Creator
from sandbox.pool.crew import Crew
from sandbox.pool.leasing import Leasing, Request
from sandbox.pool.limits import PoolLimits
from sandbox.pool.members import Namespace, Ports, Prepared
from sandbox.pool.preparation import Preparer
from sandbox.pool.reconcile import Reconciler, Settled
from sandbox.pool.reset import Resetter
from sandbox.pool.retention import OldEvidence, SpentSnapshots
from sandbox.pool.session import Session
from sandbox.pool.sharing import Sharing
from sandbox.pool.shipping import Shipping
from sandbox.pool.turnover import Turnover
from sandbox.pool.upkeep import Expiry, Rechecks, Retirement, Seals, Spares, Upkeep
from sandbox.pool.versions import Versions
from sandbox.ports import Clock, Environment, Ledger, Runtime

log = logging.getLogger(__name__)


class Pool:
    """Namespaces of one or more environments, each proven clean before it is handed out. Hold it with `async with`.

    `size` counts namespaces per environment. Leaving the pool drains it: open sessions get `drain_grace_s` to end, and the last
    trajectories are checked like all others.
    """

    def __init__(
        self,
        environments: Sequence[Environment],
        *,
        ledger: Ledger,
        runtime: Runtime,
        clock: Clock,
        size: int | Mapping[str, int] = 2,
        limits: PoolLimits | None = None,
        actions: Recorder | None = None,
    ) -> None:
        self._given = list(environments)
        self._sizes = {e.spec.name: size if isinstance(size, int) else size[e.spec.name] for e in environments}
        self._ports = ports = Ports(
            ledger=ledger, runtime=runtime, clock=clock, limits=limits or PoolLimits(), actions=actions or Unrecorded()
        )
        self._required: dict[str, Depth] = {}
        self._crew = Crew()
        self._preparer = Preparer(ports)
        self._versions = Versions(ports, self._preparer, required=self._required)
        checker = Checker(ports)
        self._resetter = Resetter(ports, self._preparer, checker)
        crew, wake = self._crew, self._wake
        self._turnover = Turnover(clock=clock, resetter=self._resetter, crew=crew, wake=wake)
        self._leasing = Leasing(ports, preparer=self._preparer, turnover=self._turnover, crew=crew, wake=wake)
        self._sharing = Sharing(
            ports,
            preparer=self._preparer,
            checker=checker,
            resetter=self._resetter,
            leasing=self._leasing,
            turnover=self._turnover,
            crew=self._crew,
            environments=self._all,
        )
        self._creator = Creator(ports, checker, self._resetter, self._sharing.place)
        self._retirement = Retirement(ports, resetter=self._resetter, turnover=self._turnover, crew=crew, environments=self._all)
        self._spares = Spares(
            ports,
            creator=self._creator,
            retirement=self._retirement,
            crew=crew,
            leasing=self._leasing,
            environments=self._all,
        )
        self._rechecks = Rechecks(ports, turnover=self._turnover, crew=self._crew, environments=self._all)
        self._seals = Seals(ports, preparer=self._preparer, environments=self._all)
        self._upkeep = Upkeep(ports, self._crew)
        self._shipping = Shipping(ledger, required=self._required, ask_deep=self._ask_deep)
        self.settled = Settled()
        self._draining: asyncio.Task[None] | None = None
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    async def __aenter__(self) -> Self:
        reconciler = Reconciler(self._ports, self._resetter)
        await self._crew.start()
        try:
            swept = await reconciler.sweep()
            for environment in self._given:
                await self._versions.prepare(environment, size=self._sizes[environment.spec.name])
            self.settled = await reconciler.settle(self._all(), swept)
        except BaseException:
            self._leasing.closed = "the pool did not open"
            await self._retire_all()
            await self._sharing.close_all()
            await self._crew.stop()
            raise
        expiry = Expiry(self._ports, leasing=self._leasing, crew=self._crew)
        spent = SpentSnapshots(self._ports, preparer=self._preparer, leasing=self._leasing, environments=self._all)
        retention = (spent, OldEvidence(self._ports))
        self._upkeep.start([self._spares, expiry, self._rechecks, self._retirement, self._seals, self._sharing, *retention])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.drain()

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
    ) -> AsyncIterator[Session]:
        """Hold a session on a verified namespace of `environment`: `async with pool.session("shop") as s`."""
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
    ) -> Session:
        """Like `session`, for holders that end it themselves with `release()`."""
        request = Request(
            task=task,
            wait=wait,
            ttl=ttl,
            priority=priority,
            trajectory=None if trajectory is None else TrajectoryId(trajectory),
            group=group,
            holder=holder or self._holder,
        )
        return await self._leasing.acquire(self.environment(environment), request)

    def environment(self, name: str) -> Prepared:
        """Return an environment of this pool; raise EnvironmentInvalid naming those there are."""
        return self._versions.get(name)

    async def roll(self, environment: Environment) -> bool:
        """Give out this version of an environment of the pool from now on; leases keep the version that they took.

        False when it is the one in service already. Whatever the new version lacks is told before anything changes.
        """
        if self._leasing.closed:
            raise PoolBroken(self._leasing.closed)
        rolled = await self._versions.roll(environment)
        if rolled:
            await self._retirement.round()
            self._wake()
        return rolled

    async def resume(self, environment: str, *, by: str, note: str) -> bool:
        """Give leases again after too many quarantines stopped them, and count anew; False when nothing had stopped them. A person
        says who and why, which the ledger keeps."""
        if not by.strip() or not note.strip():
            raise EnvironmentInvalid("who resumes the leasing, and why?", fix="give `by` and `note`")
        prepared = self.environment(environment)
        if prepared.halted is None:
            return False
        await self._ports.ledger.resume(prepared.name, by=by.strip(), note=note.strip())
        prepared.resume()
        log.warning("leasing resumed", extra={"event": "pool.resumed", "environment": environment, "by": by, "note": note})
        return True

    async def clearance(self, trajectories: Sequence[str]) -> Mapping[TrajectoryId, Clearance]:
        """Look where trajectories stand, without waiting."""
        return await self._shipping.clearance([TrajectoryId(t) for t in trajectories])

    async def cleared(
        self, trajectories: Sequence[str], *, timeout: float, depth: Depth | None = None
    ) -> Mapping[TrajectoryId, Clearance]:
        """Wait until each is decided; see `Shipping.cleared`."""
        return await self._shipping.cleared([TrajectoryId(t) for t in trajectories], timeout=timeout, depth=depth)

    async def ship(self, batch: str, trajectories: Sequence[str], *, policy_version: str, mode: str = "gated") -> Mapping[str, Any]:
        return await self._shipping.ship(batch, [TrajectoryId(t) for t in trajectories], policy_version=policy_version, mode=mode)

    async def record_update(self, update: str, *, batches: Sequence[str], checkpoint: str | None = None) -> None:
        await self._shipping.record_update(update, batches=batches, checkpoint=checkpoint)

    async def record_checkpoint(self, checkpoint: str, *, updates: Sequence[str]) -> None:
        await self._shipping.record_checkpoint(checkpoint, updates=updates)

    async def recall(self, quarantine: str | None = None) -> Recall:
        return await self._shipping.recall(quarantine)

    async def release(self, trajectories: Sequence[str], *, by: str, note: str) -> Sequence[Clearance]:
        """A person lets quarantined trajectories ship, with a name and a reason."""
        return await self._shipping.set_aside([TrajectoryId(t) for t in trajectories], ClearanceState.RELEASED, by=by, note=note)

    async def discard(self, trajectories: Sequence[str], *, by: str, note: str) -> Sequence[Clearance]:
        """A person gives quarantined trajectories up, with a name and a reason."""
        return await self._shipping.set_aside([TrajectoryId(t) for t in trajectories], ClearanceState.DISCARDED, by=by, note=note)

    async def why(self, trajectory: str) -> Mapping[str, Any]:
        """Everything about one trajectory: what vouched for its start and end, its window, lineage, siblings, batches, updates."""
        return await self._ports.ledger.why(TrajectoryId(trajectory))

    async def record_audit(self, report: Mapping[str, Any]) -> None:
        """Write down that an audit took place, so that the next one knows where to begin."""
        await self._ports.ledger.save_audit(report)

    async def status(self) -> Mapping[str, Any]:
        """Counts of now, and the ledger's counters."""
        environments = {
            prepared.name: {
                "size": prepared.size,
                "live": len(prepared.members),
                "ready": sum(1 for _ in prepared.ready()),
                "leased": prepared.leased,
                "creating": prepared.creating,
                "waiting": len(prepared.waiting),
                "breaker": prepared.breaker.reason if prepared.breaker.is_open else None,
                "broken": None if prepared.broken is None else str(prepared.broken),
                "halted": None if prepared.halted is None else str(prepared.halted),
                "quarantine_rate": prepared.rate.as_json(),
                **self._versions.status(prepared),
                "baseline": prepared.golden.baseline.digest,
                "snapshot": prepared.golden.snapshot.id,
                "states": _count(namespace.state for namespace in prepared.members.values()),
                **self._sharing.status(prepared),
            }
            for prepared in self._versions.now()
        }
        return {
            "environments": environments,
            "draining": bool(self._leasing.closed),
            "troubles": dict(self._upkeep.troubles),
            "in_force": {
                **self._ports.runtime.in_force,
                "runtime": self._ports.runtime.name,
                "storage": self._ports.runtime.storage.name,
            },
            "ledger": {**await self._ports.ledger.counters(), "acquire_ms": _percentiles(self._leasing.acquire_s)},
        }

    async def audit_namespaces(self, depth: Depth = Depth.DEEP) -> Mapping[NamespaceId, bool | None]:
        """Read every ready namespace again at `depth`; leased ones are read so at their release (None)."""
        found: dict[NamespaceId, bool | None] = {}
        jobs: dict[NamespaceId, asyncio.Task[bool | None]] = {}
        for prepared in self._all():
            for namespace in list(prepared.members.values()):
                found[namespace.id] = None
                if (job := self._rechecks.begin(namespace, depth, purpose="audit")) is not None:
                    jobs[namespace.id] = job
                else:
                    namespace.deep_wanted = namespace.deep_wanted or depth is Depth.DEEP
        if jobs:
            await asyncio.wait(set(jobs.values()))
        found |= {namespace: job.result() for namespace, job in jobs.items()}
        return {**found, **await self._sharing.audit()}

    async def verify_seals(self) -> Mapping[str, bool]:
        """Digest every golden and task start state in use again, by environment; a broken one is retired."""
        found: dict[str, bool] = {}
        for prepared in self._all():
            found[prepared.name] = await self._seals.verify(prepared) and found.get(prepared.name, True)
        return found

    async def drain(self, *, grace_s: float | None = None) -> None:
        """Admit nobody, let sessions end, revoke the rest, check the last trajectories, close everything.

        Whoever calls it again waits for the first call's work, and a caller that is cancelled does not end it half way.
        """
        if self._draining is None:
            if self._leasing.closed:
                return
            self._draining = asyncio.create_task(self._drain(grace_s), name="pool drain")
        await run_shielded(_joined(self._draining))

    async def _drain(self, grace_s: float | None) -> None:
        limits = self._ports.limits
        self._leasing.closed = "the pool is draining"
        self._resetter.draining = True
        for prepared in self._all():
            prepared.waiting.fail_all(PoolBroken(self._leasing.closed))
        try:
            async with asyncio.timeout(limits.drain_grace_s if grace_s is None else grace_s):
                await self._leasing.idle.wait()
        except TimeoutError:
            for session in list(self._leasing.sessions.values()):
                with suppress(AutoclaveError):  # what the ledger refused is tried and told below
                    await self._leasing.end(session, outcome="killed")
        finally:
            self._crew.end_duties()
            refused = await self._leasing.finish_all()
            await self._crew.quiet()
            await self._last_checks()
            await self._sharing.last_checks()
            await self._leasing.pages.close()
            refused += await self._retire_all()
            await self._sharing.close_all()
            await self._crew.stop()
            if refused:
                raise refused[0]

    async def _last_checks(self) -> None:
        """A deep check of every namespace that was used since its last one; what cannot be checked ends unverified."""
        for prepared in self._all():
            for namespace in list(prepared.ready()):
                if namespace.deep_since is not None or namespace.resets_since_deep:
                    self._rechecks.begin(namespace, Depth.DEEP, purpose="drain")
        await self._crew.quiet()

    async def _retire_all(self) -> list[AutoclaveError]:
        """Take every namespace out of service; return what the ledger refused. No instance runs on."""
        refused: list[AutoclaveError] = []
        open_ends = {session.namespace.id for session in self._leasing.unfinished}
        for prepared in self._all():
            for namespace in list(prepared.members.values()):
                prepared.claim(namespace)
                try:
                    await self._retire(namespace, settled=namespace.id not in open_ends)
                except AutoclaveError as error:
                    refused.append(error)
        return refused

    async def _retire(self, namespace: Namespace, *, settled: bool) -> None:
        if settled and namespace.state in (State.READY, State.RESETTING, State.QUARANTINED):
            await self._resetter.retire(namespace, note="the pool closed")
        else:  # a step that the ledger refused: the next start settles it
            log.error(
                "left to the next start", extra={"event": "pool.left", "namespace": namespace.id, "state": namespace.state.value}
            )
            await self._resetter.close(namespace)

    async def _ask_deep(self, namespaces: Sequence[NamespaceId]) -> None:
        for prepared in self._all():
            for namespace in (prepared.members[n] for n in namespaces if n in prepared.members):
                namespace.deep_wanted = True
                if namespace.host is not None:
                    namespace.host.wanted = True
                self._rechecks.begin(namespace, Depth.DEEP, purpose="recheck")

    def _all(self) -> Collection[Prepared]:
        return self._versions.all()

    def _wake(self) -> None:
        for prepared in self._all():
            self._spares.fill(prepared)


async def _joined(task: asyncio.Task[None]) -> None:
    await task


def _percentiles(seconds: Collection[float]) -> Mapping[str, float | None]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {"p50": None, "p99": None}
    return {f"p{n}": round(ordered[min(len(ordered) - 1, len(ordered) * n // 100)] * 1000, 3) for n in (50, 99)}


def _count(states: Any) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state.value] = counts.get(state.value, 0) + 1
    return counts
