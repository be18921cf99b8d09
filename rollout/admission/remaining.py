"""How much longer a trajectory is likely to take, by those of its family that ended; and whose turn it is at the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any

from rollout.record import Trajectory

HISTORY = 64  # latest trajectories of each family


class Serve(StrEnum):
    """Who goes first at the model. `begun`: whose later turn it is, so that what was begun ends. `longest`: who is expected to take
    longest, since a batch waits for its slowest; short ones wait the while."""

    BEGUN = "begun"
    LONGEST = "longest"


@dataclass(slots=True, kw_only=True)
class _Family:
    ended: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=HISTORY))  # seconds left at each turn's begin
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))  # of what was expected at the begin


class Remaining:
    """Expects of a trajectory what those of its family took that came as far, tool waits included."""

    def __init__(self, *, serve: Serve = Serve.BEGUN) -> None:
        self.serve = serve
        self._families: dict[str, _Family] = {}

    def saw(self, record: Trajectory) -> None:
        """Take in one that ended by itself; what a fault cut short says nothing of the others."""
        if not record.own_turns or record.shared_turns or not record.failure.has_reward:
            return
        family = self._families.setdefault(record.family, _Family())
        end = record.duration_s if record.score_at is None else record.score_at
        left = tuple(max(0.0, end - turn.at) for turn in record.own_turns)
        if (expected := self.expected_s(record.family, turns=0, spent_s=0.0)) is not None:
            family.errors.append(abs(expected - left[0]))
        family.ended.append(left)

    def expected_s(self, family: str, *, turns: int, spent_s: float) -> float | None:
        """Return the seconds that are left after `turns` turns; None where nothing is known of the family. Whoever has come further
        than all before is expected to take as long again as it took: tails are heavy."""
        known = self._families.get(family)
        if known is None or not known.ended:
            return None
        as_far = [left[turns] for left in known.ended if len(left) > turns]
        return fmean(as_far) if as_far else spent_s

    def priority(self, family: str, *, turns: int, spent_s: float) -> int:
        """Return a place in line, higher first. A family of which nothing is known is taken for the longest, to get known."""
        if self.serve is Serve.BEGUN:
            return turns
        expected = self.expected_s(family, turns=turns, spent_s=spent_s)
        if expected is None:
            others = [s for f in self._families if (s := self.expected_s(f, turns=turns, spent_s=spent_s)) is not None]
            expected = max(others, default=0.0)
        return round(10 * expected)

    def shown(self) -> Mapping[str, Mapping[str, Any]]:
        """What is expected at the begin by family, and how far off that was of those that ended since."""
        return {
            name: {
                "seen": len(family.ended),
                "expected_s": round(fmean(left[0] for left in family.ended), 4),
                "mean_error_s": round(fmean(family.errors), 4) if family.errors else None,
            }
            for name, family in sorted(self._families.items())
        }
