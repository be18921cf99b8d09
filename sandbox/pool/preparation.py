"""From an environment to states that leases can start from: golden snapshot, task start states, and a baseline of each.

A baseline is recorded on instances that nobody ever leased, two of the snapshot and one of a second build from the seed, and
is bound by its key to everything that could change what a reading means.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import EnvironmentInvalid, LedgerConflict, SealBroken, SnapshotMissing
from sandbox.model import Baseline, NamespaceId, Snapshot
from sandbox.pool import shared_baseline
from sandbox.pool.members import Ports, Prepared, StartState
from sandbox.pool.review import Approve, require_approval, reviewed
from sandbox.ports import Environment, Instance, SavesElsewhere, UsesFiles

log = logging.getLogger(__name__)


def key_parts(environment: Environment, snapshot: Snapshot, *, runtime: str, storage: str) -> Mapping[str, str]:
    """Return everything that could change what a reading means, by name: another of any, another baseline."""
    return {
        "environment": environment.spec.digest,
        **{f"resource {resource.spec.name}": resource.digest for resource in environment.resources},
        "probes": environment.verifier.digest,
        "snapshot": snapshot.digest,
        "runtime": runtime,
        "storage": storage,
    }


def baseline_key(parts: Mapping[str, str]) -> str:
    return hashlib.blake2b(json.dumps(dict(parts), sort_keys=True).encode(), digest_size=16).hexdigest()


async def changed_files(environment: Environment) -> Sequence[str]:
    """Return those of its files that its instances are run with and that somebody edited since it was read."""
    return await in_thread(environment.changed_files) if isinstance(environment, UsesFiles) else ()


class Preparer:
    """Builds what is missing, verifies what is there. With `approve`, a baseline that differs from the one before it is recorded
    only when that says yes; otherwise what was there stays in force, golden included."""

    def __init__(self, ports: Ports, *, approve: Approve | None = None) -> None:
        self._ports = ports
        self._approve = approve
        self._deriving: dict[tuple[str, str], asyncio.Lock] = {}

    async def prepare(self, environment: Environment, *, size: int, rebuild: bool = False) -> Prepared:
        """Return the environment with a sealed golden and a baseline, building from the seed where the ledger has none."""
        if environment.spec.isolation.shares:
            shared_baseline.refuse(environment)
        golden = None if rebuild else await self._stored(environment, task=None, parent=None)
        second: Snapshot | None = None
        made: Snapshot | None = None
        broken: SealBroken | None = None
        async with AsyncExitStack() as stack:
            if golden is None:
                golden, second = await self._build_twice(environment)
                stack.push_async_callback(self.remove, second)
                made = await stack.enter_async_context(self._made(golden))
            try:
                await self.verify_seal(environment, golden)
            except SealBroken as error:
                broken = error

            async def again() -> Snapshot:
                return second if second is not None else await self._build(environment)

            baseline = await self._baseline(environment, golden, made=made, again=again, broken=broken)
        shares = environment.spec.isolation.shares
        whole = await self._ports.ledger.baseline(shared_baseline.of_instance(baseline.key)) if shares else None
        start = StartState(snapshot=golden, baseline=baseline, instance=whole)
        prepared = Prepared(environment, start, size=size, ports=self._ports)
        prepared.broken = broken
        return prepared

    def known(self, prepared: Prepared, task: str) -> StartState | None:
        """Return the task's start state when it needs no work; raise EnvironmentInvalid for a task that is not there."""
        spec = prepared.environment.tasks.get(task)
        if spec is None:
            raise EnvironmentInvalid(
                f"environment {prepared.name} has no task {task!r}",
                fix=f"`autoclave env show {prepared.name}` lists its {len(prepared.environment.tasks)} tasks",
            )
        return prepared.starts.get(task) if spec.start else prepared.golden

    async def start_state(self, prepared: Prepared, task: str) -> StartState:
        """Return the state that a lease of `task` starts from: golden, or the task's own sealed child, made at first use."""
        if (known := self.known(prepared, task)) is not None:
            return known
        spec = prepared.environment.tasks[task]
        async with self._deriving.setdefault((prepared.spec.digest, task), asyncio.Lock()):
            if (known := prepared.starts.get(task)) is not None:
                return known
            environment, golden = prepared.environment, prepared.golden.snapshot

            async def derive() -> Snapshot:
                async with asyncio.timeout(self._ports.limits.build_s):
                    return await self._ports.runtime.derive(environment, golden, spec)

            snapshot = await self._stored(environment, task=task, parent=golden)
            async with AsyncExitStack() as stack:
                made: Snapshot | None = None
                if snapshot is None:
                    snapshot = await derive()
                    made = await stack.enter_async_context(self._made(snapshot))
                await self.verify_seal(environment, snapshot)
                baseline = await self._baseline(environment, snapshot, made=made, again=derive, broken=None)
            prepared.starts[task] = StartState(snapshot=snapshot, baseline=baseline)
            return prepared.starts[task]

    async def verify_seal(self, environment: Environment, *snapshots: Snapshot) -> None:
        """Digest snapshots again, and once the files that their instances are run with; raise SealBroken naming what changed."""
        name = environment.spec.name
        for snapshot in snapshots:
            broken = [sealed.name for sealed in snapshot.dirs if not await self._ports.runtime.storage.verify(sealed)]
            if broken:
                raise SealBroken(
                    f"snapshot {snapshot.id} of environment {name} is not what was sealed: {', '.join(broken)} changed",
                    fix=f"find out who wrote there, then `autoclave env baseline {name} --rebuild` builds it from its seed",
                )
        if changed := await changed_files(environment):
            raise SealBroken(
                f"environment {name} is run with files that were edited since it was read: {', '.join(changed)}",
                fix=f"`autoclave pool roll {name}` makes a new version of them once its leases have ended",
            )

    async def _stored(self, environment: Environment, *, task: str | None, parent: Snapshot | None) -> Snapshot | None:
        """Return the newest snapshot that stands for this state under this runtime and storage, if its data is there."""
        ledger, runtime = self._ports.ledger, self._ports.runtime
        found = [
            snapshot
            for snapshot in await ledger.snapshots(environment.spec.digest)
            if snapshot.task == task
            and snapshot.parent == (parent.id if parent else None)
            and snapshot.runtime in ("", runtime.name)
            and snapshot.storage in ("", runtime.storage.name)
        ]
        if not found:
            return None
        newest = found[-1]
        try:
            for sealed in newest.dirs:
                await (await runtime.storage.clone(sealed)).destroy()
            if isinstance(runtime, SavesElsewhere):
                await runtime.require(newest)
        except SnapshotMissing:
            log.warning("snapshot is gone", extra={"event": "pool.snapshot_gone", "snapshot": newest.id})
            try:
                await ledger.forget_snapshot(newest.id)
            except LedgerConflict:  # something of a former run names it; the one that is built next is newer
                log.warning("its record stays", extra={"event": "pool.snapshot_kept", "snapshot": newest.id})
            return None
        return newest

    @asynccontextmanager
    async def _made(self, snapshot: Snapshot) -> AsyncIterator[Snapshot | None]:
        """Write down a state that was made. Where somebody has to accept its baseline it is given out instead, to be written down
        then: whoever opens the environment next would take it for its newest, also after a kill. What is not accepted goes."""
        if self._approve is None:
            await self._ports.ledger.save_snapshot(snapshot)
            yield None
            return
        try:
            yield snapshot
        except BaseException:
            await run_shielded(self._forget(snapshot))
            raise

    async def _forget(self, snapshot: Snapshot) -> None:
        with suppress(SnapshotMissing):
            await self._ports.ledger.forget_snapshot(snapshot.id)
        await self.remove(snapshot)

    async def _build_twice(self, environment: Environment) -> tuple[Snapshot, Snapshot]:
        """Build golden, and beside it the second build that its baseline is compared with."""
        try:
            async with asyncio.TaskGroup() as group:
                first = group.create_task(self._build(environment))
                second = group.create_task(self._build(environment))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return first.result(), second.result()

    async def _build(self, environment: Environment) -> Snapshot:
        log.info("building", extra={"event": "pool.build", "environment": environment.spec.name})
        async with asyncio.timeout(self._ports.limits.build_s):
            return await self._ports.runtime.build(environment)

    async def _baseline(
        self,
        environment: Environment,
        snapshot: Snapshot,
        *,
        made: Snapshot | None,
        again: Callable[[], Awaitable[Snapshot]],
        broken: SealBroken | None,
    ) -> Baseline:
        """Return the recorded baseline of this key, or record one: two clones of `snapshot` and one of a second build. `made` is
        written down before it, where there is one."""
        runtime, ledger = self._ports.runtime, self._ports.ledger

        async def accepted() -> None:
            if made is not None:
                await ledger.save_snapshot(made)

        parts = key_parts(environment, snapshot, runtime=await runtime.identity(environment), storage=runtime.storage.name)
        key, spec = baseline_key(parts), environment.spec
        if (known := await ledger.baseline(key)) is not None:
            await accepted()
            return known
        if broken is not None:
            raise broken  # readings of a golden that somebody changed would be a baseline of that change
        async with AsyncExitStack() as stack:
            rebuilt = await again()
            stack.push_async_callback(self.remove, rebuilt)  # a second time does no harm
            if environment.spec.isolation.shares:
                return await shared_baseline.record(
                    self._ports, environment, snapshot, rebuilt, key=key, parts=parts, approve=self._approve, accepted=accepted
                )
            first = await self._fresh(stack, environment, snapshot)
            second = await self._fresh(stack, environment, snapshot)
            third = await self._fresh(stack, environment, rebuilt)
            async with asyncio.timeout(self._ports.limits.check_s):
                baseline = await environment.verifier.record([first.subject(), second.subject()], third.subject(), key=key)
        before = await ledger.baselines(spec.name)
        baseline = reviewed(baseline, before, state=snapshot.task or "golden", parts=parts, environment=spec.name)
        await require_approval(baseline, self._approve, environment=spec.name)
        await accepted()
        await ledger.save_baseline(baseline, environment=spec.digest, environment_name=spec.name)
        log.info(
            "baseline recorded",
            extra={
                "event": "pool.baseline",
                "environment": spec.name,
                "fields": baseline.fields,
                "drift": len(baseline.drift),
            },
        )
        return baseline

    async def _fresh(self, stack: AsyncExitStack, environment: Environment, snapshot: Snapshot) -> Instance:
        namespace = NamespaceId(f"baseline-{secrets.token_hex(4)}")
        async with asyncio.timeout(self._ports.limits.start_s):
            instance = await self._ports.runtime.start(environment, snapshot, namespace, 1)
        stack.push_async_callback(instance.close)
        return instance

    async def remove(self, snapshot: Snapshot) -> None:
        """Remove the directories of a forgotten snapshot that no other one shares."""
        kept = {directory.layers for known in await self._ports.ledger.snapshots() for directory in known.dirs}
        for sealed in snapshot.dirs:
            if sealed.layers not in kept:
                await self._ports.runtime.storage.remove(sealed)
