"""After a crash or a kill: what the ledger still holds of the former run is settled before anything is handed out.

Nothing that is left runs or is trusted. Open leases end as lost and their trajectories as unverified. A lineage's first holder
that was properly released waits only for a check of its namespace's chain: the namespace is restored under its own id and
checked, which clears it rightly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sandbox.errors import SnapshotMissing
from sandbox.lifecycle import Event, State
from sandbox.model import Depth, InstanceId, Lease, NamespaceId, NamespaceRecord, SnapshotId
from sandbox.pool.members import Namespace, Ports, Prepared, StartState
from sandbox.pool.reset import Resetter

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Settled:
    """What a start found and did."""

    swept: tuple[str, ...] = ()
    lost: list[Lease] = field(default_factory=list)
    retired: list[NamespaceId] = field(default_factory=list)
    restored: list[NamespaceId] = field(default_factory=list)
    left: list[NamespaceId] = field(default_factory=list)  # of environments that this pool does not keep


class Reconciler:
    """Runs once, before the pool admits anyone."""

    def __init__(self, ports: Ports, resetter: Resetter) -> None:
        self._ports = ports
        self._resetter = resetter

    async def sweep(self) -> tuple[str, ...]:
        """Kill and remove what a former run left on the machine: processes first, then the state that they worked on, and every
        sealed directory that no snapshot of the ledger knows."""
        runtime, ledger = self._ports.runtime, self._ports.ledger
        async with asyncio.timeout(self._ports.limits.reset_s):
            gone = await runtime.sweep()
            known = [sealed for snapshot in await ledger.snapshots() for sealed in snapshot.dirs]
            return (*gone, *await runtime.storage.sweep(known))

    async def settle(self, environments: Collection[Prepared], swept: tuple[str, ...]) -> Settled:
        """Settle every namespace that is not retired. Those that had to be restored to clear someone are members afterwards."""
        ledger = self._ports.ledger
        done = Settled(swept=swept)
        by_digest = {prepared.spec.digest: prepared for prepared in environments}
        names = {prepared.name for prepared in environments}
        open_leases = {lease.namespace: lease for lease in await ledger.leases()}
        await self._settle_instances(by_digest)
        records = await ledger.namespaces()
        waiting: set[NamespaceId] = set()
        for digest in {record.environment for record in records}:
            waiting |= set(await ledger.oldest_pending(digest))
        for found in records:
            await self._settle_one(found, open_leases, by_digest, names, waiting, done)
        if records:
            log.warning(
                "settled a former run",
                extra={
                    "event": "pool.reconciled",
                    "lost": len(done.lost),
                    "retired": len(done.retired),
                    "restored": len(done.restored),
                    "swept": len(done.swept),
                },
            )
        return done

    async def _settle_instances(self, by_digest: Mapping[str, Prepared]) -> None:
        """An instance that namespaces shared is gone: no check of it, as it was, can be had any more."""
        ledger = self._ports.ledger
        for record in await ledger.instances():
            prepared = by_digest.get(record.environment)
            depth = Depth.QUICK if prepared is None else prepared.spec.check.required_depth
            await ledger.abandon_instance(
                InstanceId(record.id), note="the manager ended before its instance was checked", depth=depth
            )
            if State(record.state) is not State.QUARANTINED:
                record = await ledger.transition(record.id, Event.LOST, generation=record.generation, note="found at start")
            await ledger.transition(record.id, Event.RETIRE, generation=record.generation, note="found at start")

    async def _settle_one(
        self,
        record: NamespaceRecord,
        open_leases: Mapping[NamespaceId, Lease],
        by_digest: Mapping[str, Prepared],
        names: Collection[str],
        waiting: Collection[NamespaceId],
        done: Settled,
    ) -> None:
        ledger = self._ports.ledger
        prepared = by_digest.get(record.environment)
        if (lease := open_leases.get(record.id)) is not None:
            record = await ledger.end_lease(lease.id, outcome="lost", event=Event.LOST)
            done.lost.append(lease)
            await ledger.abandon(record.id, note="the manager ended while the lease was open")
        elif State(record.state) is not State.QUARANTINED:
            record = await ledger.transition(record.id, Event.LOST, generation=record.generation, note="found at start")
        if prepared is not None:
            await ledger.abandon(
                record.id, note="the manager ended before the closing check", depth=prepared.spec.check.required_depth
            )
        if lease is None and record.id in waiting and record.instance is None:
            if prepared is not None and prepared.broken is None and (start := await self._start_state(prepared, record.snapshot)):
                await self._restore(prepared, record, start, done)
                return
            if prepared is None and record.environment_name not in names:
                done.left.append(record.id)  # a pool that keeps its environment can still clear it
                return
            await ledger.abandon(record.id, note="the manager ended, and its start state is gone")
        await ledger.transition(record.id, Event.RETIRE, generation=record.generation, note="found at start")
        done.retired.append(record.id)

    async def _start_state(self, prepared: Prepared, snapshot: SnapshotId) -> StartState | None:
        """Return the present golden when its data is there: the check that clears may read any verified state of the chain."""
        try:
            await self._ports.ledger.snapshot(prepared.golden.snapshot.id)
        except SnapshotMissing:
            return None
        return next((s for s in prepared.starts.values() if s.snapshot.id == snapshot), prepared.golden)

    async def _restore(self, prepared: Prepared, record: NamespaceRecord, start: StartState, done: Settled) -> None:
        now = self._ports.clock.monotonic()
        namespace = Namespace(environment=prepared, start=start, record=record, born=now, deep_since=now)  # somebody waits on it
        prepared.members[record.id] = namespace
        if await self._resetter.recycle(namespace, start=start):
            done.restored.append(record.id)
            prepared.put(namespace)
        else:
            done.retired.append(record.id)
