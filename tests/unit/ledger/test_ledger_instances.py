"""Instances that several namespaces share (P5b): one sequence and one watermark for all of their namespaces."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sandbox.errors import AutoclaveError, LedgerConflict
from sandbox.ledger import SqliteLedger, open_ledger
from sandbox.lifecycle import Event
from sandbox.model import (
    CheckOutcome,
    Depth,
    InstanceId,
    Lease,
    LeaseId,
    LineageId,
    Mismatch,
    NamespaceId,
    NamespaceRecord,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    Verdict,
    VerdictStatus,
    WindowPolicy,
)
from sandbox.quarantine import describe

QUICK, DEEP = Depth.QUICK, Depth.DEEP
HOST = InstanceId("host")


def verdict(depth: Depth = QUICK, *, own: bool = False, shared: bool = False) -> Verdict:
    """Which fields differ: of the namespace's own, of the instance that it shares."""
    found = [Mismatch(probe="rows", field="orders", expected="1", actual="2", depth=QUICK)] if own else []
    found += [Mismatch(probe="server", field="roles/eve", expected=None, actual="x", depth=QUICK, shared=True)] if shared else []
    status = VerdictStatus.MISMATCH if found else VerdictStatus.CLEAN
    return Verdict(status=status, depth=depth, mismatches=tuple(found), fields=5)


class House:
    """An instance with namespaces, driven as a pool would."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self.host_generation = 1
        self.generations: dict[str, int] = {}

    def record(self, name: str, **fields: Any) -> NamespaceRecord:
        plain = NamespaceRecord(
            id=NamespaceId(name),
            environment="digest",
            environment_name="shop",
            snapshot=SnapshotId("golden"),
            state="creating",
            generation=1,
            sequence=0,
            lineage=LineageId(f"{name}@1"),
            runtime="memory",
            created=datetime(2026, 1, 1, tzinfo=UTC),
        )
        return replace(plain, **fields)

    async def open(self, *names: str, depth: Depth = QUICK) -> House:
        await self.ledger.create_namespace(self.record(HOST, shares=True))
        await self.ledger.transition(NamespaceId(HOST), Event.STARTED, generation=1, identity=True)
        await self.check_host(purpose="opening")
        for name in names:
            self.generations[name] = 1
            await self.ledger.create_namespace(self.record(name, instance=HOST))
            await self.ledger.transition(NamespaceId(name), Event.STARTED, generation=1)
            await self.check(name, depth, purpose="opening")
        return self

    async def lease(self, name: str, trajectory: str) -> Lease:
        return await self.ledger.lease(
            NamespaceId(name),
            generation=self.generations[name],
            lease=LeaseId(f"lease-{trajectory}"),
            trajectory=TrajectoryId(trajectory),
            holder="test",
            task=None,
            ttl_s=60,
        )

    async def end(self, trajectory: str) -> None:
        await self.ledger.end_lease(LeaseId(f"lease-{trajectory}"), outcome="released")

    async def reset(self, name: str) -> None:
        generation = self.generations[name]
        await self.ledger.begin_reset(NamespaceId(name), ResetMethod.RESTORE, generation=generation, target=SnapshotId("golden"))
        self.generations[name] += 1
        await self.ledger.end_reset(
            NamespaceId(name),
            generation=generation,
            new_generation=generation + 1,
            replaced=True,
            snapshot=SnapshotId("golden"),
            identity=False,
            seconds=0.1,
            details={},
        )

    async def check(
        self, name: str, depth: Depth = QUICK, *, own: bool = False, shared: bool = False, purpose: str = "reset"
    ) -> CheckOutcome:
        return await self.ledger.record_check(
            NamespaceId(name),
            verdict(depth, own=own, shared=shared),
            generation=self.generations[name],
            window=WindowPolicy.STRICT,
            purpose=purpose,
        )

    async def cycle(
        self, name: str, trajectory: str, depth: Depth = QUICK, *, own: bool = False, shared: bool = False
    ) -> CheckOutcome:
        await self.lease(name, trajectory)
        await self.end(trajectory)
        await self.reset(name)
        return await self.check(name, depth, own=own, shared=shared)

    async def check_host(self, *, dirty: bool = False, purpose: str = "barrier") -> CheckOutcome:
        return await self.ledger.record_instance_check(
            HOST, verdict(DEEP, shared=dirty), generation=self.host_generation, purpose=purpose
        )

    async def barrier(self, *, dirty: bool = False) -> CheckOutcome:
        await self.ledger.transition(NamespaceId(HOST), Event.RECHECK, generation=self.host_generation)
        return await self.check_host(dirty=dirty)

    async def rebuild(self) -> None:
        await self.ledger.transition(NamespaceId(HOST), Event.ESCALATE, generation=self.host_generation)
        await self.ledger.begin_reset(
            NamespaceId(HOST), ResetMethod.REBUILD, generation=self.host_generation, target=SnapshotId("golden")
        )
        self.host_generation += 1
        await self.ledger.end_reset(
            NamespaceId(HOST),
            generation=self.host_generation - 1,
            new_generation=self.host_generation,
            replaced=True,
            snapshot=SnapshotId("golden"),
            identity=True,
            seconds=0.1,
            details={},
        )
        await self.check_host(purpose="opening")

    async def state(self, name: str) -> str:
        return (await self.ledger.namespace(NamespaceId(name))).state

    async def stand(self, *names: str) -> list[str]:
        found = await self.ledger.clearances([TrajectoryId(name) for name in names])
        return [describe(found[TrajectoryId(name)]) for name in names]


@pytest.fixture
def house(ledger: SqliteLedger) -> Callable[..., Coroutine[Any, Any, House]]:
    async def make(*names: str, depth: Depth = QUICK) -> House:
        return await House(ledger).open(*names, depth=depth)

    return make


async def test_a_namespaces_own_mismatch_taints_that_namespace_only(house: Any) -> None:
    made = await house("a", "b")
    await made.cycle("a", "a1")
    await made.lease("b", "b1")

    outcome = await made.cycle("a", "a2", own=True)

    assert outcome.quarantined == ("a2",)
    assert await made.stand("a1", "a2", "b1") == ["cleared (quick)", "quarantined (contaminated)", "pending"]
    assert (await made.state(HOST), await made.state("a"), await made.state("b")) == ("ready", "quarantined", "leased")


async def test_an_instances_field_taints_every_namespace_since_the_last_clean_check_of_it(house: Any) -> None:
    made = await house("a", "b", "c")
    await made.cycle("a", "before")
    await made.barrier()
    await made.cycle("a", "a1")
    await made.cycle("b", "b1")
    await made.lease("c", "running")

    outcome = await made.cycle("a", "a2", shared=True)

    assert set(outcome.quarantined) == {"a1", "a2", "b1", "running"}
    assert await made.stand("before") == ["cleared (quick)"]
    assert (await made.state(HOST), await made.state("a"), await made.state("b")) == ("quarantined", "quarantined", "ready")
    evidence = await made.ledger.quarantine(outcome.quarantine)
    assert (evidence["namespace"], evidence["from"], evidence["to"]) == (HOST, 2, 5)


async def test_a_failed_barrier_taints_the_same(house: Any) -> None:
    made = await house("a", "b")
    await made.cycle("a", "before")
    await made.barrier()
    await made.cycle("b", "b1")

    outcome = await made.barrier(dirty=True)

    assert outcome.quarantined == ("b1",)
    with pytest.raises(LedgerConflict, match="its instance host is quarantined"):
        await made.lease("a", "nobody")
    await made.rebuild()
    await made.lease("a", "next")
    assert await made.stand("before", "next") == ["cleared (quick)", "pending"]


async def test_own_and_shared_fields_have_their_own_windows(house: Any) -> None:
    made = await house("a", "b")
    await made.lease("b", "b1")

    outcome = await made.cycle("a", "a1", own=True, shared=True)

    assert set(outcome.quarantined) == {"a1", "b1"}
    assert {q["namespace"] for q in await made.ledger.quarantines()} == {HOST, "a"}


async def test_deep_clearance_takes_a_clean_check_of_the_instance(house: Any) -> None:
    made = await house("a", depth=DEEP)
    await made.cycle("a", "a1", DEEP)
    assert await made.stand("a1") == ["cleared (quick)"]

    outcome = await made.barrier()

    assert outcome.cleared == ("a1",)
    assert await made.stand("a1") == ["cleared (deep)"]


async def test_an_instances_check_before_the_namespaces_own_deep_one_counts(house: Any) -> None:
    made = await house("a", depth=DEEP)
    await made.cycle("a", "a1")
    await made.barrier()
    assert await made.stand("a1") == ["cleared (quick)"]

    await made.ledger.transition(NamespaceId("a"), Event.RECHECK, generation=made.generations["a"])
    await made.check("a", DEEP, purpose="recheck")

    assert await made.stand("a1") == ["cleared (deep)"]


async def test_a_start_verified_at_quick_never_clears_at_deep(house: Any) -> None:
    made = await house("a")
    await made.cycle("a", "a1", DEEP)

    await made.barrier()

    assert await made.stand("a1") == ["cleared (quick)"]


async def test_a_rebuilt_instance_says_nothing_of_the_one_before(house: Any) -> None:
    made = await house("a", depth=DEEP)
    await made.cycle("a", "a1", DEEP)
    await made.ledger.transition(NamespaceId(HOST), Event.LOST, generation=1)
    await made.rebuild()

    await made.barrier()

    assert await made.stand("a1") == ["cleared (quick)"]


@pytest.mark.parametrize(("depth", "cleared"), [(QUICK, "cleared (quick)"), (DEEP, "quarantined (unverified)")])
async def test_the_loss_of_an_instance_leaves_nobody_waiting(house: Any, depth: Depth, cleared: str) -> None:
    made = await house("a", "b", depth=DEEP)
    await made.cycle("a", "vouched", DEEP)
    await made.barrier()
    await made.cycle("a", "cleared", DEEP)
    await made.lease("a", "ended")
    await made.end("ended")
    await made.lease("b", "running")

    outcome = await made.ledger.abandon_instance(HOST, note="its server was killed", depth=depth)

    lost = {"ended", "running"} | ({"cleared"} if depth is DEEP else set())
    assert set(outcome.quarantined) == lost
    assert await made.stand("vouched", "cleared", "ended", "running") == [
        "cleared (deep)",
        cleared,
        "quarantined (unverified)",
        "quarantined (unverified)",
    ]


async def test_what_the_ledger_refuses(house: Any) -> None:
    made = await house("a")
    with pytest.raises(LedgerConflict, match="those are leased"):
        await made.ledger.lease(
            NamespaceId(HOST), generation=1, lease=LeaseId("l"), trajectory=TrajectoryId("t"), holder="h", task=None, ttl_s=1
        )
    with pytest.raises(LedgerConflict, match="is a namespace itself"):
        await made.ledger.create_namespace(made.record("z", instance=InstanceId("a")))
    await made.lease("a", "a1")
    await made.ledger.transition(NamespaceId(HOST), Event.RECHECK, generation=1)
    with pytest.raises(LedgerConflict, match="still used by trajectory a1"):
        await made.check_host()
    with pytest.raises(AutoclaveError, match="reads everything"):
        await made.ledger.record_instance_check(HOST, verdict(QUICK), generation=1, purpose="barrier")
    with pytest.raises(LedgerConflict, match="record_instance_check"):
        await made.ledger.record_check(NamespaceId(HOST), verdict(DEEP), generation=1, window=WindowPolicy.STRICT, purpose="reset")


async def test_instances_are_listed_apart_and_why_names_them(house: Any) -> None:
    made = await house("a")
    await made.cycle("a", "a1", shared=True)

    assert [r.id for r in await made.ledger.namespaces()] == ["a"]
    assert [r.id for r in await made.ledger.instances()] == [HOST]
    why = await made.ledger.why(TrajectoryId("a1"))
    assert why["lease"]["instance"] == HOST
    assert why["window"]["namespace"] == HOST
    assert why["window"]["mismatches"][0]["shared"]


# Any history, against an oracle that knows intervals of time and no sequence numbers.


@dataclass
class Used:
    """The oracle's record: when a trajectory held which namespace."""

    name: str
    space: str
    began: int
    ended: int | None = None
    lost: bool = False


class Oracle(RuleBasedStateMachine):
    """Leases on three namespaces of one instance. A field of the instance that differs at time t must cost exactly those whose
    lease touched the time between the last clean check of the instance and t."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.time = 0
        self.numbers = count(1)
        self.used: list[Used] = []
        self.clean_at = 0
        self.own_clean: dict[str, int] = dict.fromkeys("abc", 0)

        async def enter() -> tuple[AsyncExitStack, House]:
            stack = AsyncExitStack()
            ledger = await stack.enter_async_context(open_ledger(Path(self.folder.name) / "ledger.sqlite", clock=Ticks()))
            return stack, await House(ledger).open("a", "b", "c")

        self.stack, self.house = self.runner.run(enter())

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    def tick(self) -> int:
        self.time += 1
        return self.time

    def holder(self, space: str) -> Used | None:
        return next((u for u in self.used if u.space == space and u.ended is None), None)

    @rule(space=st.sampled_from("abc"))
    def lease(self, space: str) -> None:
        if self.holder(space) is None:
            used = Used(f"t{next(self.numbers)}", space, self.tick())
            self.runner.run(self.house.lease(space, used.name))
            self.used.append(used)

    @rule(space=st.sampled_from("abc"), own=st.booleans(), shared=st.sampled_from([False, False, True]))
    def end(self, space: str, own: bool, shared: bool) -> None:
        used = self.holder(space)
        if used is None:
            return
        used.ended = self.tick()

        async def step() -> None:
            await self.house.end(used.name)
            await self.house.reset(space)
            await self.house.check(space, own=own, shared=shared)

        self.runner.run(step())
        if own:
            self._taint(self.own_clean[space], {space})
        if shared:
            self._taint(self.clean_at, set("abc"))
            self._replace_instance()
        elif own:
            self._recover(space)
        else:
            self.own_clean[space] = self.tick()

    @precondition(lambda self: all(u.ended is not None for u in self.used))
    @rule(dirty=st.booleans())
    def barrier(self, dirty: bool) -> None:
        self.runner.run(self.house.barrier(dirty=dirty))
        if dirty:
            self._taint(self.clean_at, set("abc"))
            self._replace_instance()
        else:
            self.clean_at = self.tick()

    def _taint(self, since: int, spaces: set[str]) -> None:
        """Naive: whoever held one of these namespaces at any moment after `since`."""
        for used in self.used:
            if used.space in spaces and (used.ended is None or used.ended > since):
                used.lost = True

    def _recover(self, space: str) -> None:
        async def step() -> None:
            await self.house.ledger.transition(NamespaceId(space), Event.ESCALATE, generation=self.house.generations[space])
            await self.house.reset(space)
            await self.house.check(space)

        self.runner.run(step())
        self.own_clean[space] = self.tick()

    def _replace_instance(self) -> None:
        """Revoke its leases, rebuild it, and verify every namespace anew."""

        async def step() -> None:
            for used in self.used:
                if used.ended is None:
                    used.ended = self.tick()
                    await self.house.end(used.name)
            await self.house.rebuild()
            for space in "abc":
                state = await self.house.state(space)
                if state == "ready":
                    await self.house.ledger.transition(NamespaceId(space), Event.RESET, generation=self.house.generations[space])
                elif state == "quarantined":
                    await self.house.ledger.transition(NamespaceId(space), Event.ESCALATE, generation=self.house.generations[space])
                await self.house.reset(space)
                await self.house.check(space)

        self.runner.run(step())
        self.clean_at = self.tick()
        self.own_clean = dict.fromkeys("abc", self.tick())

    @invariant()
    def exactly_those_are_quarantined(self) -> None:
        states = self.runner.run(self.house.stand(*[u.name for u in self.used]))
        assert {u.name for u, s in zip(self.used, states, strict=True) if s.startswith("quarantined")} == {
            u.name for u in self.used if u.lost
        }


class Ticks:
    def __init__(self) -> None:
        self._ticks = count()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._ticks))

    def monotonic(self) -> float:
        return float(next(self._ticks))

    async def sleep(self, seconds: float) -> None: ...


def test_windows_against_intervals_of_time() -> None:
    chosen = settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Oracle, settings=chosen)
