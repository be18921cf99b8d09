"""Makes one part of a rollout slow on purpose: to see that the pilot names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from rollout.engines.engine import Completion, Engine, Request
from rollout.judging import Judge, Verdict
from rollout.policies.policy import ToolSpec
from rollout.running.draft import Draft
from rollout.running.runner import Parts
from rollout.tools.tool import Acting, Observation, Tool
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock

PARTS = ("engine", "database", "judge")
DATABASE_TOOLS = frozenset({"sql"})


def slow_of(given: Sequence[str]) -> dict[str, float]:
    """Read `database=1.5` and the like: seconds that are added to each use."""
    found: dict[str, float] = {}
    for each in given:
        name, _, seconds = each.partition("=")
        try:
            found[name] = float(seconds)
        except ValueError:
            raise EnvironmentInvalid(f"--slow {each!r} has no seconds", fix="write --slow database=1.5") from None
        if name not in PARTS or found[name] < 0:
            raise EnvironmentInvalid(f"--slow {each!r} is no part", fix=f"use {', '.join(PARTS)}, and seconds of at least 0")
    return found


class SlowEngine:
    """An engine that takes longer for each answer; everything else is the engine's own."""

    def __init__(self, inner: Engine, seconds: float, clock: Clock) -> None:
        self._inner = inner
        self._seconds = seconds
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def generate(self, request: Request) -> Completion:
        await self._clock.sleep(self._seconds)
        completion = await self._inner.generate(request)
        return replace(completion, service_s=completion.service_s + self._seconds)


class SlowTool:
    """A tool that takes longer for each act."""

    def __init__(self, inner: Tool, seconds: float, clock: Clock) -> None:
        self._inner = inner
        self._seconds = seconds
        self._clock = clock
        self.spec: ToolSpec = inner.spec
        self.limit_s = inner.limit_s + seconds

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        await self._clock.sleep(self._seconds)
        return await self._inner.act(session, arguments)


def slow_tools(tools: Sequence[Tool], slow: Mapping[str, float], clock: Clock) -> tuple[Tool, ...]:
    """Slow those that go to the database."""
    seconds = slow.get("database", 0.0)
    return tuple(SlowTool(t, seconds, clock) if seconds and t.spec.name in DATABASE_TOOLS else t for t in tools)


def slowed(parts: Parts, slow: Mapping[str, float]) -> Parts:
    """Slow the engine and the judge."""
    if seconds := slow.get("engine"):
        parts = replace(parts, engine=cast("Engine", SlowEngine(parts.engine, seconds, parts.clock)))
    if seconds := slow.get("judge"):
        parts = replace(parts, judge=_slow_judge(parts.judge, seconds, parts.clock))
    return parts


def _slow_judge(judge: Judge, seconds: float, clock: Clock) -> Judge:
    async def slow(session: Any, draft: Draft) -> Verdict:
        await clock.sleep(seconds)
        return await judge(session, draft)

    return slow
