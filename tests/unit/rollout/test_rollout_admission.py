"""What may run at once, who goes first, what is refused, and why a task was chosen."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.admission.budgets import Budget, Spend
from rollout.admission.limits import MODEL, Dependency, Limits
from rollout.admission.line import Line
from rollout.admission.planner import FLOOR, Planner, decisions
from rollout.admission.remaining import Remaining, Serve
from rollout.admission.score import TERMS, Seen, Weights, terms
from rollout.errors import Saturated
from rollout.record import Trajectory, Turn
from rollout.terms import Failure
from sandbox.errors import EnvironmentInvalid, RecordMissing
from sandbox.model import TaskSpec
from sandbox.testing import FakeClock


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_go_by_priority_and_then_by_arrival() -> None:
    line = Line("model", limit=1, waiting=10)
    await line.acquire()
    order: list[str] = []

    async def ask(name: str, priority: int) -> None:
        await line.acquire(priority)
        order.append(name)
        line.release()

    async with asyncio.TaskGroup() as group:
        for name, priority in (("a", 0), ("b", 0), ("urgent", 5), ("c", 0)):
            group.create_task(ask(name, priority))
            await settle()
        line.release()
    assert order == ["urgent", "a", "b", "c"]
    assert (line.held, line.waiting) == (0, 0)


async def test_a_full_line_refuses_at_once() -> None:
    line = Line("tool", limit=1, waiting=1)
    await line.acquire()
    waiting = asyncio.create_task(line.acquire())
    await settle()

    assert line.full
    with pytest.raises(Saturated, match="all 1 places are taken and 1 wait"):
        await line.acquire()
    line.release()
    await waiting


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_cancelled_waiter_loses_no_place(handed_over: bool) -> None:
    line = Line("model", limit=1, waiting=5)
    await line.acquire()
    waiting = asyncio.create_task(line.acquire())
    await settle()
    if handed_over:
        line.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not handed_over:
        line.release()

    await line.acquire()
    assert (line.held, line.waiting) == (1, 0)


@pytest.mark.parametrize("broken", [{"owner": " "}, {"limit": 0}, {"waiting": -1}, {"wait_s": 0}])
def test_a_dependency_has_an_owner_a_limit_and_a_bounded_line(broken: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentInvalid):
        Dependency(**{"name": "x", "owner": "me", "limit": 1, "waiting": 0, **broken})


async def test_a_wait_for_a_place_has_a_deadline_and_is_counted() -> None:
    clock = FakeClock()
    limits = Limits([Dependency(name=MODEL, owner="me", limit=1, waiting=5, wait_s=30)], clock=clock)

    async def late() -> None:
        async with limits.hold(MODEL, "late"):
            raise AssertionError("the place was never free")

    async with limits.hold(MODEL, "first") as place:
        assert place.queue_s == 0
        waiting = asyncio.create_task(late())
        await settle()
        assert limits.held() == {MODEL: {"first": 0.0}}
        await clock.advance(31)
        await settle()
        with pytest.raises(TimeoutError):
            await waiting
    shown = limits.shown()[MODEL]
    assert (shown["owner"], shown["taken"], shown["most_held"]) == ("me", 1, 1)
    assert limits.line(MODEL).held == 0


async def test_a_rate_lets_no_more_begin_than_it_says() -> None:
    clock = FakeClock()
    limits = Limits([Dependency(name=MODEL, owner="me", limit=9, waiting=9, per_s=2)], clock=clock)
    began: list[float] = []

    async def one(n: int) -> None:
        async with limits.hold(MODEL, str(n)):
            began.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(one(n))
        await settle()
        cancelled = asyncio.create_task(one(9))
        await settle()
        cancelled.cancel()
        for _ in range(10):
            await clock.advance(0.5)
    assert began == [0, 0.5, 1, 1.5, 2]
    assert limits.line(MODEL).held == 0


async def test_a_slot_held_during_a_tool_wait_is_measured() -> None:
    clock = FakeClock()
    limits = Limits([Dependency(name=MODEL, owner="me", limit=2, waiting=5)], clock=clock)
    async with limits.tool_wait("good"):
        await clock.advance(5)
    assert limits.slot_held_during_tool_wait_s == 0
    async with limits.hold(MODEL, "bad"), limits.tool_wait("bad"):
        await clock.advance(3)
    assert limits.slot_held_during_tool_wait_s == 3
    async with limits.tool_wait("sly"):
        await clock.advance(1)
        async with limits.hold(MODEL, "sly"):
            await clock.advance(2)
    assert limits.slot_held_during_tool_wait_s == 5


@given(st.lists(st.sampled_from(list(Spend)), max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_budgets_never_borrow(spends: list[Spend], retries: int, alternatives: int) -> None:
    run = Budget(retries=4, alternatives=3)
    own = Budget(retries=retries, alternatives=alternatives, within=run)
    given_ = Counter(kind for kind in spends if own.spend(kind))

    assert given_[Spend.RETRY] == min(spends.count(Spend.RETRY), retries, 4)
    assert given_[Spend.EXPLORE] == min(spends.count(Spend.EXPLORE), alternatives, 3)
    assert run.spent == own.spent == {Spend.RETRY: given_[Spend.RETRY], Spend.EXPLORE: given_[Spend.EXPLORE]}


def tasks(**families: int) -> list[TaskSpec]:
    return [
        TaskSpec(id=f"{name}-{n}", family=name, difficulty="easy", split="train", prompt="")
        for name, count in families.items()
        for n in range(count)
    ]


def test_the_score_is_the_sum_of_the_terms_that_the_issue_names() -> None:
    task = Seen(admitted=3, last_version=2, last_failed=True, passed_by=7)
    family = Seen(scored=10, failed=1, finished=10, env_s=100)
    every = Seen(finished=20, env_s=100)
    found = terms(task, family, every, family_name="rare", version=4, weights=Weights(families={"rare": 0.5}))

    assert found == {
        "coverage": 0.25,
        "failure_rarity": 0.45,
        "freshness": 0.25,
        "family": 0.5,
        "cost": -0.125,
        "age": pytest.approx(0.7),
    }
    assert tuple(found) == TERMS


def test_no_family_starves_under_an_adversarial_score() -> None:
    loved = tasks(loved=2, hated=1, costly=1)
    planner = Planner(loved, weights=Weights(age=0, coverage=0, freshness=0, families={"loved": 1.0}), floor=8)
    chosen = []
    for _ in range(80):
        task, decision = planner.choose(version=0)
        planner.admitted(task, decision)
        chosen.append((task.family, decision.by))

    for start in range(len(chosen) - 8):
        assert {"hated", "costly"} <= {family for family, _ in chosen[start : start + 9]}
    assert {family for family, by in chosen if by == FLOOR} == {"hated", "costly"}


def test_ageing_alone_brings_every_task_in() -> None:
    planner = Planner(tasks(only=6), weights=Weights(coverage=0, freshness=0, age=0.01))
    chosen = set()
    for _ in range(6):
        task, decision = planner.choose(version=0)
        planner.admitted(task, decision)
        chosen.add(task.id)
    assert len(chosen) == 6


def test_an_even_planner_brings_every_task_before_any_comes_again_and_others_do_not() -> None:
    """A family of one task: its floor is due long before those of the large family have all come."""

    def chosen(*, even: bool) -> list[str]:
        planner = Planner(tasks(one=1, large=15), floor=4, even=even)
        found = []
        for _ in range(32):
            task, decision = planner.choose(version=0)
            planner.admitted(task, decision)
            planner.observed(task.id, task.family, success=task.family == "one", env_s=1.0)
            found.append(task.id)
        return found

    even = chosen(even=True)
    assert len(set(even[:16])) == len(set(even[16:])) == 16
    assert len(set(chosen(even=False)[:16])) < 16


def ran(family: str, *, turns: int, turn_s: float = 1.0, **fields: Any) -> Trajectory:
    made = tuple(Turn(start=0, end=0, finish="stop", at=n * turn_s) for n in range(turns))
    whole: dict[str, Any] = {"id": "t", "run": "r", "group": "g", "member": 0, "attempt": 0, "environment": "e", "task": "t"}
    return Trajectory(**(whole | {"family": family, "turns": made, "duration_s": turns * turn_s} | fields))


def test_what_is_left_is_expected_from_those_of_the_family_that_came_as_far() -> None:
    known = Remaining()
    assert known.expected_s("f", turns=0, spent_s=0.0) is None
    for turns in (2, 10):
        known.saw(ran("f", turns=turns))
    known.saw(ran("f", turns=1, failure=Failure.INFRA))  # cut short: it says nothing of the others

    assert known.expected_s("f", turns=0, spent_s=0.0) == 6.0
    assert known.expected_s("f", turns=4, spent_s=4.0) == 6.0  # only the long one came here
    assert known.expected_s("f", turns=30, spent_s=30.0) == 30.0  # further than all: as long again
    assert known.shown() == {"f": {"seen": 2, "expected_s": 6.0, "mean_error_s": 8.0}}


async def _makespan(serve: Serve) -> float:
    """Two slots, eight short trajectories and behind them one of twelve turns; the families are known."""
    clock, known = FakeClock(), Remaining(serve=serve)
    known.saw(ran("short", turns=4))
    known.saw(ran("long", turns=12))
    limits = Limits([Dependency(name=MODEL, owner="tests", limit=2, waiting=99, wait_s=1e9)], clock=clock)
    ends: list[float] = []

    async def one(name: str, family: str, turns: int) -> None:
        began = clock.monotonic()
        for turn in range(turns):
            priority = known.priority(family, turns=turn, spent_s=clock.monotonic() - began)
            async with limits.hold(MODEL, name, priority=priority):
                await clock.sleep(1.0)
        ends.append(clock.monotonic() - began)

    async with asyncio.TaskGroup() as tasks:
        for n in range(8):
            tasks.create_task(one(f"short-{n}", "short", 4))
        tasks.create_task(one("long", "long", 12))
        while len(ends) < 9:
            await clock.advance(1.0)
            for _ in range(5):
                await asyncio.sleep(0)
    return max(ends)


async def test_the_longest_first_ends_a_heavy_tail_earlier() -> None:
    """44 turns on two slots take 22 s at best; whoever is last in line and long begins when the others are done."""
    assert await _makespan(Serve.LONGEST) == 22.0
    assert await _makespan(Serve.BEGUN) > 24.0


def test_a_decision_can_be_printed_again(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    planner = Planner(tasks(a=1, b=1), log=log)
    for _ in range(3):
        task, decision = planner.choose(version=1)
        planner.admitted(task, decision)

    found = decisions(log, "a-0")
    assert [d.number for d in found] == [1, 3]
    assert found[0].score == pytest.approx(sum(found[0].terms.values()))
    assert found[0].runner_up == "b-0"
    with pytest.raises(RecordMissing, match="admitted no task c-0"):
        decisions(log, "c-0")
    with pytest.raises(RecordMissing, match="is not there"):
        decisions(tmp_path / "nothing", "a-0")
