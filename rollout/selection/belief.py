"""What is believed of a task's success rate: a Beta posterior over its latest results, exact for whole numbers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

WINDOW = 16  # latest results that count: the policy moves on, and a task that was mastered may be lost again


@dataclass(slots=True, kw_only=True)
class Belief:
    """A flat prior and the results. `mean` is the posterior's."""

    results: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def saw(self, success: bool) -> None:
        self.results.append(success)

    def forget(self) -> None:
        """Begin anew, for a revisit."""
        self.results.clear()

    @property
    def count(self) -> int:
        return len(self.results)

    @property
    def successes(self) -> int:
        return sum(self.results)

    @property
    def mean(self) -> float:
        return (self.successes + 1) / (self.count + 2)

    def above(self, rate: float) -> float:
        """The probability that the success rate is above `rate`."""
        n = self.count + 1
        return sum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(self.successes + 1))

    def below(self, rate: float) -> float:
        return 1 - self.above(rate)
