"""A rollout that is only lines and service times, on a clock that jumps: to know what the pilot says where the answer is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rollout.admission.limits import JUDGE, MODEL, SESSION, STORAGE, Dependency, Limits
from rollout.errors import Saturated
from rollout.meters.sampler import TRAINER
from rollout.record import Trajectory
from rollout.running.tooling import dependency
from rollout.terms import Failure, Termination
from sandbox.errors import EnvironmentInvalid
from sandbox.testing import FakeClock

TOOL = dependency("tool")
STAGES = {"generation": MODEL, "environments": TOOL, "judges": JUDGE, "storage": STORAGE, "optimisation": TRAINER}
SLOWER = 8.0  # times, the service of the stage that is to be the bottleneck
TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Places and seconds of service by stage; every stage alone keeps up with two trajectories a second."""

    bottleneck: str = ""
    turns: int = 2
    places: int = 4
    line: int = 10_000  # that may wait before each
    service_s: float = 0.5

    def __post_init__(self) -> None:
        if self.bottleneck and self.bottleneck not in STAGES:
            raise EnvironmentInvalid(f"there is no stage {self.bottleneck!r}", fix=f"use {', '.join(STAGES)}")

    def seconds(self, line: str) -> float:
        """One service; the stage of the bottleneck takes longer."""
        visits = self.turns if line in (MODEL, TOOL) else 1
        return self.service_s / visits * (SLOWER if self.bottleneck and STAGES[self.bottleneck] == line else 1)


class Simulator:
    """Implements `Offered`: each trajectory goes through the same lines as a real one."""

    def __init__(self, given: Simulated, clock: FakeClock) -> None:
        self._given = given
        self._clock = clock
        wide = Dependency(name=SESSION, owner="simulator", limit=10_000, waiting=0)
        stages = [
            Dependency(name=name, owner="simulator", limit=given.places, waiting=given.line, wait_s=1e9) for name in STAGES.values()
        ]
        self.limits = Limits([wide, *stages], clock=clock)

    def phases(self) -> dict[str, int]:
        return {}

    async def run(self, number: int) -> Trajectory:
        began = self._clock.monotonic()
        name, termination = f"simulated-{number}", Termination.FINAL
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.limits.hold(SESSION, name))
                for _ in range(self._given.turns):
                    await self._pass(MODEL, name)
                    await self._pass(TOOL, name)
                await self._pass(JUDGE, name)
            for line in (STORAGE, TRAINER):
                await self._pass(line, name)
        except Saturated:
            termination = Termination.SATURATED
        return Trajectory(
            id=name,
            run="simulated",
            group=name,
            member=0,
            attempt=0,
            environment="simulated",
            task="simulated",
            family="simulated",
            termination=termination,
            failure=Failure.OK if termination is Termination.FINAL else Failure.INFRA,
            began=began,
            duration_s=self._clock.monotonic() - began,
        )

    async def _pass(self, line: str, name: str) -> None:
        async with self.limits.hold(line, name):
            await self._clock.sleep(self._given.seconds(line))

    async def valid(self, records: Sequence[Trajectory]) -> set[str]:
        return {r.id for r in records if r.failure is Failure.OK}


@asynccontextmanager
async def simulated(given: Simulated) -> AsyncIterator[tuple[Simulator, FakeClock]]:
    """Open a simulator; its clock runs as fast as the machine can while the block runs."""
    clock = FakeClock()

    async def tick() -> None:
        while True:
            await clock.advance(TICK_S)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        try:
            yield Simulator(given, clock), clock
        finally:
            ticking.cancel()
