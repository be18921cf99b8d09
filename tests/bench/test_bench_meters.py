"""What the meters cost: rollouts with and without them, in turn, and the time that the meters themselves took."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from envs.repo import environment
from rollout.journal import read
from rollout.meters.events import Events
from rollout.meters.sampler import Sampler
from rollout.run import run
from rollout.running.runner import Runner
from rollout.setup import Options
from sandbox.clock import SystemClock
from sandbox.settings import Settings
from sandbox.wiring import open_pool

pytestmark = [pytest.mark.bench, pytest.mark.namespaces, pytest.mark.slow]
ROUNDS = 3


class Timed:
    """Adds up what calls take, of the thread that makes them; waits included, so that it is rather too much."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def plain(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed

    def waiting(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return await call(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


async def test_what_the_meters_cost(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed()
    monkeypatch.setattr(Events, "note", timed.plain(Events.note))
    monkeypatch.setattr(Sampler, "sample", timed.waiting(Sampler.sample))
    monkeypatch.setattr(Runner, "_memory", timed.waiting(Runner._memory))
    options = Options(environment="repo", trajectories=4, group_size=2, batch_groups=1, size=2, learner="stepping")
    walls: dict[bool, list[float]] = {True: [], False: []}
    spent = lived = 0.0
    async with open_pool([environment()], size=2, settings=settings) as pool:
        for _ in range(ROUNDS):
            for on in (True, False):
                timed.seconds, began = 0.0, time.perf_counter()
                chosen = replace(options, meters=on)
                summary = await run(chosen, pool=pool, environment=environment(), home=settings.home, clock=SystemClock())
                walls[on].append(time.perf_counter() - began)
                if on:
                    spent += timed.seconds
                    lived += sum(r.duration_s for r in read_of(summary))
    on_s, off_s = median(walls[True]), median(walls[False])
    print(f"\nmeters: {spent:.3f} s of {lived:.1f} s of trajectories, {spent / lived:.2%}")
    print(f"a run with meters {on_s:.2f} s, without {off_s:.2f} s (medians of {ROUNDS} each, in turn): {on_s / off_s - 1:+.1%}")


def read_of(summary: dict[str, Any]) -> list[Any]:
    return list(read(Path(summary["journal"])).trajectories.values())
