"""From a lease's end back to ready: reset, check, and the next stronger method until a check comes back clean.

A lineage is replaced only after its later holders had their closing check, or were given up as unverified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sandbox.errors import AutoclaveError, ResetFailed, SealBroken
from sandbox.lifecycle import Event, State
from sandbox.model import Depth, ResetMethod, TrajectoryId
from sandbox.pool.checking import Checked, Checker
from sandbox.pool.hosts import Host
from sandbox.pool.members import Namespace, Ports, StartState
from sandbox.pool.preparation import Preparer

log = logging.getLogger(__name__)


class Resetter:
    """Resets and checks namespaces, a bounded number at once. Nothing else changes a namespace's state on disk."""

    def __init__(self, ports: Ports, preparer: Preparer, checker: Checker) -> None:
        self._ports = ports
        self._preparer = preparer
        self._checker = checker
        self._slots = asyncio.Semaphore(ports.limits.resets)
        self.draining = False

    async def recycle(self, namespace: Namespace, *, start: StartState | None = None) -> bool:
        """Take a namespace that is RESETTING or QUARANTINED back to READY at `start` (its own by default); False: it is retired."""
        target = start or (namespace.environment.golden if namespace.start.fork else namespace.start)
        ready: bool | None = None
        while ready is None:  # its shared instance is rebuilt first
            async with self._working(namespace), self._slots:
                ready = await self._until_clean(namespace, target)
        if not ready:
            return False
        if self._outlived(namespace) and not self.draining:
            await self.retire(namespace, note="max_resets or max_age reached")
            return False
        return True

    async def become_fork(self, namespace: Namespace, start: StartState, parent: TrajectoryId) -> Checked:
        """READY -> a clone of a session's own snapshot, checked as a fork; raise ResetFailed when the clone cannot be had."""
        async with self._slots:
            namespace.record = await self._ports.ledger.transition(
                namespace.id, Event.RESET, generation=namespace.generation, note="fork"
            )
            if not await self._close_lineage(namespace) or not await self._swap(namespace, ResetMethod.RESTORE, start):
                raise ResetFailed(f"namespace {namespace.id} could not be made a fork of {parent}: its snapshot did not start")
            return await self._checker.check_fork(namespace, parent)

    async def recheck(self, namespace: Namespace, depth: Depth, *, purpose: str) -> Checked:
        """READY -> VERIFYING -> READY or QUARANTINED: read again what nobody has used since."""
        async with self._working(namespace), self._slots:
            namespace.record = await self._ports.ledger.transition(
                namespace.id, Event.RECHECK, generation=namespace.generation, note=purpose
            )
            return await self._checker.check(namespace, depth, purpose=purpose)

    async def close_chain(self, namespace: Namespace) -> None:
        """A READY namespace is about to leave: read it once more where a deep check may still clear somebody."""
        required = namespace.environment.spec.check.required_depth
        waits = required is Depth.DEEP and namespace.deep_since is not None
        if waits or await self._ports.ledger.pending(namespace.id, required):
            await self.recheck(namespace, required, purpose="recheck")

    async def retarget(self, namespace: Namespace, start: StartState) -> bool:
        """READY -> the start state of another task, checked against that state's own baseline."""
        namespace.record = await self._ports.ledger.transition(
            namespace.id, Event.RESET, generation=namespace.generation, note=f"start state {start.snapshot.id}"
        )
        return await self.recycle(namespace, start=start)

    async def retire(self, namespace: Namespace, *, note: str) -> None:
        """Take it out of service for good; what still waits for a check of it can never have one."""
        namespace.environment.members.pop(namespace.id, None)
        if namespace.host is not None:
            namespace.host.leave(namespace)
        required = namespace.environment.spec.check.required_depth
        try:
            if await self._ports.ledger.pending(namespace.id, required):
                await self._ports.ledger.abandon(namespace.id, note=note, depth=required)
            namespace.record = await self._ports.ledger.transition(
                namespace.id, Event.RETIRE, generation=namespace.generation, note=note
            )
            log.info("retired", extra={"event": "pool.retired", "namespace": namespace.id, "note": note})
        finally:  # where the ledger could not write it, the next start settles the record; nothing of it runs on
            await self.close(namespace)

    async def close(self, namespace: Namespace) -> None:
        """Close the instance; one that cannot be closed is left to the next sweep."""
        instance, namespace.instance = namespace.instance, None
        if instance is None:
            return
        try:
            async with asyncio.timeout(self._ports.limits.close_s):
                await instance.close()
        except (AutoclaveError, OSError, TimeoutError):
            log.exception("instance did not close", extra={"event": "pool.close_failed", "namespace": namespace.id})

    @asynccontextmanager
    async def _working(self, namespace: Namespace) -> AsyncIterator[None]:
        """Where the instance is shared: wait until it serves, and keep it from being checked or rebuilt meanwhile."""
        host, limits = namespace.host, self._ports.limits
        if host is None:
            yield
            return
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(limits.reset_s * (limits.rebuilds + 1) + limits.check_s):
                await host.serving.wait()
                await stack.enter_async_context(host.turn.part())
            yield

    async def _until_clean(self, namespace: Namespace, target: StartState) -> bool | None:
        """None: its shared instance failed, and nothing more can be done before that is rebuilt."""
        host = namespace.host
        if host is not None and host.gone:
            await self.retire(namespace, note=host.gone)
            return False
        method: ResetMethod | None = self._first_method(namespace, target)
        rebuilds = 0
        while method is not None and namespace.environment.broken is None:
            if namespace.state is State.QUARANTINED:
                await self._escalate(namespace, method)
            elif method.replaces and not await self._close_lineage(namespace):
                continue
            if await self._swap(namespace, method, target) and (await self._check(namespace)).clean:
                return True
            if host is not None and await self._failed(host):
                return None
            if method is ResetMethod.REBUILD:
                rebuilds += 1
            method = method.stronger() or (ResetMethod.REBUILD if rebuilds < self._ports.limits.rebuilds else None)
        reason = str(namespace.environment.broken or f"rebuilt {rebuilds} times without a clean check")
        await self.retire(namespace, note=reason)
        if host is not None and namespace.environment.broken is None:
            self._checker.on_doubted_instance(host, f"namespace {namespace.id} was {reason}")
        return False

    async def _failed(self, host: Host) -> bool:
        """True where not the namespace is at fault but the instance that it shares, or that one is dead."""
        if not host.failed and not (host.instance is not None and await host.instance.alive()):
            self._checker.on_failed_instance(host, "its server does not run")
        return bool(host.failed)

    def _first_method(self, namespace: Namespace, target: StartState) -> ResetMethod:
        policy = namespace.environment.spec.reset
        in_place = not policy.method.replaces
        if not in_place:
            return policy.method
        moved = target.snapshot.id != namespace.start.snapshot.id or namespace.start.fork
        worn = 0 < policy.restore_every <= namespace.record.since_restore
        return ResetMethod.RESTORE if moved or worn or namespace.state is State.QUARANTINED else policy.method

    def _outlived(self, namespace: Namespace) -> bool:
        policy = namespace.environment.spec.reset
        old = 0 < policy.max_age_s <= self._ports.clock.monotonic() - namespace.born
        return namespace.leaving or old or 0 < policy.max_resets <= namespace.record.resets

    async def _escalate(self, namespace: Namespace, method: ResetMethod) -> None:
        """A dirty lineage gets no closing check: what still waits for one on it ends unverified."""
        required = namespace.environment.spec.check.required_depth
        if await self._ports.ledger.pending(namespace.id, required):
            await self._ports.ledger.abandon(namespace.id, note="its lineage failed before the closing check", depth=required)
        namespace.record = await self._ports.ledger.transition(
            namespace.id, Event.ESCALATE, generation=namespace.generation, note=method.value
        )

    async def _close_lineage(self, namespace: Namespace) -> bool:
        """Before a lineage is replaced: in-place reset and a check at the required depth, where later holders wait for one.
        True when the namespace is RESETTING and may be replaced; False when it is QUARANTINED now."""
        required = namespace.environment.spec.check.required_depth
        if namespace.record.since_restore <= 1 or not await self._ports.ledger.pending(namespace.id, required):
            return True
        method = ResetMethod.HOOK if namespace.environment.spec.reset.hook else ResetMethod.CLEAN
        if not await self._swap(namespace, method, namespace.start):
            return False
        return (await self._checker.check(namespace, required, purpose="closing")).clean

    async def _check(self, namespace: Namespace) -> Checked:
        return await self._checker.check(namespace, self._due(namespace), purpose="drain" if self.draining else "reset")

    def _due(self, namespace: Namespace) -> Depth:
        policy = namespace.environment.spec.check
        late = namespace.deep_since is not None and self._ports.clock.monotonic() - namespace.deep_since >= policy.deep_after_s
        often = 0 < policy.deep_every <= namespace.resets_since_deep + 1
        # Without a physical proof, a lineage's opening check is all that its first holder's start can be vouched at.
        opening = policy.required_depth is Depth.DEEP and namespace.record.since_restore == 0 and not namespace.identity
        wanted = self.draining or namespace.deep_wanted or self._outlived(namespace)
        return Depth.DEEP if late or often or opening or wanted else Depth.QUICK

    async def _swap(self, namespace: Namespace, method: ResetMethod, target: StartState) -> bool:
        """RESETTING -> VERIFYING under the next generation; False and QUARANTINED when the reset ended in an error."""
        ledger, clock = self._ports.ledger, self._ports.clock
        generation = namespace.generation + 1
        await ledger.begin_reset(namespace.id, method, generation=namespace.generation, target=target.snapshot.id)
        began = clock.monotonic()
        try:
            async with asyncio.timeout(self._ports.limits.reset_s):
                await self._move(namespace, method, target, generation)
        except Exception as error:  # noqa: BLE001 - whatever ends a reset early, the answer is the next stronger method
            if isinstance(error, SealBroken):
                namespace.environment.breaks(error)
            reason = f"{method.value}: {type(error).__name__}: {error}"
            log.warning("reset failed", extra={"event": "pool.reset_failed", "namespace": namespace.id, "reason": reason})
            namespace.record = await ledger.transition(namespace.id, Event.FAILED, generation=namespace.generation, note=reason)
            return False
        proof = namespace.live().subject().proof if method.replaces else None
        if method.replaces:
            namespace.identity = proof is not None and proof.holds
            namespace.start = target
        namespace.record = await ledger.end_reset(
            namespace.id,
            generation=namespace.generation,
            new_generation=generation,
            replaced=method.replaces,
            snapshot=target.snapshot.id,
            identity=namespace.identity if method.replaces else False,
            seconds=clock.monotonic() - began,
            details={"method": method.value} if proof is None else {"method": method.value, "proof": proof.method},
        )
        return True

    async def _move(self, namespace: Namespace, method: ResetMethod, target: StartState, generation: int) -> None:
        policy = namespace.environment.spec.reset
        match method:
            case ResetMethod.HOOK:
                async with asyncio.timeout(policy.hook_limit_s):
                    await namespace.live().reset_in_place(generation, hook=policy.hook)
            case ResetMethod.CLEAN:
                await namespace.live().reset_in_place(generation, hook=None)
            case ResetMethod.RESTORE if namespace.instance is not None:
                await namespace.instance.restore(target.snapshot, generation)
            case _:  # rebuild, or a restore of a namespace whose instance did not outlive the manager
                environment = namespace.environment.environment
                if method is ResetMethod.REBUILD:
                    await self._preparer.verify_seal(environment, target.snapshot)
                await self.close(namespace)
                if namespace.host is not None:
                    namespace.instance = await namespace.host.live().open(namespace.id, generation)
                else:
                    namespace.instance = await self._ports.runtime.start(environment, target.snapshot, namespace.id, generation)
