"""Finding the first trajectory and the first action after which a reset no longer holds, and what of the rest it takes.

Nothing here acts: a judge does, which says what differs after a plan was replayed in a fresh namespace. A plan is a list of
segments, each the actions of one trajectory, and each is followed by the resets that followed it.

The trajectories are gone through one after the other, with a look after every reset of the kind that the failed check followed,
because that costs each of them once: halving them would replay every one of them several times. The actions of one trajectory
cannot be gone through so (a reset between them would undo what they build on), so their prefixes are tried: all of them where they
are few, by halves where they are many.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from sandbox.actions import RecordedAction
from sandbox.model import ResetMethod

T = TypeVar("T")
EACH = 16  # prefixes that are all tried; of more, a boundary is found by halves


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One trajectory's actions, or some of them. `task` names the start state that it had, empty for golden; `resets` are those
    that followed it, none for one by the method of the environment."""

    trajectory: str
    actions: tuple[RecordedAction, ...]
    task: str = ""
    resets: tuple[ResetMethod, ...] = ()


Plan = Sequence[Segment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The fields that are looked for, as `probe/field`: by name, or by pattern (`*` is any text), but not those that the reset
    changes by itself. What else differs is none of them."""

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    by_itself: frozenset[str] = frozenset()

    def among(self, fields: Iterable[str]) -> frozenset[str]:
        wanted = (f for f in fields if f in self.names or any(matches(f, p) for p in self.patterns))
        return frozenset(wanted) - self.by_itself


def matches(field: str, pattern: str) -> bool:
    """Brackets and question marks are themselves: names of fields hold them."""
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), field, re.DOTALL) is not None


class Judge(Protocol):
    """Replays plans in fresh namespaces, and says which of the fields that are sought differ."""

    async def first(self, plan: Plan, sought: Sought) -> tuple[int, frozenset[str]] | None:
        """Look after every segment whose last reset is of the kind that the failed check followed: it may repair what another kind
        leaves. Return the number of the first after which a field differs, None where none does."""

    async def hits(self, plan: Plan, sought: Sought) -> frozenset[str]:
        """Look after the last reset only; of an empty plan, after a reset of a state that nobody touched."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """How many plans may still be replayed to leave out what is not needed."""

    left: int

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What left it. `plan` is the shortest known history whose last action is the culprit and that still leaves it; where it shows
    only some resets later, segments without actions follow."""

    segment: int  # which of those that were searched
    action: int  # which of its actions
    fields: frozenset[str]  # of those sought, that differ after it
    plan: tuple[Segment, ...]
    first: bool  # False: it holds after the action before it, but not every earlier one was tried
    minimal: bool  # False: the budget ended before each of the others had been left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A trajectory after which it differed once, and not when it was replayed again."""

    segment: int
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worn:
    """Fields that several resets one after the other change by themselves, though the first does not."""

    fields: frozenset[str]


class Search:
    """One search for some fields."""

    def __init__(self, judge: Judge, sought: Sought, budget: Budget) -> None:
        self._judge = judge
        self._sought = sought
        self._budget = budget

    async def run(self, segments: Sequence[Segment], *, suspects: int) -> Found | Once | Worn | None:
        """Search the last `suspects` of the segments and, where they alone leave nothing, all of them. None: nothing is left."""
        for begin in dict.fromkeys((len(segments) - suspects, 0)):
            found = await self._judge.first(segments[begin:], self._sought)
            if found is not None:
                return await self._within(segments, begin, begin + found[0], found[1])
        return None

    async def _within(self, segments: Sequence[Segment], begin: int, number: int, fields: frozenset[str]) -> Found | Once | Worn:
        """Find the first action of that trajectory: alone, or else with those trajectories before it that it takes."""
        culprit = segments[number]
        before = list(segments[begin:number])
        if before and not await self._fails([culprit]):
            before = await self._smallest(before, lambda kept: self._fails([*kept, culprit]))
        else:
            before = []
        after: list[Segment] = []
        while before and await self._fails([*before, _untouched(culprit), *after]):  # it shows a reset later than it was left
            after, culprit = [_untouched(culprit), *after], before.pop()
        if after and not before and (worn := await self._judge.hits([_untouched(culprit), *after], self._sought)):
            return Worn(fields=worn)
        number = next(n for n, segment in enumerate(segments) if segment is culprit)
        last, first = await self._boundary(before, culprit, after)
        if last < 0:
            return Once(segment=number, fields=fields)
        plan, minimal = await self._shortened(before, culprit, last, after)
        left = await self._judge.hits(plan, self._sought)
        if not left:
            return Once(segment=number, fields=fields)
        return Found(segment=number, action=last, fields=left, plan=plan, first=first, minimal=minimal)

    async def _boundary(self, before: Sequence[Segment], culprit: Segment, after: Sequence[Segment]) -> tuple[int, bool]:
        """Return after which action the reset fails, having held before it (-1: none), and whether it is the first such."""

        async def fails(count: int) -> bool:
            return await self._fails([*before, replace(culprit, actions=culprit.actions[:count]), *after])

        total = len(culprit.actions)
        if total <= EACH:
            for count in range(1, total + 1):
                if await fails(count):
                    return count - 1, True
            return -1, True
        if not await fails(total):
            return -1, False
        holds, broken = 0, total
        while broken - holds > 1:
            middle = (holds + broken) // 2
            if await fails(middle):
                broken = middle
            else:
                holds = middle
        return broken - 1, broken == 1

    async def _shortened(
        self, before: Sequence[Segment], culprit: Segment, last: int, after: Sequence[Segment]
    ) -> tuple[tuple[Segment, ...], bool]:
        """Leave out every other action that the last one does not need."""
        others = [(number, action) for number, segment in enumerate(before) for action in segment.actions]
        others += [(len(before), action) for action in culprit.actions[:last]]
        parts = [*before, culprit]

        def joined(
            kept: Sequence[tuple[int, RecordedAction]], last: tuple[RecordedAction, ...] = culprit.actions[last : last + 1]
        ) -> tuple[Segment, ...]:
            actions = [tuple(action for place, action in kept if place == number) for number in range(len(parts))]
            actions[-1] = (*actions[-1], *last)
            return (*(replace(part, actions=chosen) for part, chosen in zip(parts, actions, strict=True) if chosen), *after)

        async def needed(some: Sequence[tuple[int, RecordedAction]]) -> bool:
            """It fails, and not without the last action: with some others left out, one before it may leave the same."""
            if not await self._fails(joined(some)):
                return False
            return not some or (self._budget.spend() and not await self._fails(joined(some, last=())))

        kept = await self._smallest(others, needed)
        return joined(kept), self._budget.left >= 0

    async def _fails(self, plan: Plan) -> bool:
        return bool(await self._judge.hits(plan, self._sought))

    async def _smallest(self, items: list[T], fails: Callable[[list[T]], Awaitable[bool]]) -> list[T]:
        """Return a part of the items that still fails and of which none can be left out (delta debugging), or what is left of them
        when the budget ends."""
        if not items or not self._budget.spend():
            return items
        if await fails([]):
            return []
        parts = 2
        while True:
            size = -(-len(items) // parts)
            for start in range(0, len(items), size):
                rest = items[:start] + items[start + size :]
                if not rest:
                    continue
                if not self._budget.spend():
                    return items
                if await fails(rest):
                    items, parts = rest, max(2, parts - 1)
                    break
            else:
                if size == 1:
                    return items
                parts = min(len(items), parts * 2)


def _untouched(segment: Segment) -> Segment:
    """The same start and resets, and nobody who acts."""
    return replace(segment, actions=())
