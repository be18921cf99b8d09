"""Making namespaces: from nothing to READY, behind a breaker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from sandbox.aio import run_shielded
from sandbox.errors import AutoclaveError
from sandbox.lifecycle import Event, State
from sandbox.model import Depth, LineageId, NamespaceId, NamespaceRecord
from sandbox.pool.checking import Checker
from sandbox.pool.hosts import Host
from sandbox.pool.members import Namespace, Ports, Prepared
from sandbox.pool.reset import Resetter

log = logging.getLogger(__name__)


class Creator:
    """Creates namespaces, a bounded number at once."""

    def __init__(self, ports: Ports, checker: Checker, resetter: Resetter, place: Callable[[Prepared], Awaitable[Host]]) -> None:
        self._ports = ports
        self._place = place
        self._checker = checker
        self._resetter = resetter
        self._slots = asyncio.Semaphore(ports.limits.creations)

    async def create(self, prepared: Prepared) -> Namespace | None:
        """Make one and check it; None when that failed (the breaker knows why). Counts as `prepared.creating` meanwhile."""
        try:
            async with self._slots:
                prepared.breaker.begin()
                return await run_shielded(self._create(prepared))
        finally:
            prepared.creating -= 1
            prepared.breaker.skipped()

    async def _create(self, prepared: Prepared) -> Namespace | None:
        runtime, clock = self._ports.runtime, self._ports.clock
        spec, start = prepared.spec, prepared.golden
        try:
            host = await self._place(prepared) if spec.isolation.shares else None
        except Exception as error:  # noqa: BLE001 - as below: an instance that cannot be made is a creation that failed
            self._failed(prepared, error)
            return None
        record = NamespaceRecord(
            id=NamespaceId(f"{spec.name}-{secrets.token_hex(6)}"),
            environment=spec.digest,
            environment_name=spec.name,
            snapshot=start.snapshot.id,
            state=State.CREATING,
            generation=1,
            sequence=0,
            lineage=LineageId(f"l-{secrets.token_hex(8)}"),
            runtime=runtime.name,
            created=clock.now(),
            instance=None if host is None else host.id,
        )
        namespace = Namespace(environment=prepared, start=start, record=record, born=clock.monotonic(), host=host)
        async with AsyncExitStack() as stack:
            if host is not None:
                host.members.add(namespace)
                stack.callback(self._unplace, namespace)
                await stack.enter_async_context(host.turn.part())
            return await self._start(prepared, namespace)

    def _unplace(self, namespace: Namespace) -> None:
        """One that did not come into service leaves its place to another."""
        if namespace.host is not None and namespace.id not in namespace.environment.members:
            namespace.host.leave(namespace)

    async def _start(self, prepared: Prepared, namespace: Namespace) -> Namespace | None:
        ledger, runtime, host, record = self._ports.ledger, self._ports.runtime, namespace.host, namespace.record
        start = namespace.start
        try:
            await ledger.create_namespace(record)
        except AutoclaveError as error:
            self._failed(prepared, error)
            return None
        try:
            async with asyncio.timeout(self._ports.limits.start_s):
                if host is not None:
                    namespace.instance = await host.live().open(record.id, 1)
                else:
                    namespace.instance = await runtime.start(prepared.environment, start.snapshot, record.id, 1)
        except Exception as error:  # noqa: BLE001 - whatever stops a creation counts against the breaker and is told to whom waits
            self._failed(prepared, error)
            await ledger.transition(record.id, Event.FAILED, generation=1, note=prepared.breaker.reason)
            return None
        try:
            return await self._open(prepared, namespace)
        except BaseException as error:  # the ledger could not write it: the next start settles the record, and nothing of it runs
            prepared.members.pop(namespace.id, None)
            await self._resetter.close(namespace)
            if not isinstance(error, AutoclaveError):
                raise
            self._failed(prepared, error)
            return None

    def _failed(self, prepared: Prepared, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        log.warning("creation failed", extra={"event": "pool.create_failed", "environment": prepared.name, "reason": reason})
        prepared.breaker.failed(reason)

    async def _open(self, prepared: Prepared, namespace: Namespace) -> Namespace | None:
        ledger, spec, record = self._ports.ledger, prepared.spec, namespace.record
        proof = namespace.live().subject().proof
        namespace.identity = proof is not None and proof.holds
        namespace.record = await ledger.transition(record.id, Event.STARTED, generation=1, identity=namespace.identity)
        required = spec.check.required_depth
        depth = Depth.DEEP if required is Depth.DEEP and not namespace.identity else Depth.QUICK
        checked = await self._checker.check(namespace, depth, purpose="opening")
        if checked.clean:
            prepared.breaker.succeeded()
            prepared.members[namespace.id] = namespace
            return namespace
        found = [f"{m.probe}/{m.field}" for m in checked.verdict.mismatches] + [
            f"{p.probe}: {p.reason}" for p in checked.verdict.problems
        ]
        prepared.breaker.failed(f"a fresh namespace did not pass its first check: {', '.join(found[:5])}")
        await self._resetter.retire(namespace, note="its opening check was not clean")
        if namespace.host is not None:
            self._checker.on_doubted_instance(namespace.host, f"namespace {namespace.id}, made anew on it, was not clean")
        return None
