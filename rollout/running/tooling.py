"""Acting through the tools: a place for each tool, a deadline for each act, another try after a fault of the tool itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rollout.admission.budgets import Spend
from rollout.admission.limits import Limits
from rollout.deadline import deadline
from rollout.errors import ToolFault
from rollout.policies.policy import Call, ToolSpec
from rollout.record import Action
from rollout.running.draft import Draft
from rollout.tools import Observation, Tool
from sandbox.errors import LimitReached
from sandbox.ports import Clock

TOO_OFTEN = re.compile(r"\b429\b|too many requests|\brate[ -]?limit", re.IGNORECASE)  # how servers and tools say it
PAUSE_S = 0.5  # before a tool that failed is asked again, doubled each time


class _NoAnswer(Exception):
    """A tool that did not come back in time."""


def dependency(tool: str) -> str:
    """The name under which a tool's places are registered."""
    return f"tool:{tool}"


class Tooling:
    """The tools of one run."""

    def __init__(self, tools: Sequence[Tool], *, limits: Limits, clock: Clock, grace_s: float = 15.0) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._limits = limits
        self._clock = clock
        self._grace_s = grace_s
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in tools)

    async def act(self, session: Any, call: Call, draft: Draft) -> tuple[Action, str]:
        """Do one call; return what is recorded and what the model is told. A lost instance is raised."""
        tool = self._tools[call.tool]
        action = Action(turn=len(draft.turns) - 1, tool=call.tool, arguments=dict(call.arguments), at=draft.now)
        pause = PAUSE_S
        async with self._limits.hold(dependency(call.tool), draft.id, priority=len(draft.turns)) as place:
            began = self._clock.monotonic()
            while True:
                try:
                    seen, fault = await self._once(tool, session, call)
                except _NoAnswer as error:  # it may have acted: not once more
                    seen, fault = None, str(error)
                    break
                said = fault if seen is None else "" if seen.ok else seen.text
                action = replace(action, rate_limited=action.rate_limited or TOO_OFTEN.search(said) is not None)
                if seen is not None or not draft.budget.spend(Spend.RETRY):
                    break
                await self._clock.sleep(pause)
                action = replace(action, retries=action.retries + 1, retried_at=(*action.retried_at, draft.now))
                pause *= 2
            spent = self._clock.monotonic() - began
        action = replace(action, queue_s=place.queue_s, action_s=spent)
        if seen is None:
            return replace(action, ok=False, error=fault), f"the tool failed: {fault}"
        digest = hashlib.blake2b(seen.text.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return replace(action, ok=seen.ok, timed_out=seen.timed_out, digest=digest), seen.text

    async def _once(self, tool: Tool, session: Any, call: Call) -> tuple[Observation | None, str]:
        try:
            async with deadline(self._clock, tool.limit_s + self._grace_s) as scope:
                return await tool.act(session, call.arguments), ""
        except ToolFault as error:
            return None, str(error)
        except LimitReached as error:  # a bound of the agent's own world
            return Observation(text=str(error), ok=False), ""
        except TimeoutError:
            if not scope.expired():
                raise
            raise _NoAnswer(f"no answer within {tool.limit_s + self._grace_s:g} s") from None

    def observed(self, action: Action, seconds: float) -> Action:
        return replace(action, observation_s=seconds)
