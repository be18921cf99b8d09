"""Looks at the lines, the engine and the power at a fixed interval, and writes the run's events to disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from rollout.deadline import deadline
from rollout.errors import EngineLost
from rollout.meters.events import Events
from rollout.meters.power import PowerMeter
from rollout.running.runner import Parts
from sandbox.aio import in_thread, run_shielded

log = logging.getLogger(__name__)
LOAD_S = 30.0  # for what the engine says of itself
TRAINER = "trainer"  # the line of finished groups before it


class Sampler:
    """One sample every `every_s` seconds: what each line holds, what was taken from it so far, and what the engine says."""

    def __init__(self, events: Events, parts: Parts, *, ready: Callable[[], int], every_s: float, power: PowerMeter | None) -> None:
        self._events = events
        self._parts = parts
        self._ready = ready
        self._every_s = every_s
        self._power = power

    async def watch(self) -> None:
        """Sample until cancelled; the rest is written then."""
        try:
            while True:
                await self.sample()
                await self._parts.clock.sleep(self._every_s)
        finally:
            await run_shielded(in_thread(self._events.flush))

    async def sample(self) -> None:
        """Take one sample."""
        parts = self._parts
        self._events.note(
            "lines",
            lines=parts.limits.lines() | {TRAINER: {"waiting": self._ready(), "held": 0, "taken": 0}},
            phases=parts.board.counts(),
            cpu_s=round(sum(os.times()[:4]), 2),
        )
        if self._power is not None:
            watts, memory_mb = await in_thread(self._power.read)
            if watts is not None:
                self._events.note("power", watts=watts, memory_mb=memory_mb)
        await self._engine()
        await in_thread(self._events.flush)

    async def _engine(self) -> None:
        try:
            async with deadline(self._parts.clock, LOAD_S):
                load = await self._parts.engine.load()
        except (EngineLost, TimeoutError):
            return  # whoever generates is told so
        said: dict[str, Any] = {
            name: value
            for name in ("running", "waiting", "kv_usage", "prefix_queries", "prefix_hits", "preemptions")
            if (value := getattr(load, name)) is not None
        }
        if said:
            self._events.note("engine", **said)
