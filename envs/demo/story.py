"""The demo's two acts on the same agents: the reset that most authors write by hand, then `restore`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from envs.demo.agents import Leak, Script, scripts
from sandbox.model import ClearanceState, Depth, ResetMethod, TrajectoryId

ENVIRONMENTS = ("shop", "repo")
TITLES: tuple[tuple[ResetMethod, Depth | None, str], ...] = (
    (ResetMethod.HOOK, None, "the reset that most authors write by hand: TRUNCATE and reload, git reset and git clean"),
    (ResetMethod.RESTORE, Depth.DEEP, "restore: the same agents, the same tasks, the same things left behind"),
)


@dataclass(slots=True, kw_only=True)
class Told:
    """What happened to one script in one act."""

    script: Script
    trajectory: TrajectoryId
    state: ClearanceState
    fields: frozenset[str]  # `probe/field` of every mismatch of its end check
    mismatches: Sequence[Mapping[str, Any]] = ()
    acquire_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Act:
    """One act over one environment."""

    environment: str
    method: str
    told: list[Told] = field(default_factory=list)

    @property
    def control(self) -> Told:
        return next(t for t in self.told if t.script.leak is None)

    def caught(self) -> list[tuple[Leak, frozenset[str]]]:
        """Return each leak with what the check saw of it: its fields beyond those that differ without any leak."""
        own = self.control.fields
        return [(t.script.leak, t.fields - own) for t in self.told if t.script.leak is not None]

    @property
    def alarms(self) -> int:
        """How many trajectories were quarantined."""
        return sum(t.state is ClearanceState.QUARANTINED for t in self.told)


@dataclass(slots=True, kw_only=True)
class Played:
    """The whole story."""

    environments: list[Any]
    started: datetime
    acts: list[Act] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)  # the pool's, at the end
    seals: Mapping[str, bool] = field(default_factory=dict)

    def under(self, method: ResetMethod) -> list[Act]:
        return [act for act in self.acts if act.method == method]


async def play(pool: Any, environment: Any, *, depth: Depth | None, at_once: int = 2) -> Act:
    """Let every script have a session of its own, a few at a time, and wait for each verdict."""
    act = Act(environment=environment.spec.name, method=environment.spec.reset.method.value)
    gate = asyncio.Semaphore(at_once)

    async def one(script: Script) -> None:
        async with gate:
            began = time.perf_counter()
            async with pool.session(script.environment, task=_task(environment, script), wait=300, ttl=300) as session:
                acquired = time.perf_counter() - began
                await script.act(session)
            clearance = (await pool.cleared([session.trajectory_id], timeout=300, depth=depth))[session.trajectory_id]
            mismatches = await _mismatches(pool, session.trajectory_id)
            act.told.append(
                Told(
                    script=script,
                    trajectory=session.trajectory_id,
                    state=clearance.state,
                    fields=frozenset(f"{m['probe']}/{m['field']}" for m in mismatches),
                    mismatches=mismatches,
                    acquire_s=acquired,
                )
            )

    async with asyncio.TaskGroup() as group:
        for script in scripts(environment):
            group.create_task(one(script))
    return act


def _task(environment: Any, script: Script) -> str | None:
    """A task with a start state of its own would make the spare's restore part of the story; the demo keeps to golden for those."""
    return None if environment.tasks[script.task].start else script.task


async def _mismatches(pool: Any, trajectory: TrajectoryId) -> Sequence[Mapping[str, Any]]:
    window = (await pool.why(trajectory)).get("window")
    return list(window["mismatches"]) if window else []
