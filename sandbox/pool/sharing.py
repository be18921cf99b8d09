"""Instances that namespaces share: made, checked at barriers, rebuilt, closed.

A barrier admits nobody, lets those who work there end (until a deadline, then ends them), reads every namespace and then the whole
instance, and opens again. An instance that is not as it was is rebuilt: its leases, already tainted, are revoked first, and every
namespace is made and verified anew before it is ready.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from sandbox.aio import run_shielded
from sandbox.errors import AutoclaveError, InstanceLost, RuntimeUnavailable
from sandbox.lifecycle import Event, State
from sandbox.model import CheckOutcome, Depth, LineageId, Mismatch, NamespaceId, NamespaceRecord, Problem, ResetMethod, Verdict
from sandbox.model import VerdictStatus as Status
from sandbox.pool.checking import Checker
from sandbox.pool.crew import Crew
from sandbox.pool.hosts import Host
from sandbox.pool.leasing import Leasing
from sandbox.pool.members import Ports, Prepared
from sandbox.pool.preparation import Preparer
from sandbox.pool.reset import Resetter
from sandbox.pool.turnover import Turnover
from sandbox.ports import SharingRuntime

log = logging.getLogger(__name__)


class Sharing:
    """Keeps the shared instances of a pool."""

    def __init__(
        self,
        ports: Ports,
        *,
        preparer: Preparer,
        checker: Checker,
        resetter: Resetter,
        leasing: Leasing,
        turnover: Turnover,
        crew: Crew,
        environments: Callable[[], Collection[Prepared]],
    ) -> None:
        self._ports = ports
        self._preparer = preparer
        self._checker = checker
        self._resetter = resetter
        self._leasing = leasing
        self._turnover = turnover
        self._crew = crew
        self._environments = environments
        self._placing = asyncio.Lock()
        self.every_s = ports.limits.upkeep_s
        checker.on_failed_instance = self.failed
        checker.on_doubted_instance = self.doubted

    # a place for a namespace

    async def place(self, prepared: Prepared) -> Host:
        """Return an instance with room that serves; make one where there is none. The caller adds the namespace to its members
        before it waits for anything else, so that nobody gets the same place."""
        async with self._placing:
            host = next((h for h in prepared.hosts if h.room > 0), None)
            if host is None:
                host = await self._create(prepared)
                prepared.hosts.append(host)
            async with asyncio.timeout(self._ports.limits.reset_s):
                await host.serving.wait()
            if host.gone:
                raise InstanceLost(f"instance {host.id} left service: {host.gone}")
            return host

    async def _create(self, prepared: Prepared) -> Host:
        ledger, runtime, spec = self._ports.ledger, self._ports.runtime, prepared.spec
        if not isinstance(runtime, SharingRuntime):
            raise RuntimeUnavailable(f"runtime {runtime.name} cannot share an instance", fix='set `isolation = "instance"`')
        snapshot = prepared.golden.snapshot
        record = NamespaceRecord(
            id=NamespaceId(f"{spec.name}-shared-{secrets.token_hex(6)}"),
            environment=spec.digest,
            environment_name=spec.name,
            snapshot=snapshot.id,
            state=State.CREATING,
            generation=1,
            sequence=0,
            lineage=LineageId(f"l-{secrets.token_hex(8)}"),
            runtime=runtime.name,
            created=self._ports.clock.now(),
            shares=True,
        )
        host = Host(environment=prepared, record=record)
        await ledger.create_namespace(record)
        try:
            async with asyncio.timeout(self._ports.limits.start_s):
                host.instance = await runtime.start_shared(prepared.environment, snapshot, host.id, 1)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await ledger.transition(record.id, Event.FAILED, generation=1, note=reason)
            raise
        try:
            proof = host.live().subject().proof
            host.record = await ledger.transition(
                record.id, Event.STARTED, generation=1, identity=proof is not None and proof.holds
            )
            if not (await self._check(host, purpose="opening")).clean:
                raise InstanceLost(f"a fresh instance of {spec.name} did not pass its first check", fix="see the ledger's checks")
        except BaseException:
            await self._close(host, note="its opening check was not clean")
            raise
        host.serving.set()
        return host

    # duty

    async def round(self) -> None:
        """Begin the barriers that are due; an instance that a former version has left goes, after its last one."""
        for prepared in self._environments():
            for host in list(prepared.hosts):
                left = prepared.successor is not None and not host.members
                if left and not host.leases and not host.closed and not host.gone:
                    host.gone = "a newer version has taken its place"
                    self._crew.spawn(self._close(host, note=host.gone), name=f"close {host.id}")
                elif left and not host.gone:
                    self.begin(host, purpose="drain")
                elif self._due(host):
                    self.begin(host, purpose="barrier")

    def _due(self, host: Host) -> bool:
        policy = host.environment.spec.check
        since = host.first_lease
        late = since is not None and self._ports.clock.monotonic() - since >= policy.instance_after_s
        often = 0 < policy.instance_every <= host.leases
        return not host.closed and (late or often or (host.wanted and host.leases > 0))

    def begin(self, host: Host, *, purpose: str) -> asyncio.Task[bool | None] | None:
        """Start a barrier in the background; None while there is one, or the instance is being rebuilt."""
        if host.closed or host.gone:
            return None
        host.close(f"instance {host.id} is being checked")
        return self._crew.spawn(self._barrier(host, purpose), name=f"barrier {host.id}")

    def doubted(self, host: Host, why: str) -> None:
        """A part that was made anew is not clean: what it shares with the others must be at fault, and its check will say whose."""
        log.warning("instance in doubt", extra={"event": "pool.instance_doubted", "instance": host.id, "reason": why})
        self.begin(host, purpose="barrier")

    async def _barrier(self, host: Host, purpose: str) -> bool:
        clean = False
        try:
            await self._gather(host)
            clean = not host.failed and await self._read_all(host, purpose)
        except BaseException as error:
            host.fail(f"the barrier ended in an error: {type(error).__name__}: {error}")
            raise
        finally:
            if clean:
                for namespace in host.open():
                    namespace.environment.put(namespace)
            elif not host.gone:
                await self._ensure_rebuild(host)
        return clean

    async def _gather(self, host: Host) -> None:
        """Wait until nobody works there; at the deadline end those who do."""
        limits, policy = self._ports.limits, host.environment.spec.check
        try:
            async with asyncio.timeout(policy.instance_drain_s):
                await host.gathered()
        except TimeoutError:
            log.warning("barrier ends leases", extra={"event": "pool.barrier_deadline", "instance": host.id})
            await self._revoke(host)
            async with asyncio.timeout(limits.reset_s + limits.check_s):
                await host.gathered()

    async def _read_all(self, host: Host, purpose: str) -> bool:
        """Read every namespace that nobody used since its check, then the whole. False: the instance failed."""
        for namespace in [n for n in host.held if n.state is State.READY]:
            checked = await self._resetter.recheck(namespace, Depth.QUICK, purpose="recheck")
            if not checked.clean:
                host.fail(f"namespace {namespace.id} differs, and nobody had used it")
            if host.failed:
                return False
        async with asyncio.timeout(self._ports.limits.check_s), host.turn.whole():
            host.record = await self._ports.ledger.transition(
                NamespaceId(host.id), Event.RECHECK, generation=host.record.generation, note=purpose
            )
            verdict = await self._check(host, purpose=purpose)
        if not verdict.clean:
            host.fail("its check was not clean")
        return verdict.clean

    async def _check(self, host: Host, *, purpose: str) -> Verdict:
        """Judge the whole instance in state VERIFYING, and record what follows."""
        prepared = host.environment
        baseline = prepared.golden.instance
        assert baseline is not None, f"{prepared.name} has no baseline of its instances"
        verdict = await self._checker.ask(prepared.environment, host.live().subject(), baseline, Depth.DEEP)
        verdict = _with_canaries(verdict, *await self._canaries(host))
        outcome = await self._ports.ledger.record_instance_check(
            host.id, verdict, generation=host.record.generation, purpose=purpose
        )
        state = State.READY if verdict.clean else State.QUARANTINED
        host.record = replace(host.record, state=state, last_check=outcome.check, checked=self._ports.clock.now())
        prepared.judged(outcome)
        if verdict.clean:
            host.checked()
        else:
            _tell(host, verdict, outcome)
        return verdict

    async def _canaries(self, host: Host) -> tuple[tuple[Mismatch, ...], tuple[Problem, ...]]:
        try:
            async with asyncio.timeout(self._ports.limits.check_s):
                return tuple(await host.live().canaries()), ()
        except (AutoclaveError, OSError, TimeoutError) as error:
            return (), (Problem(probe="canary", reason=f"{type(error).__name__}: {error}"),)

    # failure

    def failed(self, host: Host, why: str) -> None:
        """A check or a reset of one of its namespaces found that the instance is not as it was, or lost."""
        barrier = bool(host.closed)
        if host.fail(why) and not barrier:
            self._crew.spawn(self._ensure_rebuild(host), name=f"rebuild {host.id}")

    async def _ensure_rebuild(self, host: Host) -> None:
        try:
            await self._rebuild(host)
        except BaseException as error:
            host.gone = f"its rebuild ended in an error: {type(error).__name__}: {error}"
            await run_shielded(self._close(host, note=host.gone))  # nobody else would, and it would run on
            raise
        finally:
            host.failed = ""
            host.serving.set()  # who waits for it learns that it is gone, or goes on
            held = host.open()
            for namespace in held:
                self._crew.spawn(self._turnover.reopen(namespace), name=f"reopen {namespace.id}")

    async def _rebuild(self, host: Host) -> None:
        """Revoke its leases, then bring it up anew until its check is clean, or take it out of service."""
        ledger, limits = self._ports.ledger, self._ports.limits
        log.warning("rebuilding", extra={"event": "pool.instance_rebuilt", "instance": host.id, "reason": host.failed})
        await self._revoke(host)
        required = host.environment.spec.check.required_depth
        async with asyncio.timeout(limits.reset_s * (limits.rebuilds + 1)), host.turn.whole():
            record = await ledger.namespace(NamespaceId(host.id))
            if record.state != State.QUARANTINED:
                record = await ledger.transition(record.id, Event.LOST, generation=record.generation, note=host.failed)
            host.record = record
            # What the mismatch did not taint (there is none, where it was lost) can never have a check of this instance.
            await ledger.abandon_instance(host.id, note=host.failed, depth=required)
            for _ in range(limits.rebuilds):
                if self._resetter.draining or host.environment.broken is not None:
                    break
                if await self._bring_up(host):
                    return
            host.gone = f"{host.failed}; it was not brought up again"
            await self._close(host, note=host.gone)

    async def _bring_up(self, host: Host) -> bool:
        ledger, clock, prepared = self._ports.ledger, self._ports.clock, host.environment
        snapshot = prepared.golden.snapshot
        name, generation = NamespaceId(host.id), host.record.generation
        host.record = await ledger.transition(name, Event.ESCALATE, generation=generation, note=host.failed)
        await ledger.begin_reset(name, ResetMethod.REBUILD, generation=generation, target=snapshot.id)
        began = clock.monotonic()
        try:
            async with asyncio.timeout(self._ports.limits.reset_s):
                await self._preparer.verify_seal(prepared.environment, snapshot)
                await host.live().rebuild(snapshot, generation + 1)
        except Exception as error:  # noqa: BLE001 - whatever ends it early, it is tried again or given up
            reason = f"{type(error).__name__}: {error}"
            log.warning("rebuild failed", extra={"event": "pool.rebuild_failed", "instance": host.id, "reason": reason})
            host.record = await ledger.transition(name, Event.FAILED, generation=generation, note=reason)
            return False
        proof = host.live().subject().proof
        host.record = await ledger.end_reset(
            name,
            generation=generation,
            new_generation=generation + 1,
            replaced=True,
            snapshot=snapshot.id,
            identity=proof is not None and proof.holds,
            seconds=clock.monotonic() - began,
            details={"method": ResetMethod.REBUILD.value},
        )
        return (await self._check(host, purpose="opening")).clean

    async def _revoke(self, host: Host) -> None:
        sessions = [s for s in self._leasing.sessions.values() if s.namespace in host.members]
        for session in sessions:
            await self._leasing.end(session, outcome="killed")

    # for people

    def status(self, prepared: Prepared) -> Mapping[str, Any]:
        """Return the instances of an environment whose namespaces share them; nothing of another."""
        if not prepared.spec.isolation.shares:
            return {}
        names = {"isolation": prepared.spec.isolation.value, "namespaces_per_instance": prepared.spec.namespaces_per_instance}
        shown = {
            host.id: {
                "state": host.state.value,
                "namespaces": len(host.members),
                "leases_since_check": host.leases,
                "closed": host.closed or host.gone or None,
            }
            for host in prepared.hosts
        }
        return {**names, "instances": shown}

    async def audit(self) -> Mapping[NamespaceId, bool | None]:
        """Check every instance on which nobody works; the others at the end of their leases (None)."""
        found: dict[NamespaceId, bool | None] = {}
        jobs: dict[NamespaceId, asyncio.Task[bool | None]] = {}
        for host in [h for prepared in self._environments() for h in prepared.hosts]:
            found[NamespaceId(host.id)] = None
            idle = all(m.state is State.READY for m in host.members)
            if idle and (job := self.begin(host, purpose="audit")) is not None:
                jobs[NamespaceId(host.id)] = job
            else:
                host.wanted = True
        if jobs:
            await asyncio.wait(set(jobs.values()))
        return found | {name: job.result() for name, job in jobs.items()}

    # the end

    async def last_checks(self) -> None:
        """A check of every instance that was used since its last one; the namespaces are quiet by now."""
        for prepared in self._environments():
            for host in list(prepared.hosts):
                if host.leases:
                    self.begin(host, purpose="drain")
        await self._crew.quiet()

    async def close_all(self) -> None:
        """After the namespaces were retired."""
        for prepared in self._environments():
            for host in list(prepared.hosts):
                if not host.gone:
                    host.gone = "the pool closed"
                    await self._close(host, note=host.gone)
            prepared.hosts.clear()

    async def _close(self, host: Host, *, note: str) -> None:
        ledger, name = self._ports.ledger, NamespaceId(host.id)
        instance, host.instance = host.instance, None
        if instance is not None:
            try:
                async with asyncio.timeout(self._ports.limits.close_s):
                    await instance.close()
            except (AutoclaveError, OSError, TimeoutError):
                log.exception("instance did not close", extra={"event": "pool.close_failed", "instance": host.id})
        if host in host.environment.hosts:
            host.environment.hosts.remove(host)
        record = await ledger.namespace(name)
        if record.state in (State.VERIFYING, State.CREATING):
            record = await ledger.transition(name, Event.LOST, generation=record.generation, note=note)
        if record.state != State.RETIRED:
            host.record = await ledger.transition(name, Event.RETIRE, generation=record.generation, note=note)


def _with_canaries(verdict: Verdict, seen: tuple[Mismatch, ...], problems: tuple[Problem, ...]) -> Verdict:
    """A mark that was seen through a wall is a mismatch; walls that could not be tried vouch for nothing."""
    if not seen and not problems:
        return verdict
    trouble = (*verdict.problems, *problems)
    status = Status.INCONCLUSIVE if trouble else Status.MISMATCH
    return replace(verdict, status=status, mismatches=(*verdict.mismatches, *seen), problems=trouble)


def _tell(host: Host, verdict: Verdict, outcome: CheckOutcome) -> None:
    log.warning(
        "check of an instance failed",
        extra={
            "event": "pool.instance_check_failed",
            "instance": host.id,
            "check": outcome.check,
            "status": verdict.status.value,
            "mismatches": len(verdict.mismatches),
            "quarantined": len(outcome.quarantined),
        },
    )
