"""The loop over a pool in memory: what ships, what does not, and that the accounts add up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rollout.admission.budgets import Spend
from rollout.batches import OPTIMISTIC, Batch, SyncRule
from rollout.drive import drive
from rollout.errors import RolloutStopped
from rollout.groups import GroupRule
from rollout.learner.learner import Stepping, Update
from rollout.policies.tokens import ByteTokenizer
from rollout.record import CONTEXT
from rollout.terms import Failure, Late, State, Termination
from sandbox.aio import poll
from sandbox.model import CheckPolicy, ClearanceState, Depth, ResetMethod, ResetPolicy
from sandbox.pool import Pool
from sandbox.testing import memory_environment

SOLVE, FAIL, LEAK = (
    f'<tool_call>{{"name": "do", "arguments": {{"command": "{command}"}}}}</tool_call>'
    for command in ("set orders paid", "set orders open", "set sticky left")
)
BROKEN = "<tool_call>{"


def counts(rolled: Any, **expected: int) -> dict[str, int]:
    """Every state's count, those not named 0; and the sum is what was admitted."""
    found = dict(rolled.books.accounts.counts())
    assert sum(found.values()) == rolled.books.accounts.admitted
    return {state: found.get(state, 0) for state in {*expected, *(s for s, n in found.items() if n)}}


async def true(what: Any) -> bool:
    return bool(what)


def leaky(rolled: Any, **check: Any) -> None:
    """Let the environment run under its author's hook, which misses `sticky`."""
    rolled.leaks[ResetMethod.HOOK] = ["file/sticky"]
    rolled.environment = memory_environment(
        tasks=rolled.tasks, reset=ResetPolicy(method=ResetMethod.HOOK, hook=("reset",)), check=CheckPolicy(**check)
    )


async def test_every_group_ships_once_and_the_accounts_add_up(rolled: Any) -> None:
    batches = await rolled.run()

    assert [len(b.samples) for b in batches] == [4, 4]
    assert sorted(g for b in batches for g in b.groups) == ["run-0", "run-1", "run-2", "run-3"]
    assert counts(rolled) == {"accepted": 8}
    assert {(s.trajectory.reward, s.advantage) for b in batches for s in b.samples} == {(1.0, 0.5), (0.0, -0.5)}
    assert rolled.loop.parts.limits.slot_held_during_tool_wait_s == 0
    kept = (*rolled.loop.delivery.shipped.values(), *rolled.books.records.values())
    assert {len(record.tokens) for record in kept} == {0}  # a long run keeps none of them in memory


async def test_the_record_is_whole_and_token_for_token(rolled: Any) -> None:
    batches = await rolled.run()
    record = next(s.trajectory for b in batches for s in b.samples if s.trajectory.id == "run-0-0")
    kept = rolled.journal().trajectories["run-0-0"]
    tokenizer = ByteTokenizer()

    assert kept.tokens == record.tokens
    text = tokenizer.decode(record.tokens)
    assert text.count(SOLVE) == 1
    assert text.endswith("done<|im_end|>")
    generated = [t for t, m in zip(record.tokens, record.mask, strict=True) if m]
    assert tokenizer.decode(generated) == SOLVE + "<|im_end|>done<|im_end|>"
    assert [(v != CONTEXT) for v in record.versions] == [bool(m) for m in record.mask]
    assert all((lp < 0) == bool(m) for lp, m in zip(record.logprobs, record.mask, strict=True))
    assert (record.reward, record.success, record.termination, record.failure) == (1.0, True, Termination.FINAL, Failure.OK)
    assert record.namespace
    assert record.lease >= 1
    assert record.start_check
    assert record.end_check
    assert record.start_digest
    assert record.environment_digest == rolled.environment.spec.digest
    assert [a.tool for a in record.actions] == ["do"]
    assert rolled.journal().outcomes["run-0-0"].state is State.ACCEPTED
    assert rolled.journal().outcomes["run-0-0"].batch == "run-batch-1"


async def test_contaminated_trajectories_are_in_no_batch_and_have_no_reward(rolled: Any) -> None:
    leaky(rolled)
    rolled.change(group_rule=GroupRule(size=4, refill=False), groups=3, sync=SyncRule(groups=1), holding=8, alarm=1.0)
    rolled.answers = lambda task, member, attempt: (LEAK, SOLVE, "done") if member == 3 else (SOLVE if member else FAIL, "done")
    batches = await rolled.run()

    shipped = {s.trajectory.id for b in batches for s in b.samples}
    quarantined = set(rolled.books.accounts.of(State.QUARANTINED))
    assert {f"run-{g}-3" for g in range(3)} <= quarantined
    assert not shipped & quarantined
    outcomes = rolled.journal().outcomes
    assert all(outcomes[t].reward is None and outcomes[t].clearance == "quarantined" for t in quarantined)
    assert rolled.journal().trajectories["run-0-3"].scored == 1.0  # what it earned is still known, for the rates
    assert all(s.trajectory.clearance == "cleared" for b in batches for s in b.samples)
    counts(rolled)


async def test_a_contaminated_member_is_run_again_from_the_retry_budget(rolled: Any) -> None:
    leaky(rolled)
    rolled.change(alarm=1.0, retries=20)
    rolled.answers = lambda task, member, attempt: (
        (LEAK, SOLVE, "done") if member == 0 and attempt == 0 else (FAIL if member else SOLVE, "done")
    )
    batches = await rolled.run()

    assert sum(len(b.samples) for b in batches) == 8
    assert rolled.books.budget.spent[Spend.RETRY] == rolled.books.accounts.counts()["quarantined"] >= 4
    assert rolled.books.budget.spent[Spend.EXPLORE] == 0


async def test_too_much_contamination_stops_the_run_with_that_as_the_reason(rolled: Any) -> None:
    leaky(rolled)
    rolled.change(alarm=0.2, alarm_after=3, groups=20)
    rolled.answers = lambda task, member, attempt: (LEAK, "done")
    with pytest.raises(RolloutStopped, match="contamination alarm: "):
        await rolled.run()

    assert rolled.books.accounts.counts()["open"] > 0
    counts(rolled)


async def test_optimistic_batches_ship_first_and_a_later_mismatch_recalls_them(rolled: Any) -> None:
    leaky(rolled, required_depth=Depth.DEEP)
    rolled.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    leak = LEAK.replace("sticky", "deep/notes")
    rolled.change(sync=SyncRule(groups=1, mode=OPTIMISTIC), groups=2, alarm=1.0)
    rolled.answers = lambda task, member, attempt: (leak, SOLVE, "done") if member == 0 else (FAIL, "done")
    recalled: list[Any] = []

    async def look() -> None:
        await rolled.pool.record_update("update-1", batches=["run-batch-1"], checkpoint="ckpt-1")

    batches = await rolled.run(each=look, at_end=recalled)

    assert batches
    assert rolled.loop.delivery.quarantined_in_batches >= {"run-0-0"}
    assert rolled.books.accounts.state("run-0-0") is State.QUARANTINED
    recall = recalled[0]
    assert "run-0-0" in recall.trajectories
    assert (recall.batches[0], recall.updates[0], recall.checkpoints[0]) == ("run-batch-1", "update-1", "ckpt-1")
    counts(rolled)


async def test_the_alarm_hears_of_what_is_found_after_an_optimistic_batch_went(rolled: Any) -> None:
    leaky(rolled, required_depth=Depth.DEEP)
    rolled.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    leak = LEAK.replace("sticky", "deep/notes")
    rolled.change(sync=SyncRule(groups=1, mode=OPTIMISTIC), groups=2, alarm=0.2, alarm_after=3)
    rolled.answers = lambda task, member, attempt: (leak, FAIL if member else SOLVE, "done")
    async with rolled.ticking(), rolled.open() as loop:
        assert await loop.next_batch() is not None
        assert await poll(lambda: true(loop.over), timeout=60)
        assert not rolled.books.contaminated
        await rolled.pool.audit_namespaces(Depth.DEEP)
        with pytest.raises(RolloutStopped, match="contamination alarm: "):
            await loop.next_batch()

    counts(rolled)


async def test_a_last_batch_that_is_refused_goes_without_whom_it_was_refused_for(rolled: Any) -> None:
    """Everything has ended, and only then a deeper check takes clearances back."""
    arrived: set[str] = set()
    all_there = asyncio.Event()

    async def together(session: Any) -> None:  # so that nobody is given a namespace that another one has left
        arrived.add(session.trajectory_id)
        if len(arrived) == 8:
            all_there.set()
        await all_there.wait()

    rolled.tool.wait = together
    rolled.tool.limit_s = 1e6
    leaky(rolled, required_depth=Depth.QUICK)
    rolled.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    leak = LEAK.replace("sticky", "deep/notes")
    rolled.size = rolled.tool_limit = 8
    rolled.change(groups=2, group_rule=GroupRule(size=4), holding=8, high=8, low=8, alarm=1.0)
    rolled.answers = lambda task, member, attempt: (leak, SOLVE, "done") if member == 0 else (FAIL if member % 2 else SOLVE, "done")
    async with rolled.ticking(), rolled.open() as loop:
        assert await poll(lambda: true(loop.over), timeout=60)
        await rolled.pool.audit_namespaces(Depth.DEEP)
        batch = await loop.next_batch()
        assert await loop.next_batch() is None

    assert batch is not None
    assert {"run-0-0", "run-1-0"}.isdisjoint(s.trajectory.id for s in batch.samples)
    assert counts(rolled) == {"accepted": 6, "quarantined": 2}
    assert rolled.loop.delivery.quarantined_in_batches == set()


@pytest.mark.parametrize("check", [True, False])
async def test_what_only_a_deep_check_sees_is_counted_before_the_pool_closes(rolled: Any, check: bool) -> None:
    leaky(rolled, required_depth=Depth.QUICK)
    rolled.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    leak = LEAK.replace("sticky", "deep/notes")
    rolled.change(groups=1, sync=SyncRule(groups=1), alarm=1.0)
    rolled.answers = lambda task, member, attempt: (leak, SOLVE, "done") if member == 0 else (FAIL, "done")
    async with rolled.ticking(), rolled.open() as loop:
        assert await loop.next_batch() is not None
        await loop.settle(check=check)
        assert ("run-0-0" in loop.delivery.quarantined_in_batches) is check

    counts(rolled)


async def test_gated_never_ships_before_the_required_depth(rolled: Any) -> None:
    rolled.environment = memory_environment(
        tasks=rolled.tasks,
        reset=ResetPolicy(method=ResetMethod.HOOK, hook=("reset",)),
        check=CheckPolicy(required_depth=Depth.DEEP),
    )
    batches = await rolled.run()

    assert counts(rolled) == {"accepted": 8}
    assert {rolled.clearances[s.trajectory.id].depth for b in batches for s in b.samples} == {Depth.DEEP}


async def test_malformed_actions_spend_the_exploration_budget_and_are_scored(rolled: Any) -> None:
    rolled.change(group_rule=GroupRule(size=2), groups=2, sync=SyncRule(groups=1), member_alternatives=1)
    rolled.answers = lambda task, member, attempt: (BROKEN, SOLVE, "done") if member == 0 else (BROKEN, BROKEN, BROKEN)
    batches = await rolled.run()

    records = rolled.journal().trajectories
    assert records["run-0-0"].reward == 1.0
    assert [a.malformed for a in records["run-0-0"].actions] == [True, False]
    assert (records["run-0-1"].termination, records["run-0-1"].failure) == (Termination.MALFORMED, Failure.POLICY)
    assert records["run-0-1"].reward == 0.0
    assert "exploration budget" in records["run-0-1"].detail
    assert rolled.books.budget.spent == {Spend.RETRY: 0, Spend.EXPLORE: 4}
    assert len(batches) == 2


async def test_a_loop_is_ended_with_its_reason_and_keeps_its_real_reward(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (SOLVE, "done") if member == 0 else (FAIL,)
    await rolled.run()

    record = rolled.journal().trajectories["run-0-1"]
    assert (record.termination, record.failure, record.reward) == (Termination.LOOP, Failure.POLICY, 0.0)
    assert len(record.actions) == 3
    assert rolled.books.responses == {"loop: terminate": 4}


async def test_a_hard_task_is_preserved_at_its_turn_limit(rolled: Any) -> None:
    def long(task: str, member: int, attempt: int) -> Sequence[str]:
        steps = [f'<tool_call>{{"name": "do", "arguments": {{"command": "set step {n}"}}}}</tool_call>' for n in range(40)]
        return [SOLVE, *steps] if member == 0 else [FAIL, "done"]

    rolled.answers = long
    await rolled.run()

    record = rolled.journal().trajectories["run-0-0"]
    assert (record.termination, record.failure, record.reward) == (Termination.TURN_LIMIT, Failure.VALID_HARD, 1.0)
    assert rolled.books.responses == {"turn_limit: preserve": 4}


async def test_flat_groups_are_dropped_unless_they_are_kept(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (SOLVE, "done")
    assert await rolled.run() == []
    assert counts(rolled) == {"dropped": 8}
    assert rolled.books.accounts.why() == {"dropped": {"all rewards are equal": 8}}


async def test_flat_groups_ship_where_that_is_asked(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (SOLVE, "done")
    rolled.change(group_rule=GroupRule(size=2, keep_flat=True))
    batches = await rolled.run()

    assert counts(rolled) == {"accepted": 8}
    assert {s.advantage for b in batches for s in b.samples} == {0.0}


async def test_what_no_full_batch_is_left_for_stays_open(rolled: Any) -> None:
    rolled.change(groups=3)
    batches = await rolled.run()

    assert len(batches) == 1
    assert counts(rolled) == {"accepted": 4, "open": 2}


async def test_admission_is_paced_so_that_nothing_grows_older_than_the_gap(rolled: Any) -> None:
    rolled.change(groups=8, sync=SyncRule(groups=2, max_gap=1), holding=32, low=32, high=32)
    rolled.size = 2
    most = 0
    async with rolled.ticking(), rolled.open() as loop:
        async for batch in loop.batches():
            most = max(most, loop._outstanding)
            assert all(s.gap <= 1 for s in batch.samples)
            await loop.publish(None)
            most = max(most, loop._outstanding)

    assert most <= 4
    assert loop.version == 4
    assert counts(rolled) == {"accepted": 16}


@pytest.mark.parametrize(
    ("late", "expected"),
    [(Late.NEXT, {"stale": 2}), (Late.KEEP_OFF_POLICY, {"off_policy": 2}), (Late.DISCARD, {"stale": 2})],
)
async def test_a_group_that_misses_its_batch_goes_by_the_late_rule(rolled: Any, late: Late, expected: dict[str, int]) -> None:
    """With completeness 1/2 and a gap of 0, the batch goes without the slow group; a version later it is too old."""
    rolled.change(groups=3, sync=SyncRule(groups=2, max_gap=0, completeness=0.5, late=late))
    release = rolled.slow("run-0-0")
    rolled.tool.limit_s = 1e6
    seen = []
    async with rolled.ticking(), rolled.open() as loop:
        async for batch in loop.batches():
            seen.append(batch)
            await loop.publish(None)
            release.set()

    assert counts(rolled) == {"accepted": 4, **expected}
    assert [s.trajectory.group for b in seen for s in b.off_policy] == (["run-0"] * 2 if late is Late.KEEP_OFF_POLICY else [])
    states = {c.state for c in rolled.clearances.values()}
    assert states == {ClearanceState.CLEARED}


async def test_at_a_tools_safe_limit_tasks_of_lower_worth_are_refused_and_nothing_times_out(rolled: Any) -> None:
    """Every task is new, and worth 1.5, once; the second round is worth less than the floor and waits until the tool is free."""

    async def slow(session: Any) -> None:
        await rolled.clock.sleep(5)

    rolled.tool_limit = 1
    rolled.tool.wait = slow
    rolled.change(groups=8, value_floor=1.2, sync=SyncRule(groups=2, max_gap=8))
    batches = await rolled.run()

    assert counts(rolled) == {"accepted": 16}
    assert len(batches) == 4
    (reason,) = {why.split(" below")[0].split(": worth")[0] for why in rolled.books.accounts.refused}
    assert reason == "tool:do at the safe limit"
    use = rolled.loop.parts.limits.uses["tool:do"]
    assert (use.most_held, use.refused) == (1, 0)


async def test_a_tool_wait_leaves_the_model_to_others(rolled: Any) -> None:
    """One slot, and a trajectory that waits for its tool until all others have ended: they generate the while."""
    rolled.slots = 1
    rolled.change(groups=2, sync=SyncRule(groups=1), holding=4, low=4, high=4)
    release = rolled.slow("run-0-0")
    async with rolled.open() as loop:
        first = await loop.next_batch()
        assert first is not None
        assert first.groups == ("run-1",)
        assert loop.parts.limits.held()["session"].keys() == {"run-0-0"}
        assert "model" not in loop.parts.limits.held()
        release.set()
        second = await loop.next_batch()
        assert second is not None
        assert second.groups == ("run-0",)
    assert loop.parts.limits.slot_held_during_tool_wait_s == 0


async def test_a_checkpoint_gets_its_name_after_the_ledger_has_its_update(rolled: Any) -> None:
    """What a recall cannot name must not lie there to be used, should the run be killed between the two."""
    order: list[str] = []

    async def recording(name: str, **given: Any) -> None:
        await Pool.record_update(rolled.pool, name, **given)
        order.append(f"{given['checkpoint']} recorded")

    class Saving(Stepping):
        async def update(self, batch: Batch) -> Update:
            update = await super().update(batch)
            return replace(update, recorded=lambda: order.append(f"{update.checkpoint} named"))

    rolled.change(groups=2, sync=SyncRule(groups=1))
    async with rolled.ticking(), rolled.open() as loop:
        rolled.pool.record_update = recording
        await drive(loop, Saving())

    saved = [f"run-batch-{n}-checkpoint" for n in (1, 2)]
    assert order == [f"{each} {what}" for each in saved for what in ("recorded", "named")]


async def test_an_update_that_took_late_samples_is_recorded_with_their_batch(rolled: Any) -> None:
    """A recall follows an off-policy trajectory to the update and the checkpoint, unless the learner says that it left it alone."""

    class Careful(Stepping):
        async def update(self, batch: Batch) -> Update:
            return replace(await super().update(batch), off_policy=False)

    for learner, reached in ((Stepping(), True), (Careful(), False)):
        rolled.change(
            run=f"run-{reached}", groups=3, sync=SyncRule(groups=2, max_gap=0, completeness=0.5, late=Late.KEEP_OFF_POLICY)
        )
        release = rolled.slow(f"run-{reached}-0-0")
        rolled.tool.limit_s = 1e6

        async def after(_: Any, release: asyncio.Event = release) -> bool:
            release.set()
            return True

        async with rolled.ticking(), rolled.open() as loop:
            await drive(loop, learner, after=after)
            found = await rolled.pool.why(f"run-{reached}-0-0")

        assert rolled.books.accounts.state(f"run-{reached}-0-0") is State.OFF_POLICY
        assert [b["batch"].endswith("-off-policy") for b in found["batches"]] == [True]
        assert bool(found["updates"]) is reached


async def test_a_batch_that_was_never_handed_out_was_not_learned_from(rolled: Any) -> None:
    rolled.change(sync=SyncRule(groups=1, max_gap=1))
    async with rolled.open() as loop:
        patience = 0
        while loop._shipped is None:
            asking = asyncio.create_task(loop.next_batch())
            for _ in range(patience := patience + 1):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
            assert asking.cancelled() or patience < 10_000
        batch = await loop.next_batch()
        assert batch is not None
        assert loop._learning == 1
        assert 1 <= loop._outstanding <= 2


async def test_a_caller_that_gives_up_in_the_middle_of_shipping_finds_the_batch_at_its_next_call(rolled: Any) -> None:
    async with rolled.open() as loop:
        taken: list[str] = []
        for patience in range(200):
            asking = asyncio.create_task(loop.next_batch())
            for _ in range(patience % 40):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
            if not asking.cancelled() and (batch := asking.result()) is not None:
                taken += batch.groups
        while (batch := await loop.next_batch()) is not None:
            taken += batch.groups

    assert sorted(taken) == ["run-0", "run-1", "run-2", "run-3"]
