"""What goes wrong in the middle of a run: it goes on or ends with the reason, no wait outlives its deadline, accounts are exact."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from rollout.admission.budgets import Spend
from rollout.batches import Batch, SyncRule
from rollout.drive import drive
from rollout.engines.engine import Request
from rollout.engines.http import HttpEngine
from rollout.engines.scripted import Reply, Script
from rollout.errors import EngineLost, RolloutStopped, ToolFault
from rollout.groups import GroupRule
from rollout.learner.learner import Stepping, Update
from rollout.policies.chat import ChatPolicy
from rollout.policies.policy import ToolSpec
from rollout.policies.tokens import ByteTokenizer
from rollout.terms import Failure, State, Termination
from rollout.watchdog import Patience
from sandbox.aio import poll
from sandbox.errors import PoolBroken
from sandbox.model import TaskSpec

DIE, SOLVE, FAIL = (
    f'<tool_call>{{"name": "do", "arguments": {{"command": "{command}"}}}}</tool_call>'
    for command in ("die", "set orders paid", "set orders open")
)


def exact(rolled: Any) -> dict[str, int]:
    """The states that were reached; their sum is what was admitted, and no failed or quarantined one has a reward."""
    found = rolled.books.accounts.counts()
    assert sum(found.values()) == rolled.books.accounts.admitted
    for name, outcome in rolled.journal().outcomes.items():
        if outcome.state in (State.FAILED, State.QUARANTINED):
            assert outcome.reward is None, name
    for use in rolled.loop.parts.limits.uses.values():
        assert not use.holders, "a place is held after the end"
    return {state: count for state, count in found.items() if count}


async def true(what: Any) -> bool:
    return bool(what)


async def test_a_lost_environment_is_no_reward_and_its_member_runs_again_in_a_fresh_lease(rolled: Any) -> None:
    def answers(task: str, member: int, attempt: int) -> Sequence[str]:
        return (DIE, "done") if (member, attempt) == (0, 0) else (FAIL if member else SOLVE, "done")

    rolled.answers = answers
    await rolled.run()

    assert exact(rolled) == {"accepted": 8, "failed": 4}
    lost = rolled.journal().trajectories["run-0-0"]
    assert (lost.termination, lost.failure, lost.reward) == (Termination.ENVIRONMENT_LOST, Failure.INFRA, None)
    again = rolled.journal().trajectories["run-0-0.1"]
    assert (again.reward, again.attempt) == (1.0, 1)
    assert rolled.books.budget.spent == {Spend.RETRY: 4, Spend.EXPLORE: 0}


async def test_an_environment_that_is_always_lost_ends_with_the_budget_and_hides_nothing(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (DIE,)
    rolled.change(groups=2, retries=3)
    assert await rolled.run() == []

    assert exact(rolled) == {"failed": 7}
    assert rolled.books.budget.spent == {Spend.RETRY: 3, Spend.EXPLORE: 0}


async def test_an_engine_that_dies_in_the_middle_ends_every_trajectory_with_that_reason(rolled: Any) -> None:
    asked = 0

    def counted(inner: Script) -> Script:
        def script(request: Request, text: str) -> Reply:
            nonlocal asked
            asked += 1
            if asked == 12:
                rolled.engine.die()
            return inner(request, text)

        return script

    rolled.script = counted
    rolled.change(groups=8, retries=4)
    await rolled.run()

    found = exact(rolled)
    assert found["failed"] > 4
    assert rolled.books.budget.spent == {Spend.RETRY: 4, Spend.EXPLORE: 0}
    lost = [r for r in rolled.journal().trajectories.values() if r.termination is Termination.ENGINE]
    assert all(r.reward is None and r.failure is Failure.INFRA and "died" in r.detail for r in lost)
    assert lost


@asynccontextmanager
async def served(*, dies_at: int = 0, hangs_at: int = 0) -> AsyncIterator[str]:
    """A server with vLLM's token interface whose agents solve their tasks, until it dies, or stops answering, at a request."""
    bytes_ = ByteTokenizer()
    asked = 0
    open_: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        open_.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r")[0] or 0)
        body = json.loads(await reader.readexactly(length) or b"{}")
        answer: dict[str, Any] = {"data": [{"id": "small"}], "weight_version": "first"}
        if "token_ids" in body:
            asked += 1
            if dies_at and asked >= dies_at:
                server.close()
                for each in open_:
                    each.transport.abort()
                return
            if hangs_at and asked >= hangs_at:
                await reader.read(1)  # until the client hangs up
                writer.close()
                return
            said = "done" if "tool_response" in bytes_.decode(body["token_ids"]) else SOLVE
            ids = bytes_.encode(said)
            content = [{"logprob": -0.5}] * len(ids)
            answer = {"choices": [{"token_ids": ids, "finish_reason": "stop", "logprobs": {"content": content}}]}
        text = json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 200 X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()
        writer.close()
        open_.discard(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def over_http(rolled: Any, url: str) -> HttpEngine:
    rolled.change(group_rule=GroupRule(size=2, keep_flat=True), groups=8, retries=4)
    engine = HttpEngine(url, vocab_size=ByteTokenizer().vocab_size, clock=rolled.clock)
    rolled.parts_change["engine"] = await engine.__aenter__()
    return engine


async def test_a_server_that_dies_in_the_middle_ends_every_trajectory_with_that_reason(rolled: Any) -> None:
    async with served(dies_at=12) as url:
        await over_http(rolled, url)
        await rolled.run()

    found = exact(rolled)
    assert found["failed"] > 4
    lost = [r for r in rolled.journal().trajectories.values() if r.reward is None]
    assert {(r.termination, r.failure) for r in lost} == {(Termination.ENGINE, Failure.INFRA)}
    assert all("no answer from" in r.detail for r in lost)
    assert rolled.books.budget.spent == {Spend.RETRY: 4, Spend.EXPLORE: 0}


async def test_a_server_that_stops_answering_costs_each_request_its_deadline_and_no_more(rolled: Any) -> None:
    rolled.bounds = replace(rolled.bounds, generate_s=30)
    async with served(hangs_at=12) as url:
        await over_http(rolled, url)
        await rolled.run()

    found = exact(rolled)
    assert found["failed"] > 4
    lost = [r for r in rolled.journal().trajectories.values() if r.reward is None]
    assert {(r.termination, r.failure) for r in lost} == {(Termination.ENGINE, Failure.INFRA)}
    assert all("no answer within 30 s" in r.detail for r in lost)


async def test_a_judge_that_hangs_gives_no_reward_after_its_deadline(rolled: Any) -> None:
    rolled.environment.faults.hold("score")
    rolled.change(groups=1, sync=SyncRule(groups=1), retries=0)
    rolled.bounds = replace(rolled.bounds, score_s=20)
    assert await rolled.run() == []

    assert exact(rolled) == {"failed": 2}
    record = rolled.journal().trajectories["run-0-0"]
    assert (record.reward, record.scored, record.failure) == (None, None, Failure.INFRA)
    assert "no verdict within 20 s" in record.detail
    assert record.termination is Termination.FINAL  # the policy did end; only the judge did not


@pytest.mark.parametrize("where", ["generate", "tool"])
async def test_one_member_that_never_ends_holds_its_group_no_longer_than_its_deadline(rolled: Any, where: str) -> None:
    rolled.change(group_rule=GroupRule(size=3), groups=2, sync=SyncRule(groups=1), holding=6, retries=0)
    rolled.bounds = replace(rolled.bounds, generate_s=30)
    if where == "tool":
        rolled.slow("run-0-2")

        def answers(task: str, member: int, attempt: int) -> Sequence[str]:
            return (SOLVE, FAIL, "done") if member == 2 else (FAIL if member else SOLVE, "done")

        rolled.answers = answers
    else:
        rolled.answers = lambda task, member, attempt: (FAIL if member % 2 else SOLVE, "done")
        rolled.script = lambda inner: lambda request, text: hang(inner, request, text)

    def hang(inner: Any, request: Request, text: str) -> Reply:
        reply: Reply = inner(request, text)
        return replace(reply, wait_s=1e9) if request.session == "run-0-2" else reply

    batches = await rolled.run()

    assert [len(b.samples) for b in batches] == ([3, 2] if batches[0].groups == ("run-1",) else [2, 3])
    assert exact(rolled) == {"accepted": 5, "failed": 1}
    record = rolled.journal().trajectories["run-0-2"]
    assert record.termination is (Termination.DEAD_TOOL if where == "tool" else Termination.ENGINE)
    assert record.reward is None


async def test_an_engine_that_hangs_at_the_end_of_a_trajectorys_time_is_no_time_limit(rolled: Any) -> None:
    """Its time would run out before the engine's deadline does: it is the engine's matter all the same, and no reward of 0."""

    def hang(inner: Any, request: Request, text: str) -> Reply:
        reply: Reply = inner(request, text)
        return replace(reply, wait_s=1e9) if request.session == "run-0-0" and request.labels["turn"] == "1" else reply

    async def slow(session: Any) -> None:
        await rolled.clock.sleep(200)

    rolled.tool.wait = slow
    rolled.tool.limit_s = 5000.0
    rolled.answers = lambda task, member, attempt: (FAIL, "done")
    rolled.script = lambda inner: lambda request, text: hang(inner, request, text)
    rolled.change(groups=1, sync=SyncRule(groups=1), retries=0, group_rule=GroupRule(size=2, keep_flat=True))
    rolled.bounds = replace(rolled.bounds, generate_s=500, trajectory_s=600)
    await rolled.run()

    record = rolled.journal().trajectories["run-0-0"]
    assert (record.termination, record.failure, record.reward) == (Termination.ENGINE, Failure.INFRA, None)
    assert exact(rolled)["failed"] == 1


@asynccontextmanager
async def behind_others(rolled: Any, *, seconds: float) -> AsyncIterator[Any]:
    """A run of one group whose model serves somebody else first."""

    async def others() -> None:
        async with rolled.loop.parts.limits.hold("model", "another", priority=9):
            await rolled.clock.sleep(seconds)

    rolled.slots = 1
    rolled.change(groups=1, sync=SyncRule(groups=1), group_rule=GroupRule(size=2, keep_flat=True), retries=0)
    async with rolled.ticking(2), rolled.open() as loop, asyncio.TaskGroup() as group:
        group.create_task(others())
        yield loop


async def test_a_trajectorys_time_is_its_own_and_not_that_of_the_lines_it_waits_in(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (FAIL if member else SOLVE, "done")
    rolled.bounds = replace(rolled.bounds, trajectory_s=2500)
    async with behind_others(rolled, seconds=2600) as loop:
        assert await loop.next_batch() is not None

    waited = rolled.journal().trajectories["run-0-0"]
    assert (waited.termination, waited.reward) == (Termination.FINAL, 1.0)
    assert waited.model_s > 2500


async def test_a_trajectory_that_works_longer_than_it_may_keeps_its_real_reward(rolled: Any) -> None:
    async def slow(session: Any) -> None:
        if session.trajectory_id == "run-0-1":
            await rolled.clock.sleep(1300)

    rolled.tool.wait = slow
    rolled.tool.limit_s = 5000.0
    rolled.answers = lambda task, member, attempt: (FAIL, SOLVE, FAIL, "done") if member else (SOLVE, "done")
    rolled.bounds = replace(rolled.bounds, trajectory_s=2500)
    async with behind_others(rolled, seconds=1) as loop:
        assert await loop.next_batch() is not None

    over = rolled.journal().trajectories["run-0-1"]
    assert (over.termination, over.failure, over.reward) == (Termination.TIME_LIMIT, Failure.VALID_HARD, 1.0)
    assert len(over.turns) == 2


async def test_a_trajectory_that_spends_twice_its_time_in_lines_has_no_reward(rolled: Any) -> None:
    rolled.answers = lambda task, member, attempt: (FAIL, "done")
    rolled.bounds = replace(rolled.bounds, trajectory_s=500)
    async with behind_others(rolled, seconds=2000) as loop:
        assert await loop.next_batch() is None

    found = rolled.journal().trajectories.values()
    assert {(r.termination, r.failure, r.reward) for r in found} == {(Termination.SATURATED, Failure.INFRA, None)}
    assert exact(rolled) == {"failed": 2}


async def test_what_has_ended_is_on_the_disk_also_where_the_run_is_stopped_while_it_waits_for_the_journal(rolled: Any) -> None:
    rolled.change(groups=1, sync=SyncRule(groups=1))
    async with rolled.ticking(), rolled.open() as loop:
        async with loop.parts.limits.hold("storage", "another"):
            assert await poll(lambda: true(loop.parts.limits.line("storage").waiting == 2), timeout=60)
            loop.stop("enough")
            await asyncio.sleep(0)
        assert await poll(lambda: true(loop.over), timeout=60)

    assert exact(rolled) == {"open": 2}
    assert {name: r.reward for name, r in rolled.journal().trajectories.items()} == {"run-0-0": 1.0, "run-0-1": 0.0}


async def test_what_its_end_ran_into_does_not_hide_that_a_trajectory_was_cancelled(rolled: Any) -> None:
    reached = asyncio.Event()

    async def hold(session: Any) -> None:
        async def broken(**_: Any) -> None:
            raise PoolBroken("the pool is gone")

        session.release = broken
        reached.set()
        await asyncio.Event().wait()

    rolled.tool.wait = hold
    rolled.change(groups=1, sync=SyncRule(groups=1))
    async with rolled.ticking(), rolled.open() as loop:
        await reached.wait()
        loop.stop("enough")
        assert await poll(lambda: true(loop.over), timeout=60)

    assert exact(rolled) == {"open": 2}


async def test_a_trainer_that_stops_reading_is_named_and_ends_the_run(rolled: Any) -> None:
    rolled.change(groups=20, patience=Patience(say_s=40, stop_s=200), sync=SyncRule(groups=2, max_gap=1))
    async with rolled.ticking(), rolled.open() as loop:
        assert await loop.next_batch() is not None
        assert await poll(lambda: true(rolled.books.stopped), timeout=60)
        with pytest.raises(RolloutStopped, match="has not asked for a batch"):
            await loop.next_batch()

    assert loop.watchdog.stalls[0].holds["trainer"].endswith("groups are ready")
    assert "not trained on yet" in loop.watchdog.stalls[0].holds["admission"]
    assert len(loop.shelf) <= loop.shelf.capacity
    found = exact(rolled)
    assert found["accepted"] == 4
    assert found["open"] == rolled.books.accounts.admitted - 4 <= 8


async def test_weights_that_do_not_load_leave_the_old_ones_and_the_run_goes_on(rolled: Any) -> None:
    rolled.change(groups=6, sync=SyncRule(groups=1))
    async with rolled.ticking(), rolled.open() as loop:
        rolled.engine.fail_publishing(EngineLost("no such file"))
        driven = await drive(loop, Stepping())

    assert exact(rolled) == {"accepted": 12}
    assert (loop.version, len(driven.updates), driven.failed_publications) == (5, 6, [])
    assert rolled.books.stopped == ""


async def test_weights_that_never_load_end_the_run_with_the_reason(rolled: Any) -> None:
    rolled.change(groups=20, sync=SyncRule(groups=1))
    async with rolled.ticking(), rolled.open() as loop:
        for _ in range(20):
            rolled.engine.fail_publishing(EngineLost("no such file"))
        driven = await drive(loop, Stepping())

    assert loop.version == 0
    assert len(driven.updates) == 3
    assert "weights did not load 3 times in a row: no such file" in rolled.books.stopped
    exact(rolled)


async def test_a_learner_that_works_longer_than_the_watchdog_waits_is_let_work(rolled: Any) -> None:
    class Slow(Stepping):
        async def update(self, batch: Batch) -> Update:
            await rolled.clock.sleep(500)
            return await super().update(batch)

    rolled.change(patience=Patience(say_s=40, stop_s=200))
    async with rolled.ticking(), rolled.open() as loop:
        driven = await drive(loop, Slow())

    assert len(driven.updates) == 2
    assert rolled.books.stopped == ""
    assert exact(rolled) == {"accepted": 8}


async def test_an_engine_that_takes_no_weights_costs_a_deadline(rolled: Any) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    rolled.change(groups=1, sync=SyncRule(groups=1), publish_s=30)
    async with rolled.ticking(), rolled.open() as loop:
        rolled.engine.publish = hang
        driven = await drive(loop, Stepping())

    assert "took no weights within 30 s (publish_s)" in driven.failed_publications[0]
    assert exact(rolled) == {"accepted": 2}


async def test_a_pool_that_does_not_tell_a_clearance_leaves_that_trajectory_out_and_no_other(rolled: Any) -> None:
    rolled.change(groups=1, sync=SyncRule(groups=1), group_rule=GroupRule(size=3))
    rolled.answers = lambda task, member, attempt: (FAIL if member else SOLVE, "done")
    async with rolled.ticking(), rolled.open() as loop:
        inner = rolled.pool.cleared

        async def cleared(trajectories: Sequence[str], **options: Any) -> Any:
            if "run-0-2" in trajectories:
                raise PoolBroken("its process is gone")
            return await inner(trajectories, **options)

        rolled.pool.cleared = cleared
        batch = await loop.next_batch()

    assert batch is not None
    assert sorted(s.trajectory.member for s in batch.samples) == [0, 1]
    assert exact(rolled) == {"accepted": 2, "failed": 1}
    assert rolled.journal().outcomes["run-0-2"].reason == "its clearance was not decided in time"


@pytest.mark.parametrize("reward", [math.nan, math.inf])
async def test_a_reward_that_is_no_number_is_in_no_batch(rolled: Any, reward: float) -> None:
    rolled.parts_change["reward"] = lambda score, draft: reward if draft.id == "run-0-0" else score.reward
    rolled.change(groups=1, sync=SyncRule(groups=1), group_rule=GroupRule(size=3))
    rolled.answers = lambda task, member, attempt: (FAIL if member == 1 else SOLVE, "done")
    (batch,) = await rolled.run()

    assert sorted(s.trajectory.member for s in batch.samples) == [1, 2]
    assert exact(rolled) == {"accepted": 2, "failed": 1}
    assert "it lacks reward" in rolled.journal().outcomes["run-0-0"].reason


async def test_a_learner_that_hangs_ends_the_run_with_the_reason(rolled: Any) -> None:
    class Hanging:
        name = "hanging"

        async def update(self, batch: Batch) -> Update:
            await asyncio.Event().wait()
            raise AssertionError

    async with rolled.ticking(), rolled.open() as loop:
        await drive(loop, Hanging(), limit_s=0.05)

    assert "made no update of run-batch-1 within 0.05 s" in rolled.books.stopped
    assert exact(rolled)["accepted"] == 4


async def test_a_token_outside_the_vocabulary_never_reaches_the_engine_and_is_not_tried_again(rolled: Any) -> None:
    class Wrong(ChatPolicy):
        def first(self, task: TaskSpec, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
            ids = super().first(task, tools)
            return (*ids, 100_000) if task.id == "task-0" else ids

    rolled.parts_change["policy"] = Wrong(ByteTokenizer())
    await rolled.run()

    assert exact(rolled) == {"accepted": 4, "failed": 2, "open": 2}
    wrong = [r for r in rolled.journal().trajectories.values() if r.task == "task-0"]
    assert {(r.termination, r.failure, r.reward) for r in wrong} == {(Termination.DATA, Failure.DATA, None)}
    assert "outside the vocabulary" in wrong[0].detail
    assert rolled.books.budget.spent[Spend.RETRY] == 0


async def test_a_tool_that_faults_is_asked_again_from_the_retry_budget_alone(rolled: Any) -> None:
    faults = {"run-0-0": 1, "run-1-0": 99}

    async def flaky(session: Any) -> None:
        if faults.get(session.trajectory_id, 0):
            faults[session.trajectory_id] -= 1
            raise ToolFault("503")

    rolled.tool.wait = flaky
    rolled.answers = lambda task, member, attempt: (SOLVE, FAIL if member else SOLVE, "done")
    await rolled.run()

    records = rolled.journal().trajectories
    assert (records["run-0-0"].reward, records["run-0-0"].actions[0].retries) == (1.0, 1)
    assert (records["run-1-0"].termination, records["run-1-0"].failure) == (Termination.DEAD_TOOL, Failure.INFRA)
    assert rolled.books.budget.spent[Spend.EXPLORE] == 0
    exact(rolled)


async def test_an_act_that_got_no_answer_before_the_policy_ended_is_no_failure_of_the_policy(rolled: Any) -> None:
    async def down(session: Any) -> None:
        if session.trajectory_id in ("run-0-0", "run-0-1"):
            raise ToolFault("503")

    rolled.tool.wait = down
    rolled.change(groups=2, sync=SyncRule(groups=1), retries=0, group_rule=GroupRule(size=2, keep_flat=True))
    rolled.answers = lambda task, member, attempt: (SOLVE, "I have done it")
    batches = await rolled.run()

    assert [batch.groups for batch in batches] == [("run-1",)]
    record = rolled.journal().trajectories["run-0-0"]
    assert (record.termination, record.failure, record.reward) == (Termination.DEAD_TOOL, Failure.INFRA, None)
    assert "(final) after an act without an answer of do: 503" in record.detail
    assert exact(rolled) == {"accepted": 2, "failed": 2}


async def test_a_fault_of_a_plug_in_ends_its_trajectory_and_no_other(rolled: Any) -> None:
    async def broken(session: Any) -> None:
        if session.trajectory_id == "run-0-0":
            raise KeyError("a fault of the tool's author")

    rolled.tool.wait = broken
    rolled.change(retries=0)
    await rolled.run()

    record = rolled.journal().trajectories["run-0-0"]
    assert (record.termination, record.reward) == (Termination.FAULT, None)
    assert "KeyError" in record.detail
    assert exact(rolled) == {"accepted": 4, "failed": 1, "dropped": 1, "open": 2}


async def test_a_cancelled_run_gives_everything_back(rolled: Any) -> None:
    rolled.slow("run-0-0")
    reached = asyncio.Event()

    async def run() -> None:
        async with rolled.open() as loop:
            await poll(lambda: true(loop.parts.board.moves >= 20), timeout=60)
            reached.set()
            async for _ in loop.batches():
                pass

    task = asyncio.create_task(run())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    exact(rolled)
    assert not rolled.runtime.machine.running
