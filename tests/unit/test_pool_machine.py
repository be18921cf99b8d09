"""A random walk over the pool: sessions, leaks, failed resets, expiry, crashes, shipping. The promises hold after every step."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sandbox.errors import NotCleared, PoolBroken, PoolBusy, ResetFailed, SessionExpired, StaleGeneration
from sandbox.lifecycle import State
from sandbox.model import CheckPolicy, ClearanceState, Depth, ResetMethod, ResetPolicy, TrajectoryId
from sandbox.testing import memory_environment

METHODS = {
    "restore": ResetPolicy(),
    "hook": ResetPolicy(method=ResetMethod.HOOK, hook=("reset",), restore_every=4),
}


class Walk(RuleBasedStateMachine):
    """Every step runs to quiet, so that what is asserted is what the ledger durably says."""

    make: Any
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.home = tempfile.TemporaryDirectory(prefix="ac-walk-")
        self.bench = self.make(Path(self.home.name))
        self.bench.leaks[ResetMethod.HOOK] = ["file/deep/*", "file/sticky"]
        self.environments = [
            memory_environment("restore", check=CheckPolicy(deep_every=3)),
            memory_environment("hook", reset=METHODS["hook"], check=CheckPolicy(deep_every=3, required_depth=Depth.DEEP)),
        ]
        self.required = {"restore": Depth.QUICK, "hook": Depth.DEEP}
        self.used: dict[TrajectoryId, str] = {}
        self.dirty: set[TrajectoryId] = set()
        self.batches = 0
        self.pool: Any = self.run(self.bench.open(*self.environments, size=2))
        self.run(self.bench.quiet())

    def run(self, step: Any) -> Any:
        return self.runner.run(step)

    @rule(target=sessions, name=st.sampled_from(["restore", "hook"]))
    def take(self, name: str) -> Any:
        async def step() -> Any:
            try:
                session = await self.pool.acquire(name, wait=0.05)
            except (PoolBusy, PoolBroken):  # all leased, or creation fails
                return None
            golden = (await session.run(["get", "orders"])).text
            assert golden == "3", "a holder was given another's world"
            return session

        session = self.run(step())
        if session is not None:
            self.used[session.trajectory_id] = name
        return session

    @rule(session=sessions, path=st.sampled_from(["orders", "deep/settings", "sticky"]))
    def act(self, session: Any, path: str) -> None:
        async def step() -> None:
            try:
                await session.run(["set", path, "changed"])
            except (SessionExpired, StaleGeneration):
                assert session.outcome is not None
            else:
                assert session.outcome is None
                if path == "deep/settings":
                    self.dirty.add(session.trajectory_id)

        if session is not None:
            self.run(step())

    @rule(session=sessions)
    def release(self, session: Any) -> None:
        async def step() -> None:
            await session.release()
            await self.bench.quiet()

        if session is not None and session.outcome is None:
            self.run(step())

    @rule(what=st.sampled_from(["restore", "reset_in_place", "start", "revoke"]))
    def fail_next(self, what: str) -> None:
        self.bench.runtime.faults.fail(what, ResetFailed("planned"))

    @rule()
    def expire(self) -> None:
        async def step() -> None:
            await self.bench.clock.advance(700)
            await asyncio.sleep(0.01)
            await self.bench.quiet()

        self.run(step())
        assert not self.run(self.bench.ledger.leases())

    @rule()
    def crash(self) -> None:
        async def step() -> None:
            for session in list(self.pool._leasing.sessions.values()):
                session.outcome = "lost"
            await self.bench.crash()
            self.pool = await self.bench.open(*self.environments, size=2)
            await self.bench.quiet()

        open_before = {lease.trajectory for lease in self.run(self.bench.ledger.leases())}
        self.run(step())
        found = self.run(self.pool.clearance(sorted(open_before)))
        assert {c.state for c in found.values()} <= {ClearanceState.QUARANTINED}
        assert not self.run(self.bench.ledger.leases())

    @rule()
    def drain_and_reopen(self) -> None:
        async def step() -> None:
            await self.bench.close()
            assert not self.bench.machine.running
            self.pool = await self.bench.open(*self.environments, size=2)
            await self.bench.quiet()
            found = await self.pool.clearance(sorted(self.used))
            for trajectory, clearance in found.items():  # P7: after a drain nobody waits
                decided = clearance.state is ClearanceState.QUARANTINED or clearance.ships_at(self.required[self.used[trajectory]])
                assert decided, f"{trajectory} ended a drain as {clearance}"

        self.run(step())

    @rule()
    def ship(self) -> None:
        async def step() -> None:
            self.batches += 1
            found = await self.pool.clearance(sorted(self.used))
            fit = [t for t, c in found.items() if c.ships_at(self.required[self.used[t]])]
            unfit = [t for t in found if t not in fit]
            if unfit:
                with pytest.raises(NotCleared):
                    await self.pool.ship(f"mixed-{self.batches}", [*fit[:1], unfit[0]], policy_version="1")
            if fit:
                try:
                    await self.pool.ship(f"batch-{self.batches}", fit, policy_version="1")
                except NotCleared:
                    return  # one of them is in a batch already

        self.run(step())

    @invariant()
    def nobody_unverified_is_ready_and_nobody_shares(self) -> None:
        async def step() -> None:
            leases = await self.bench.ledger.leases()
            assert len({lease.namespace for lease in leases}) == len(leases)
            for record in await self.bench.ledger.namespaces():
                if State(record.state) is State.READY:
                    assert record.last_check is not None
            for prepared in self.pool._all():
                for namespace in prepared.ready():
                    assert namespace.state is State.READY
                    assert namespace.live().files == {"orders": "3", "deep/settings": namespace.live().files["deep/settings"]}
                    if prepared.name == "restore":
                        assert namespace.live().files["deep/settings"] == "default"

        self.run(step())

    @invariant()
    def a_leak_that_is_still_there_was_not_cleared_deep(self) -> None:
        async def step() -> None:
            found = await self.pool.clearance(sorted(self.used))
            leases = await self.bench.ledger.leases(open_only=False)
            for prepared in self.pool._all():
                for namespace in prepared.ready():
                    if namespace.live().files["deep/settings"] == "changed":
                        lineage = {e.trajectory for e in leases if e.lineage == namespace.record.lineage} & self.dirty
                        assert lineage, "a leak without a trajectory that made it"
                        assert Depth.DEEP not in {found[t].depth for t in lineage}

        self.run(step())

    def teardown(self) -> None:
        try:
            self.run(self.bench.close())
            assert not self.bench.machine.running
        finally:
            self.runner.close()
            self.home.cleanup()


def test_the_promises_hold_on_a_random_walk(make_bench: Any) -> None:
    Walk.make = staticmethod(make_bench)
    quick = settings(max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Walk, settings=quick)
