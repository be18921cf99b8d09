"""Half-open intervals [start, end) of whole numbers, and sets of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals that overlap or touch; empty ones vanish."""
    out: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def overlap(left: Interval, right: Interval) -> int:
    """Return the length of what two intervals share."""
    return max(0, min(left[1], right[1]) - max(left[0], right[0]))


def subtract(base: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return what is left of `base` without `holes`."""
    left = merge(base)
    for hole_start, hole_end in merge(holes):
        rest: list[Interval] = []
        for start, end in left:
            if hole_end <= start or end <= hole_start:
                rest.append((start, end))
                continue
            if start < hole_start:
                rest.append((start, hole_start))
            if hole_end < end:
                rest.append((hole_end, end))
        left = rest
    return left


def intersect(left: Iterable[Interval], right: Iterable[Interval]) -> list[Interval]:
    """Return what lies in both."""
    one, two = merge(left), merge(right)
    out: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(two):
        start, end = max(one[i][0], two[j][0]), min(one[i][1], two[j][1])
        if start < end:
            out.append((start, end))
        if one[i][1] < two[j][1]:
            i += 1
        else:
            j += 1
    return out


class IntervalSet:
    """A set of whole numbers kept as intervals."""

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._items = merge(intervals)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._items, (number, float("inf"))) - 1
        return index >= 0 and self._items[index][0] <= number < self._items[index][1]

    def __iter__(self) -> Iterator[Interval]:
        return iter(self._items)

    def __len__(self) -> int:
        """Return how many numbers it holds."""
        return sum(end - start for start, end in self._items)

    def add(self, start: int, end: int) -> None:
        self._items = merge([*self._items, (start, end)])

    def remove(self, start: int, end: int) -> None:
        self._items = subtract(self._items, [(start, end)])

    def gaps(self, start: int, end: int) -> list[Interval]:
        """Return what is missing between the two bounds."""
        return subtract([(start, end)], self._items)

    def first_free(self, length: int, start: int = 0) -> int:
        """Return the first place from `start` on with room for `length` numbers."""
        place = start
        for begin, end in self._items:
            if end <= place:
                continue
            if begin - place >= length:
                return place
            place = max(place, end)
        return place


def busiest(intervals: Iterable[Interval]) -> tuple[int, int]:
    """Return how many overlap at most, and the first point where they do; (0, 0) for none."""
    events: list[tuple[int, int]] = []
    for start, end in intervals:
        if start < end:
            events += [(start, 1), (end, -1)]
    best, where, now = 0, 0, 0
    for point, change in sorted(events):
        now += change
        if now > best:
            best, where = now, point
    return best, where
