"""Groups, advantages, batches, accounts and long runs: the pure rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.accounting import Accounts
from rollout.batches import Shelf, SyncRule, by_gap
from rollout.classify import Signs, classify
from rollout.errors import Saturated
from rollout.groups import FLAT, Group, GroupRule, advantages, advantages_of, refusal
from rollout.record import CONTEXT, Action, Trajectory, Turn
from rollout.terms import NEXT, Late, State, Termination
from sandbox.model import TaskSpec

TASK = TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="")


def record(name: str, reward: float | None = 1.0, *, version: int = 0) -> Trajectory:
    return Trajectory(
        id=name,
        run="r",
        group="g",
        member=0,
        attempt=0,
        environment="e",
        task="t",
        family="f",
        tokens=(1, 2),
        mask=(0, 1),
        logprobs=(0.0, -0.5),
        versions=(CONTEXT, version),
        turns=(Turn(start=1, end=2, finish="stop"),),
        reward=reward,
    )


def group(number: int = 0, rewards: Sequence[float] = (1.0, 0.0), *, version: int = 0) -> Group:
    made = Group(id=f"g{number}", number=number, task=TASK, size=len(rewards), began=0)
    for index, reward in enumerate(rewards):
        made.survive(index, record(f"g{number}-{index}", reward, version=version))
    return made


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.booleans())
def test_advantages_are_relative_to_the_group(rewards: list[float], scale: bool) -> None:
    found = advantages(rewards, scale=scale)

    assert len(found) == len(rewards)
    assert sum(found) == pytest.approx(0, abs=1e-6)
    if len(set(rewards)) == 1:
        assert max(map(abs, found)) < 1e-9


def test_members_end_once_and_only_survivors_count() -> None:
    made = Group(id="g", number=0, task=TASK, size=3, began=0)
    made.survive(0, record("a", 1.0))
    made.lose(1, "infra")
    assert not made.final
    with pytest.raises(ValueError, match="has ended already"):
        made.survive(1, record("b"))
    with pytest.raises(ValueError, match="does not exist"):
        made.lose(3, "x")
    made.survive(2, record("c", 0.0))

    assert made.final
    assert dict(advantages_of(made, GroupRule(size=3))) == {"a": 0.5, "c": -0.5}


@pytest.mark.parametrize(
    ("rewards", "rule", "why"),
    [
        ((1.0, 0.0), GroupRule(size=2), None),
        ((1.0,), GroupRule(size=2), "fewer than 2 members survived"),
        ((1.0, 1.0), GroupRule(size=2), FLAT),
        ((1.0, 1.0), GroupRule(size=2, keep_flat=True), None),
        ((1.0,), GroupRule(size=2, min_survivors=1, keep_flat=True), None),
    ],
)
def test_what_may_ship(rewards: tuple[float, ...], rule: GroupRule, why: str | None) -> None:
    assert refusal(group(rewards=rewards), rule) == why


def test_a_group_shares_its_oldest_members_version() -> None:
    made = Group(id="g", number=0, task=TASK, size=2, began=0)
    made.survive(0, record("a", version=5))
    made.survive(1, record("b", version=3))

    assert made.oldest_version == 3
    assert made.take_out("b") is not None
    assert made.take_out("b") is None
    assert (made.oldest_version, made.final) == (5, True)


@pytest.mark.parametrize(("completeness", "least"), [(1.0, 4), (0.75, 3), (0.7, 3), (0.5, 2), (0.01, 1)])
def test_a_batch_is_cut_at_the_threshold_and_never_below(completeness: float, least: int) -> None:
    rule = SyncRule(groups=4, completeness=completeness)
    shelf = Shelf(rule, capacity=8)
    for number in range(least):
        assert shelf.cut(last=True) is None
        shelf.put(group(number))

    assert rule.least == least
    assert len(shelf.cut() or ()) == least
    assert len(shelf) == 0


def test_the_oldest_go_first_and_a_full_shelf_takes_no_more() -> None:
    shelf = Shelf(SyncRule(groups=2), capacity=3)
    for number, version in ((0, 3), (1, 1), (2, 2)):
        shelf.put(group(number, version=version))
    with pytest.raises(Saturated):
        shelf.put(group(9))

    assert [g.id for g in shelf.cut() or ()] == ["g1", "g2"]
    assert shelf.cut() is None


def test_what_is_beyond_the_gap_is_taken_out_whatever_the_order() -> None:
    shelf = Shelf(SyncRule(groups=1, max_gap=2), capacity=8)
    for number, version in ((0, 4), (1, 1), (2, 2), (3, 1)):
        shelf.put(group(number, version=version))

    assert [g.id for g in shelf.too_old(4)] == ["g1", "g3"]
    assert [g.id for g in shelf.waiting()] == ["g0", "g2"]


@pytest.mark.parametrize(("late", "missed"), [(Late.NEXT, False), (Late.KEEP_OFF_POLICY, False), (Late.DISCARD, True)])
def test_a_group_whose_batch_went_without_it(late: Late, missed: bool) -> None:
    shelf = Shelf(SyncRule(groups=2, completeness=0.5, late=late), capacity=8)
    shelf.put(group(1))
    assert shelf.cut() is not None

    assert shelf.missed(group(0)) is missed
    assert not shelf.missed(group(2))


def test_weights_fall_with_the_gap() -> None:
    assert [by_gap(g) for g in (0, 1, 3)] == [1, 0.5, 0.25]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(list(State))), max_size=40))
def test_accounts_add_up_whatever_is_asked_of_them(moves: list[tuple[int, State]]) -> None:
    accounts = Accounts()
    for number in range(10):
        accounts.admit(str(number))
    for number, state in moves:
        before = accounts.state(str(number))
        if state in NEXT[before]:
            accounts.settle(str(number), state, "because")
        else:
            with pytest.raises(ValueError, match="cannot become"):
                accounts.settle(str(number), state)
            assert accounts.state(str(number)) is before
    accounts.refuse("full", 3)

    assert sum(accounts.counts().values()) == accounts.admitted == 10
    assert set(accounts.counts()) == {s.value for s in State}
    assert accounts.refused == {"full": 3}
    with pytest.raises(ValueError, match="was admitted already"):
        accounts.admit("0")


def act(tool: str = "sql", *, digest: str = "a", error: str = "", malformed: bool = False, timed_out: bool = False) -> Action:
    return Action(turn=0, tool=tool, digest=digest, error=error, malformed=malformed, timed_out=timed_out, ok=not error)


BAD = act("", malformed=True, error="not JSON")


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([], None),
        ([act(), act(digest="b"), act()], None),
        ([act(), act(), act()], Termination.LOOP),
        ([act(digest="x"), act(), act("ls"), act(), act("ls"), act(), act("ls")], Termination.LOOP),
        ([act(), act(), act("ls")], None),
        ([BAD, BAD], None),
        ([BAD, BAD, BAD], Termination.MALFORMED),
        ([BAD, BAD, act(), BAD], None),
        ([act(error="503")], None),
        ([act(error="503"), act("ls"), act(error="503", digest="b")], Termination.DEAD_TOOL),
        ([act(error="503"), act(digest="b"), act(error="503")], None),
        ([act(timed_out=True, digest=str(n)) for n in range(3)], None),  # commands that run long are the policy's own matter
    ],
)
def test_long_runs_are_told_apart(actions: list[Action], expected: Termination | None) -> None:
    found = classify(actions, Signs())

    assert (found and found[0]) == expected


def test_a_record_whose_columns_differ_in_length_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        replace(record("x"), mask=(1,))
