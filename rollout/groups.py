"""Groups: several trajectories of one task. Pure bookkeeping: when a group is final, who survived, what each one's advantage is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev

from rollout.record import Trajectory
from rollout.selection.selector import Purpose
from sandbox.model import TaskSpec

TOO_SMALL = "fewer than {least} members survived"
FLAT = "all rewards are equal"
SCOUTED = "a scout: it was spent on the estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """`keep_flat` ships groups without reward variance too (their advantages are 0). `refill` lets a group that became too small
    be filled from the retry budget. `scale` divides advantages by the group's standard deviation."""

    size: int = 8
    min_survivors: int = 2
    keep_flat: bool = False
    refill: bool = True
    scale: bool = False

    def __post_init__(self) -> None:
        if self.size < 1 or not 1 <= self.min_survivors <= self.size:
            raise ValueError(f"a group of {self.size} cannot need {self.min_survivors} survivors")


@dataclass(slots=True, kw_only=True)
class Group:
    """One task's members by index; a member that ended without a usable trajectory is absent from `survivors`."""

    id: str
    number: int
    task: TaskSpec
    size: int
    began: float
    purpose: Purpose = Purpose.TRAIN
    survivors: dict[int, Trajectory] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """True when every member has ended, well or not."""
        return len(self.survivors) + len(self.lost) == self.size

    @property
    def oldest_version(self) -> int:
        """A group shares its oldest member's policy version."""
        return min((v for t in self.survivors.values() if (v := t.oldest_version) is not None), default=0)

    def survive(self, index: int, trajectory: Trajectory) -> None:
        self._once(index)
        self.survivors[index] = trajectory

    def lose(self, index: int, reason: str) -> None:
        self._once(index)
        self.lost[index] = reason

    def take_out(self, trajectory: str) -> Trajectory | None:
        """Remove a survivor that lost its clearance later; return it, None where it is none."""
        for index, held in self.survivors.items():
            if held.id == trajectory:
                del self.survivors[index]
                self.lost[index] = "quarantined after its clearance"
                return held
        return None

    def _once(self, index: int) -> None:
        if index in self.survivors or index in self.lost or not 0 <= index < self.size:
            raise ValueError(f"member {index} of group {self.id} has ended already or does not exist")


def refusal(group: Group, rule: GroupRule) -> str | None:
    """Return why a final group cannot ship, None when it can."""
    if group.purpose is Purpose.SCOUT:
        return SCOUTED
    if len(group.survivors) < rule.min_survivors:
        return TOO_SMALL.format(least=rule.min_survivors)
    rewards = [t.reward for t in group.survivors.values()]
    if not rule.keep_flat and len(set(rewards)) == 1:
        return FLAT
    return None


def advantages(rewards: Sequence[float], *, scale: bool = False) -> tuple[float, ...]:
    """Return each reward relative to its group's mean, divided by the standard deviation with `scale`; equal rewards give 0."""
    mean = fmean(rewards)
    spread = pstdev(rewards) if scale else 1.0
    return tuple((reward - mean) / spread if spread else 0.0 for reward in rewards)


def advantages_of(group: Group, rule: GroupRule) -> Mapping[str, float]:
    """Return the advantages of a group's survivors, by trajectory."""
    members = list(group.survivors.values())
    rewards = [t.reward for t in members if t.reward is not None]
    if len(rewards) != len(members):
        raise ValueError(f"group {group.id} has survivors without a reward")
    return dict(zip((t.id for t in members), advantages(rewards, scale=rule.scale), strict=True))
