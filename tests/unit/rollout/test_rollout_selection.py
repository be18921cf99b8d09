"""Selection: the estimate, the band, revisits, deferrals, what is held out, and that scouting is charged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.batches import SyncRule
from rollout.drive import Driven
from rollout.groups import SCOUTED, GroupRule
from rollout.meters.events import EVENTS, Events
from rollout.selection.belief import Belief
from rollout.selection.selector import Purpose, SelectionRule, Selector, Standing
from rollout.summary import summarise
from rollout.terms import State
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec


def task(name: str, *, difficulty: str = "medium", split: str = "train", family: str = "f") -> TaskSpec:
    return TaskSpec(id=name, family=family, difficulty=difficulty, split=split, prompt="", success={})


def scouted(selector: Selector, name: str, *results: bool) -> Standing:
    assert selector.candidates()[name] is Purpose.SCOUT
    assert selector.chose(name) is Purpose.SCOUT
    selector.observed(name, results)
    return selector.standing(name)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.booleans(), max_size=12), st.floats(0.01, 0.99))
def test_the_posterior_is_a_distribution(results: list[bool], rate: float) -> None:
    """Against the integral of the Beta density."""
    belief = Belief()
    for result in results:
        belief.saw(result)
    s, n = sum(results), len(results)
    steps = 4000
    density = [(x / steps) ** s * (1 - x / steps) ** (n - s) for x in range(steps + 1)]
    whole, part = math.fsum(density), math.fsum(density[math.ceil(rate * steps) :])

    assert belief.above(rate) == pytest.approx(part / whole, abs=0.01)
    assert belief.above(rate) + belief.below(rate) == pytest.approx(1)
    assert belief.mean == pytest.approx((s + 1) / (n + 2))


@pytest.mark.parametrize(
    ("results", "standing"),
    [
        ((True, True, True), Standing.RETIRED),
        ((False, False, False), Standing.DEFERRED),
        ((True, False, True), Standing.ACTIVE),
        ((False, True, False), Standing.ACTIVE),
    ],
)
def test_only_the_middle_band_gets_whole_groups(results: tuple[bool, ...], standing: Standing) -> None:
    selector = Selector([task("a")])

    assert scouted(selector, "a", *results) is standing
    assert selector.candidates() == ({"a": Purpose.TRAIN} if standing is Standing.ACTIVE else {})
    assert not selector.waits


def test_a_whole_group_that_shows_mastery_retires_its_task() -> None:
    selector = Selector([task("a")])
    scouted(selector, "a", True, False, True)
    for _ in range(2):
        assert selector.chose("a") is Purpose.TRAIN
        selector.observed("a", [True] * 4)

    assert selector.standing("a") is Standing.RETIRED
    assert selector.shown()["retired"][0]["reason"] == "mastered: 10 of 11 succeeded"


def test_a_retired_task_is_revisited_and_a_regression_brings_it_back() -> None:
    selector = Selector([task("a"), task("b")], rule=SelectionRule(revisit=3))
    scouted(selector, "a", True, True, True)
    scouted(selector, "b", True, False)
    assert selector.candidates() == {"b": Purpose.TRAIN}
    selector.chose("b")
    selector.observed("b", [True, False])

    assert selector.candidates() == {"a": Purpose.SCOUT}  # the third decision was made: time to look again
    assert scouted(selector, "a", False, True, False) is Standing.ACTIVE
    assert selector.candidates() == {"a": Purpose.TRAIN, "b": Purpose.TRAIN}
    assert [h["standing"] for h in selector.history if h["task"] == "a"] == ["retired", "active"]


def test_a_hopeless_task_is_deferred_with_the_reason_and_an_easier_one_named() -> None:
    selector = Selector(
        [task("hard", difficulty="hard"), task("easy", difficulty="easy"), task("other", difficulty="easy", family="g")]
    )
    scouted(selector, "hard", False, False, False)
    (deferred,) = selector.shown()["deferred"]

    assert deferred["reason"] == "never solved: 0 of 3 succeeded"
    assert deferred["replaced_by"] == "easy"


def test_a_task_can_be_rewritten_and_the_new_one_is_scouted() -> None:
    rewritten = task("a-with-a-hint", difficulty="easy")
    selector = Selector([task("a")], replace=lambda _: rewritten)
    scouted(selector, "a", False, False, False)

    assert selector.candidates() == {"a-with-a-hint": Purpose.SCOUT}
    held_out = Selector([task("a")], replace=lambda _: task("x", split="held-out"))
    with pytest.raises(EnvironmentInvalid, match="held out"):
        scouted(held_out, "a", False, False, False)


def test_what_is_held_out_never_enters() -> None:
    with pytest.raises(EnvironmentInvalid, match="1 held-out tasks were given to selection, b"):
        Selector([task("a"), task("b", split="held-out")])


def test_scouts_that_the_machine_failed_are_sent_again_and_not_for_ever() -> None:
    selector = Selector([task("a")])
    assert scouted(selector, "a") is Standing.UNKNOWN
    assert scouted(selector, "a") is Standing.UNKNOWN
    assert scouted(selector, "a") is Standing.DEFERRED


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.booleans(), max_size=4)), max_size=40))
def test_every_task_stands_somewhere_and_only_open_ones_are_offered(moves: list[tuple[int, list[bool]]]) -> None:
    selector = Selector([task(f"t{n}") for n in range(4)], rule=SelectionRule(revisit=4))
    for number, results in moves:
        offered = selector.candidates()
        if (name := f"t{number}") not in offered:
            continue
        assert selector.chose(name) is offered[name]
        selector.observed(name, results)
        shown = selector.shown()
        assert sum(shown["tasks"].values()) == 4
        assert shown["tasks"]["scouted"] == 0


async def test_a_run_with_selection_trains_on_the_band_only_and_charges_its_scouts(rolled: Any) -> None:
    """task-0 is always solved, task-1 never, the others by every second member."""
    rolled.change(groups=4, sync=SyncRule(groups=2), group_rule=GroupRule(size=2))
    solve, fail = (rolled.answers("task-2", member, 0) for member in (0, 1))

    def answers(name: str, member: int, attempt: int) -> Any:
        return {"task-0": solve, "task-1": fail}.get(name, solve if member % 2 == 0 else fail)

    rolled.answers = answers
    rolled.selector = Selector(rolled.tasks, rule=SelectionRule(scouts=3, revisit=0))
    rolled.meters = Events(rolled.clock, rolled.home / EVENTS)
    batches = await rolled.run()
    summary = summarise(rolled.loop, Driven(), in_force={})

    assert {s.trajectory.task for b in batches for s in b.samples} <= {"task-2", "task-3"}  # which of them, goes by their worth
    assert {d["task"] for d in summary["selection"]["retired"]} <= {"task-0"}
    assert {d["task"] for d in summary["selection"]["deferred"]} <= {"task-1"}
    assert summary["selection"]["tasks"]["active"] >= 1
    assert summary["selection"]["trajectories"]["train"] == 8
    scouts = {r.id for r in rolled.books.records.values() if r.extra["purpose"] == "scout"}
    assert len(scouts) == summary["selection"]["trajectories"]["scout"] >= 3
    assert {rolled.books.outcomes[t].reason for t in scouts} == {SCOUTED}
    assert scouts == set(rolled.books.accounts.of(State.DROPPED))
    assert summary["cost_per_accepted"]["scouting_s"] == pytest.approx(
        sum(rolled.books.records[t].duration_s for t in scouts), abs=0.01
    )
    assert summary["states"]["accepted"] == 8


async def test_a_run_ends_when_selection_finds_nothing_worth_a_group(rolled: Any) -> None:
    solve = rolled.answers("task-0", 0, 0)
    rolled.answers = lambda name, member, attempt: solve
    rolled.selector = Selector(rolled.tasks, rule=SelectionRule(scouts=2, band=(0.2, 0.6), revisit=0))
    assert await rolled.run() == []

    assert rolled.selector.shown()["tasks"]["retired"] == 4
