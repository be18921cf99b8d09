"""How many of the latest trajectories of an environment were quarantined, and when that is too many to go on."""

from __future__ import annotations

from collections.abc import Collection

from sandbox.model import TrajectoryId


class QuarantineRate:
    """The share of quarantined ones among the last `window` trajectories that were judged. Over `limit` it stops the leasing.

    A trajectory counts once, as the latest check that named it left it. Until `window` of them were judged nothing is over.
    """

    def __init__(self, *, limit: float, window: int) -> None:
        self.limit = limit
        self.window = window
        self._latest: dict[TrajectoryId, bool] = {}

    def note(self, *, cleared: Collection[TrajectoryId], quarantined: Collection[TrajectoryId]) -> None:
        for trajectory in cleared:
            self._latest.setdefault(trajectory, False)
        for trajectory in quarantined:
            self._latest[trajectory] = True
        for oldest in list(self._latest)[: -self.window]:
            del self._latest[oldest]

    def forget(self) -> None:
        self._latest.clear()

    @property
    def judged(self) -> int:
        return len(self._latest)

    @property
    def quarantined(self) -> int:
        return sum(self._latest.values())

    @property
    def over(self) -> bool:
        return self.judged >= self.window and self.quarantined > self.limit * self.judged

    def as_json(self) -> dict[str, float | int]:
        return {"quarantined": self.quarantined, "judged": self.judged, "limit": self.limit, "window": self.window}
