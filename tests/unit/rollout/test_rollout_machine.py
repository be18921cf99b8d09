"""A random walk over loop, groups and clearance with a clock that the test moves. What must never happen is asserted at every ship:
no quarantined or uncleared trajectory in a batch, no gap beyond the bound, no budget that borrows, no queue beyond its size."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rollout.admission.budgets import Spend
from rollout.batches import SyncRule
from rollout.engines.engine import Request
from rollout.engines.scripted import Reply
from rollout.errors import EngineLost, RolloutStopped
from rollout.groups import GroupRule
from rollout.terms import Late, State
from sandbox.errors import InstanceLost, ResetFailed
from sandbox.model import CheckPolicy, ClearanceState, Depth, ResetMethod, ResetPolicy
from sandbox.testing import memory_environment

COMMANDS = ("set orders paid", "set orders open", "set deep/notes left", "set sticky left", "die", "get orders")
CALLS = (f'<tool_call>{{"name": "do", "arguments": {{"command": "{c}"}}}}</tool_call>' for c in COMMANDS)
ANSWERS = (*CALLS, "<tool_call>{", "done")


class Walk(RuleBasedStateMachine):
    """Each step does something to the run and lets it go on for a while; the run itself is the real one, over a real ledger."""

    make: Any

    @initialize(
        method=st.sampled_from([ResetMethod.RESTORE, ResetMethod.HOOK]),
        required=st.sampled_from(list(Depth)),
        rule_=st.builds(
            SyncRule,
            groups=st.integers(1, 3),
            max_gap=st.integers(0, 2),
            completeness=st.sampled_from([0.5, 1.0]),
            late=st.sampled_from(list(Late)),
        ),
        size=st.integers(2, 3),
        keep_flat=st.booleans(),
        budget=st.tuples(st.integers(0, 6), st.integers(0, 6)),
        answers=st.lists(st.sampled_from(ANSWERS), min_size=3, max_size=12),
    )
    def begin(
        self,
        method: ResetMethod,
        required: Depth,
        rule_: SyncRule,
        size: int,
        keep_flat: bool,
        budget: tuple[int, int],
        answers: list[str],
    ) -> None:
        self.runner = asyncio.Runner()
        self.home = tempfile.TemporaryDirectory(prefix="ac-rollout-")
        self.rolled = rolled = self.make(Path(self.home.name))
        rolled.leaks[ResetMethod.HOOK] = ["file/deep/*", "file/sticky"]
        policy = ResetPolicy(method=method, hook=("reset",) if method is ResetMethod.HOOK else ())
        rolled.environment = memory_environment(
            tasks=rolled.tasks, reset=policy, check=CheckPolicy(deep_every=3, required_depth=required)
        )
        rolled.size = 3
        rolled.change(
            groups=12,
            group_rule=GroupRule(size=size, keep_flat=keep_flat),
            sync=rule_,
            retries=budget[0],
            alternatives=budget[1],
            alarm=1.0,
            clear_s=200.0,
        )
        rolled.bounds = replace(rolled.bounds, turns=4, score_s=30, generate_s=60, session_wait_s=120, trajectory_s=200)
        rolled.script = lambda _: self.answer
        self.required, self.answers, self.asked = required, answers, 0
        self.shipped: dict[str, int] = {}
        self.version = 0
        self.over = False
        self.stack = AsyncExitStack()
        self.loop = self.do(self.stack.enter_async_context(rolled.open()))

    def answer(self, request: Request, _: str) -> Reply:
        self.asked += 1
        return Reply(text=self.answers[self.asked % len(self.answers)], wait_s=0.5)

    def do(self, step: Any) -> Any:
        return self.runner.run(step)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            await self.rolled.clock.advance(0.5)
            await asyncio.sleep(0.0005)

    @rule(seconds=st.integers(1, 40))
    def go_on(self, seconds: int) -> None:
        self.do(self.pass_time(seconds))

    @rule()
    def take(self) -> None:
        """Ask for a batch for a while; what comes is checked against the ledger."""

        async def step() -> Any:
            asking = asyncio.create_task(self.loop.next_batch())
            for _ in range(60):
                if asking.done():
                    break
                await self.pass_time(1)
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
                return "nothing yet"
            try:
                batch = asking.result()
            except RolloutStopped:
                return None
            if batch is not None:
                ids = [s.trajectory.id for s in (*batch.samples, *batch.off_policy)]
                found = await self.rolled.pool.clearance(ids)
                assert len(found) == len(ids)
                late = [c for c in found.values() if c.state is not ClearanceState.CLEARED or not c.ships_at(self.required)]
                if late:  # a deeper check, after it had shipped: told by the recall. What deep has cleared stays so
                    assert self.required is Depth.QUICK, late
                    assert {c.state for c in late} == {ClearanceState.QUARANTINED}, late
                    assert set(batch.recorded) & set((await self.rolled.pool.recall()).batches), late
            return batch

        batch = self.do(step())
        if batch is None:
            self.over = True
            return
        if batch == "nothing yet":
            return
        rule_ = self.rolled.plan.sync
        for sample in batch.samples:
            record = sample.trajectory
            assert 0 <= sample.gap <= rule_.max_gap
            assert record.oldest_version is not None
            assert batch.version - record.oldest_version <= sample.gap
            assert record.reward is not None
        assert all(s.gap > rule_.max_gap for s in batch.off_policy)
        assert not batch.samples or rule_.least <= len(batch.groups) <= rule_.groups
        for sample in (*batch.samples, *batch.off_policy):
            assert sample.trajectory.id not in self.shipped, "a group shipped twice"
            self.shipped[sample.trajectory.id] = batch.version

    @rule()
    def publish(self) -> None:
        self.do(self.loop.publish(None))

    @rule()
    def fail_to_publish(self) -> None:
        async def step() -> None:
            before = self.loop.version
            self.rolled.engine.fail_publishing(EngineLost("planned"))
            try:
                await self.loop.publish(None)
            except EngineLost:
                assert self.loop.version == before

        self.do(step())

    @rule(step=st.sampled_from(["restore", "reset_in_place", "start", "run", "score", "quiesce"]))
    def fail_next(self, step: str) -> None:
        error = InstanceLost("planned") if step in ("run", "score", "quiesce") else ResetFailed("planned")
        faults = self.rolled.environment.faults if step == "score" else self.rolled.runtime.faults
        faults.fail(step, error)

    @invariant()
    def accounts_add_up(self) -> None:
        if not hasattr(self, "loop"):
            return
        accounts = self.rolled.books.accounts
        assert sum(accounts.counts().values()) == accounts.admitted
        kept = self.loop._shipped  # the caller left while it shipped: it comes with the next call
        waiting = {s.trajectory.id for s in (*kept.samples, *kept.off_policy)} if kept is not None else set()
        assert set(accounts.of(State.ACCEPTED)) | set(accounts.of(State.OFF_POLICY)) <= set(self.shipped) | waiting

    @invariant()
    def budgets_never_borrow(self) -> None:
        if not hasattr(self, "loop"):
            return
        budget = self.rolled.books.budget
        assert all(budget.spent[kind] <= budget.given[kind] for kind in Spend)
        actions = [a for r in self.rolled.books.records.values() for a in r.own_actions]
        ended = sum(r.termination.value == "malformed" for r in self.rolled.books.records.values())
        assert sum(a.malformed for a in actions) - ended <= budget.given[Spend.EXPLORE]
        again = sum(r.attempt > 0 for r in self.rolled.books.records.values()) + sum(a.retries for a in actions)
        assert again <= budget.given[Spend.RETRY]

    @invariant()
    def queues_are_bounded(self) -> None:
        if not hasattr(self, "loop"):
            return
        limits, plan = self.loop.parts.limits, self.rolled.plan
        for name, use in limits.uses.items():
            assert use.most_waiting <= limits.of(name).waiting
            assert use.most_held <= limits.of(name).limit
        assert len(self.loop.shelf) <= self.loop.shelf.capacity
        assert self.loop._outstanding <= plan.sync.outstanding
        if not self.rolled.books.budget.spent[Spend.RETRY]:  # one that is run again comes back whoever was admitted meanwhile
            assert self.loop.parts.board.holding <= plan.holding
        assert limits.slot_held_during_tool_wait_s == 0

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.do(self.stack.aclose())
            self.accounts_add_up()
            counts = self.rolled.books.accounts.counts()
            if self.over and not self.rolled.books.stopped:
                left = sum(len(g.survivors) for g in self.loop.shelf.waiting())
                assert counts["open"] == left, "a trajectory was forgotten"
                assert len(self.loop.shelf) < self.rolled.plan.sync.least, "a batch was left behind"
            assert not self.rolled.runtime.machine.running
        finally:
            self.runner.close()
            self.home.cleanup()


def test_nothing_that_must_not_happen_happens_on_a_random_walk(make_rolled: Any) -> None:
    Walk.make = staticmethod(make_rolled)
    quick = settings(max_examples=10, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Walk, settings=quick)
