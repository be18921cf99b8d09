"""The search of `autoclave bisect`, over worlds in which what each action leaves is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.bisect import Budget, Found, Once, Search, Segment, Sought, Worn
from envs.bisect.search import EACH, Plan
from sandbox.actions import ActionKind, RecordedAction

FIELD = "db/rows"
SOUGHT = Sought(names=frozenset({FIELD}))


def did(number: int, what: str) -> RecordedAction:
    return RecordedAction(number=number, kind=ActionKind.RUN, argv=(what,))


def segments(*trajectories: Sequence[str]) -> list[Segment]:
    return [
        Segment(trajectory=f"t-{n}", actions=tuple(did(i, what) for i, what in enumerate(whats)))
        for n, whats in enumerate(trajectories, 1)
    ]


@dataclass
class World:
    """`leak` leaves the field at the reset, and `leak:KEY` does where `KEY` was kept: by a trajectory (`keep:KEY`, a reset does not
    touch it) or by an action of the same one (`set:KEY`, gone with the reset). `undo` takes back a leak of its own trajectory. What
    `late` leaves shows only after the next reset. After `block` only `leak:key` leaves anything."""

    sought: Sought = SOUGHT
    by_itself: frozenset[str] = frozenset()
    wears: int = 0  # after so many resets the field differs, whatever was done
    flaky: int = 0  # how many replays leave something, then none does any more
    replays: int = 0
    seen: list[list[list[str]]] = field(default_factory=list)

    async def first(self, plan: Plan, sought: Sought) -> tuple[int, frozenset[str]] | None:
        self.replays += 1
        for number, differs in enumerate(self._replay(plan)):
            if found := sought.among(differs):
                return number, found
        return None

    async def hits(self, plan: Plan, sought: Sought) -> frozenset[str]:
        self.replays += 1
        return sought.among([*self._replay(plan)][-1] if plan else self.by_itself)

    def _replay(self, plan: Plan) -> list[frozenset[str]]:
        self.seen.append([[a.argv[0] for a in s.actions] for s in plan])
        kept, differs, results, due = set[str](), set(self.by_itself), list[frozenset[str]](), False
        for number, segment in enumerate(plan, 1):
            differs |= {FIELD} if due or 0 < self.wears <= number else set()
            own, leaks = set[str](), False
            for action in segment.actions:
                verb, _, key = action.argv[0].partition(":")
                if verb == "keep":
                    kept.add(key)
                elif verb == "set":
                    own.add(key)
                elif verb == "block":
                    own.add("block")
                elif verb == "leak" and (key in kept | own if key else "block" not in own):
                    leaks = True
                elif verb == "undo":
                    leaks = False
                elif verb == "late":
                    due = True
                elif verb == "other":
                    differs.add("db/other")
            if leaks and (not self.flaky or self.replays <= self.flaky):
                differs.add(FIELD)
            results.append(frozenset(differs))
        return results


async def searched(history: list[Segment], *, suspects: int | None = None, budget: int = 200, world: World | None = None) -> object:
    search = Search(world or World(), SOUGHT, Budget(left=budget))
    return await search.run(history, suspects=len(history) if suspects is None else suspects)


def answer(found: object) -> tuple[int, int, list[list[str]]]:
    assert isinstance(found, Found), found
    return found.segment, found.action, [[a.argv[0] for a in s.actions] for s in found.plan]


async def test_the_first_trajectory_and_action_are_named_and_nothing_else_is_needed() -> None:
    found = await searched(segments(["a", "b"], ["other", "c", "leak", "d"], ["leak"]))

    assert answer(found) == (1, 2, [["leak"]])
    assert isinstance(found, Found)
    assert (found.fields, found.first, found.minimal) == (frozenset({FIELD}), True, True)


async def test_an_action_that_needs_one_before_it_keeps_it() -> None:
    found = await searched(segments(["a"], ["b", "set:key", "c", "d", "leak:key", "e"]))

    assert answer(found) == (1, 4, [["set:key", "leak:key"]])


async def test_an_action_is_not_left_out_where_another_then_leaves_the_same_without_the_culprit() -> None:
    found = await searched(segments(["block", "leak", "set:key", "leak:key"]))

    assert answer(found) == (0, 3, [["set:key", "leak:key"]])
    found = await searched(segments(["block", "leak", "leak:block"]))
    assert answer(found) == (0, 2, [["block", "leak:block"]])


async def test_a_leak_that_an_earlier_trajectory_made_possible_keeps_that_trajectory() -> None:
    found = await searched(segments(["a"], ["b", "keep:key", "c"], ["d"], ["e", "leak:key"]))

    assert answer(found) == (3, 1, [["keep:key"], ["leak:key"]])


async def test_what_came_before_the_window_is_replayed_only_where_the_window_alone_leaves_nothing() -> None:
    history = segments(["keep:key"], ["a"], ["leak:key"])
    world = World()

    assert answer(await searched(history, suspects=1, world=world)) == (2, 0, [["keep:key"], ["leak:key"]])
    assert world.seen[0] == [["leak:key"]]

    world = World()
    assert answer(await searched(segments(["leak"], ["leak"]), suspects=1, world=world)) == (1, 0, [["leak"]])
    assert ["leak"] in world.seen[0]
    assert len(world.seen[0]) == 1


async def test_other_differences_are_not_taken_for_the_one_that_is_sought() -> None:
    assert await searched(segments(["other"], ["other", "a"])) is None


async def test_a_leak_that_is_taken_back_within_its_trajectory_is_none() -> None:
    assert answer(await searched(segments(["leak", "undo"], ["leak", "undo", "leak", "undo", "leak"]))) == (1, 0, [["leak"]])


async def test_what_shows_a_reset_later_is_not_blamed_on_who_came_in_between() -> None:
    assert answer(await searched(segments(["a", "late", "b"], ["c", "d"], ["e"]))) == (0, 1, [["late"], []])
    assert answer(await searched(segments(["a"], ["late"], []))) == (1, 0, [["late"], []])


async def test_what_some_resets_together_change_by_themselves_is_blamed_on_nobody() -> None:
    worn = Worn(fields=frozenset({FIELD}))

    assert await searched(segments(["a", "b"], ["c"], ["d"]), world=World(wears=2)) == worn
    assert await searched(segments(["a"], ["b"], [], ["c"]), world=World(wears=3)) == worn
    assert await searched(segments([], []), world=World(wears=2)) == worn
    assert answer(await searched(segments(["a"], ["leak"], ["b"]), world=World(wears=3))) == (1, 0, [["leak"]])


async def test_what_happens_once_is_said_to_have_happened_once() -> None:
    found = await searched(segments(["a"], ["leak"]), world=World(flaky=1))

    assert found == Once(segment=1, fields=frozenset({FIELD}))


async def test_without_a_budget_the_answer_is_right_and_not_short() -> None:
    found = await searched(segments(["a", "set:key", "b", "leak:key"]), budget=1)

    assert isinstance(found, Found)
    assert (found.segment, found.action, found.minimal) == (0, 3, False)
    assert [a.argv[0] for a in found.plan[0].actions] == ["a", "set:key", "b", "leak:key"]


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 9, 20])
async def test_no_more_is_replayed_to_leave_something_out_than_the_budget_says(budget: int) -> None:
    history = segments([*(f"x{n}" for n in range(6)), "set:key", *(f"y{n}" for n in range(6)), "leak:key"])
    without = World()
    await searched(history, budget=0, world=without)
    world = World()

    found = await searched(history, budget=budget, world=world)

    assert answer(found)[:2] == (0, 13)
    assert world.replays <= without.replays + budget


def test_a_field_is_sought_by_name_or_pattern_and_not_where_the_reset_changes_it_by_itself() -> None:
    fields = ("db/rows a", "db/rows b", "files/x[1]")

    assert Sought(names=frozenset({"files/x[1]"})).among(fields) == {"files/x[1]"}
    assert Sought(patterns=("db/rows *",)).among(fields) == {"db/rows a", "db/rows b"}
    assert Sought(patterns=("files/x[1]", "db/row?")).among((*fields, "files/x1", "db/rows")) == {"files/x[1]"}
    assert Sought(patterns=("*/x[*]",)).among(fields) == {"files/x[1]"}
    assert Sought(patterns=("db/*",), by_itself=frozenset({"db/rows a"})).among(fields) == {"db/rows b"}


harmless = st.sampled_from(["a", "b", "other", "undo"])


@given(
    histories=st.lists(st.lists(harmless, max_size=8), min_size=1, max_size=20),
    where=st.integers(0, 19),
    at=st.integers(0, 8),
    needs=st.sampled_from(["", "set", "keep"]),
    data=st.data(),
)
async def test_a_planted_culprit_is_found_in_any_history(
    histories: list[list[str]], where: int, at: int, needs: str, data: st.DataObject
) -> None:
    place = where % len(histories)
    line = histories[place]
    spot = at % (len(line) + 1)
    line[spot:] = ["leak:key" if needs else "leak", *(a for a in line[spot:] if a != "undo")]
    needed: list[list[str]] = []
    if needs == "set":
        line.insert(data.draw(st.integers(0, spot)), "set:key")
        spot, needed = spot + 1, [["set:key", "leak:key"]]
    elif needs == "keep":
        earlier = data.draw(st.integers(0, place))
        histories[earlier].insert(data.draw(st.integers(0, spot if earlier == place else len(histories[earlier]))), "keep:key")
        spot += earlier == place
        needed = [["keep:key", "leak:key"]] if earlier == place else [["keep:key"], ["leak:key"]]
    else:
        needed = [["leak"]]

    found = await searched(segments(*histories), budget=500)

    assert answer(found) == (place, spot, needed)
    assert isinstance(found, Found)
    assert (found.first, found.minimal) == (True, True)


@given(length=st.integers(EACH + 1, 200), at=st.integers(0, 199))
async def test_a_long_trajectory_is_halved(length: int, at: int) -> None:
    at %= length
    world = World()

    found = await searched(segments(["leak" if n == at else "a" for n in range(length)]), world=world)

    assert answer(found) == (0, at, [["leak"]])
    assert world.replays < 20
