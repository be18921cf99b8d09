"""A clock that tests set, a ledger in a directory of its own, and a driver that takes one namespace through its life."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.ledger import SqliteLedger, open_ledger
from sandbox.lifecycle import Event
from sandbox.model import (
    CheckOutcome,
    Depth,
    Lease,
    LeaseId,
    LineageId,
    Mismatch,
    NamespaceId,
    NamespaceRecord,
    Problem,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    Verdict,
    VerdictStatus,
    WindowPolicy,
)
from sandbox.quarantine import describe


class StepClock:
    """Each look at it is one second later, so that no two moments are equal."""

    def __init__(self) -> None:
        self._seconds = itertools.count()
        self._extra = timedelta()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._seconds)) + self._extra

    def advance(self, seconds: float) -> None:
        self._extra += timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return float(next(self._seconds))

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class Chain:
    """One namespace of a ledger, and what a pool would do with it."""

    def __init__(self, ledger: SqliteLedger, name: str = "ns") -> None:
        self.ledger = ledger
        self.id = NamespaceId(name)
        self.generation = 1

    @staticmethod
    def verdict(what: str = "clean", depth: Depth = Depth.QUICK) -> Verdict:
        """clean; quick, deep or both: which fields differ; silent: a probe gave no answer."""
        depths = {"quick": [Depth.QUICK], "deep": [Depth.DEEP], "both": [Depth.QUICK, Depth.DEEP]}.get(what, [])
        status = {"clean": VerdictStatus.CLEAN, "silent": VerdictStatus.INCONCLUSIVE}.get(what, VerdictStatus.MISMATCH)
        return Verdict(
            status=status,
            depth=depth,
            mismatches=tuple(Mismatch(probe="rows", field=f"orders/{d}", expected="1", actual=None, depth=d) for d in depths),
            problems=(Problem(probe="rows", reason="timed out"),) if what == "silent" else (),
            fields=10,
            seconds=0.02,
        )

    async def open(self, *, identity: bool = True, depth: Depth = Depth.QUICK) -> Chain:
        record = NamespaceRecord(
            id=self.id,
            environment="digest",
            environment_name="shop",
            snapshot=SnapshotId("golden"),
            state="creating",
            generation=1,
            sequence=0,
            lineage=LineageId(f"{self.id}@1"),
            runtime="memory",
            created=datetime(2026, 1, 1, tzinfo=UTC),
        )
        await self.ledger.create_namespace(record)
        await self.ledger.transition(self.id, Event.STARTED, generation=1, identity=identity)
        await self.check("clean", depth, purpose="opening")
        return self

    async def lease(self, name: str, *, parent: str | None = None) -> Lease:
        return await self.ledger.lease(
            self.id,
            generation=self.generation,
            lease=LeaseId(f"lease-{name}"),
            trajectory=TrajectoryId(name),
            holder="test",
            task="refund-17",
            ttl_s=600,
            parent=None if parent is None else TrajectoryId(parent),
        )

    async def end(self, name: str, event: Event = Event.RELEASE) -> None:
        await self.ledger.end_lease(LeaseId(f"lease-{name}"), outcome="released" if event is Event.RELEASE else "lost", event=event)

    async def reset(self, *, replaced: bool, identity: bool | None = None) -> NamespaceRecord:
        method = ResetMethod.RESTORE if replaced else ResetMethod.HOOK
        await self.ledger.begin_reset(self.id, method, generation=self.generation, target=SnapshotId("golden"))
        self.generation += 1
        return await self.ledger.end_reset(
            self.id,
            generation=self.generation - 1,
            new_generation=self.generation,
            replaced=replaced,
            snapshot=SnapshotId("golden"),
            identity=replaced if identity is None else identity,
            seconds=0.1,
            details={"storage": "overlay"},
        )

    async def check(
        self,
        what: str = "clean",
        depth: Depth = Depth.QUICK,
        *,
        window: WindowPolicy = WindowPolicy.STRICT,
        purpose: str = "reset",
    ) -> CheckOutcome:
        return await self.ledger.record_check(
            self.id, self.verdict(what, depth), generation=self.generation, window=window, purpose=purpose
        )

    async def cycle(
        self,
        name: str,
        what: str = "clean",
        depth: Depth = Depth.QUICK,
        *,
        replaced: bool,
        window: WindowPolicy = WindowPolicy.STRICT,
    ) -> CheckOutcome:
        await self.lease(name)
        await self.end(name)
        await self.reset(replaced=replaced)
        return await self.check(what, depth, window=window)

    async def recover(self, depth: Depth = Depth.QUICK) -> CheckOutcome:
        await self.ledger.transition(self.id, Event.ESCALATE, generation=self.generation)
        await self.reset(replaced=True)
        return await self.check("clean", depth)

    async def fork(self, name: str, *, parent: str, what: str = "clean") -> CheckOutcome:
        """Take the ready namespace to a snapshot of the parent, and lease it to the fork where that is allowed."""
        await self.ledger.transition(self.id, Event.RESET, generation=self.generation)
        await self.reset(replaced=True)
        outcome = await self.ledger.fork_check(self.id, self.verdict(what), generation=self.generation, parent=TrajectoryId(parent))
        if what == "clean":
            await self.lease(name, parent=parent)
        return outcome

    async def retire(self) -> None:
        await self.ledger.transition(self.id, Event.RETIRE, generation=self.generation)

    async def record(self) -> NamespaceRecord:
        return await self.ledger.namespace(self.id)

    async def stand(self, *names: str) -> list[str]:
        found = await self.ledger.clearances([TrajectoryId(name) for name in names])
        return [describe(found[TrajectoryId(name)]) for name in names]


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.sqlite"


@pytest.fixture
async def ledger(file: Path, clock: StepClock) -> AsyncIterator[SqliteLedger]:
    async with open_ledger(file, clock=clock) as opened:
        yield opened


@pytest.fixture
def chains() -> Callable[..., Chain]:
    """Makes drivers, for tests that open ledgers or several namespaces themselves."""
    return Chain


@pytest.fixture
async def chain(ledger: SqliteLedger) -> Chain:
    return await Chain(ledger).open()
