"""What each stage of the cycle took: time of service, time in line, and its share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rollout.record import Trajectory
from sandbox.ports import Clock

STAGES = (
    "session",
    "generation",
    "actions",
    "reward",
    "teardown",
    "storage",
    "clearance",
    "advantage",
    "optimisation",
    "publication",
)


@dataclass(slots=True)
class Stage:
    """Seconds, summed over all trajectories."""

    service_s: float = 0.0
    queue_s: float = 0.0


class Meter:
    """Sums by stage."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.stages = {name: Stage() for name in STAGES}

    def add(self, stage: str, *, service_s: float = 0.0, queue_s: float = 0.0) -> None:
        self.stages[stage].service_s += service_s
        self.stages[stage].queue_s += queue_s

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block as service of a stage."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self.add(name, service_s=self._clock.monotonic() - began)

    def trajectory(self, record: Trajectory) -> None:
        """Take a finished trajectory's own times in."""
        turns, actions = record.own_turns, record.own_actions
        self.add("session", service_s=record.timings.creation_s or 0.0, queue_s=record.session_queue_s)
        self.add("generation", service_s=sum(t.service_s for t in turns), queue_s=sum(t.queue_s for t in turns))
        acted = sum(a.action_s + a.observation_s for a in actions)
        self.add("actions", service_s=acted, queue_s=sum(a.queue_s for a in actions))
        self.add("reward", service_s=record.score_s, queue_s=record.score_queue_s)
        self.add("teardown", service_s=record.timings.teardown_s or 0.0)

    def cycle(self) -> Mapping[str, Mapping[str, float | None]]:
        """Each stage with its share of all stages' time; shares are None while nothing took any."""
        total = sum(stage.service_s + stage.queue_s for stage in self.stages.values())
        return {
            name: {
                "service_s": round(stage.service_s, 4),
                "queue_s": round(stage.queue_s, 4),
                "share": round((stage.service_s + stage.queue_s) / total, 4) if total else None,
            }
            for name, stage in self.stages.items()
        }
