"""What one run keeps while it goes on: plan, accounts, journal, meter, and the events that its parts wait for."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from rollout.accounting import Accounts
from rollout.admission.budgets import Budget
from rollout.admission.planner import Planner
from rollout.batches import SyncRule
from rollout.groups import GroupRule
from rollout.journal import Journal, Outcome
from rollout.meter import Meter
from rollout.meters.events import Events
from rollout.record import Trajectory
from rollout.selection.selector import Selector
from rollout.terms import State
from rollout.watchdog import Patience
from sandbox.clock import SystemClock
from sandbox.model import Clearance, ClearanceState, TrajectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do, and its bounds. Trajectories beyond `groups` times the group's size come from the retry budget."""

    run: str
    environment: str
    groups: int
    group_rule: GroupRule = field(default_factory=GroupRule)
    sync: SyncRule = field(default_factory=SyncRule)
    patience: Patience = field(default_factory=Patience)
    seed: int = 0
    low: int = 8  # runnable trajectories below which more are admitted
    high: int = 16  # and up to which
    holding: int = 16  # trajectories that may hold or want a session at once
    shelf: int = 0  # finished groups that may wait for a batch; 0: as many as may be outstanding
    retries: int = 64  # of the run
    alternatives: int = 256
    member_retries: int = 2  # of one member of a group
    member_alternatives: int = 6
    clear_s: float = 600.0  # until a clearance must be decided
    publish_s: float = 900.0  # until new weights must be in the engine
    branch_turn: int = 0  # above 0: members start from a fork of the first one's state after that many turns
    alarm: float = 0.5  # share of contaminated trajectories that stops the run
    alarm_after: int = 20  # decided ones, before the alarm may sound
    value_floor: float = 1.0  # tasks below this score are refused while a dependency is at its limit
    sample_s: float = 1.0  # between two looks at the lines, where the meters are on
    power: bool = False  # read what the GPUs draw

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high or self.holding < self.group_rule.size or self.groups < 1:
            raise ValueError(
                f"water marks {self.low} and {self.high}, {self.holding} sessions for groups of {self.group_rule.size}, "
                f"{self.groups} groups: 0 < low <= high, room for one group, at least one group"
            )


@dataclass(slots=True, kw_only=True)
class Books:
    """Shared by the parts of one run."""

    plan: Plan
    planner: Planner
    journal: Journal
    meter: Meter
    selector: Selector | None = None
    events: Events = field(default_factory=lambda: Events(SystemClock(), on=False))  # none are kept where nobody asks for meters
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)
    records: dict[str, Trajectory] = field(default_factory=dict)  # without tokens: those are in the journal
    contaminated: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    watched: set[TrajectoryId] = field(default_factory=set)  # optimistic: ended, and looked at again before each batch
    responses: Counter[str] = field(default_factory=Counter)  # to long runs, by kind
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: str = ""

    def __post_init__(self) -> None:
        plan = self.plan
        self.budget = Budget(retries=plan.retries, alternatives=plan.alternatives)

    budget: Budget = field(init=False)

    async def settle(
        self,
        record: Trajectory,
        state: State,
        reason: str = "",
        *,
        clearance: Clearance | None = None,
        advantage: float | None = None,
        weight: float | None = None,
        gap: int | None = None,
        batch: str = "",
    ) -> None:
        """Decide where a trajectory ends, and write it down."""
        self.accounts.settle(record.id, state, reason)
        outcome = Outcome(
            trajectory=record.id,
            state=state,
            reason=reason,
            reward=None if state in (State.QUARANTINED, State.FAILED) else record.reward,
            advantage=advantage,
            weight=weight,
            gap=gap,
            batch=batch,
            clearance=record.clearance if clearance is None else clearance.state.value,
            clearance_reason=str(clearance.reason or "") if clearance else record.clearance_reason,
            end_check=record.end_check,
            reset_s=record.timings.reset_s,
        )
        self.outcomes[record.id] = outcome
        await self.journal.outcome(outcome)
        self.changed.set()

    def saw(self, clearance: Clearance) -> None:
        """Count a decided clearance, and stop the run when too many are contaminated. A later look may find another state."""
        self.decided.add(clearance.trajectory)
        if clearance.state is ClearanceState.QUARANTINED:
            self.contaminated.add(clearance.trajectory)
            self.watched.discard(clearance.trajectory)
        bad, decided = len(self.contaminated), len(self.decided)
        if decided >= self.plan.alarm_after and bad > self.plan.alarm * decided:
            self.stop(f"contamination alarm: {bad} of {decided} decided trajectories are quarantined")

    def stop(self, reason: str) -> None:
        """End the run early; the first reason stays."""
        self.stopped = self.stopped or reason
        self.changed.set()
