"""Judges: what gives a trajectory its score while its environment stands: the task's own check, or a user's judge."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from rollout.running.draft import Draft
from sandbox.model import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge said. `prompt_tokens` is what it read, for judges that are prompted; `agrees` whether a second look said the
    same, None where there was none."""

    score: Score
    prompt_tokens: int | None = None
    agrees: bool | None = None


Judge = Callable[[Any, Draft], Awaitable[Verdict]]


async def by_task(session: Any, _: Draft) -> Verdict:
    """The task's own check, from outside."""
    return Verdict(score=await session.score())


def judged_again(judge: Judge, *, share: float, seed: int) -> Judge:
    """Ask `judge` a second time for a share of the trajectories, chosen by their id. The first verdict counts; the second says how
    far the judge can be trusted."""

    async def twice(session: Any, draft: Draft) -> Verdict:
        first = await judge(session, draft)
        number = int.from_bytes(hashlib.blake2b(f"{seed}/{draft.ticket.id}".encode(), digest_size=8).digest(), "big")
        if number / 2**64 >= share or first.score.reward is None:
            return first
        second = (await judge(session, draft)).score
        return replace(first, agrees=(second.reward, second.success) == (first.score.reward, first.score.success))

    return twice
