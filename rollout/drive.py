"""Drives a loop to its end: takes batches, lets a learner make updates of them, records both, publishes what comes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rollout.batches import Batch
from rollout.errors import EngineLost, NotLearnable, RolloutStopped
from rollout.learner.learner import Learner
from rollout.loop import RolloutLoop
from sandbox.aio import in_thread

log = logging.getLogger(__name__)
FAILED_PUBLICATIONS = 3  # in a row, until the run ends


@dataclass(slots=True, kw_only=True)
class Driven:
    """What happened on the learning side."""

    updates: list[str] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    failed_publications: list[str] = field(default_factory=list)
    publications: list[dict[str, Any]] = field(default_factory=list)


async def drive(
    loop: RolloutLoop,
    learner: Learner | None,
    *,
    say: Callable[[str], None] = lambda _: None,
    limit_s: float = 3600.0,
    after: Callable[[Driven], Awaitable[bool]] | None = None,
) -> Driven:
    """Take every batch there will be. One update may take `limit_s` seconds; then the run ends, with that as its reason. `after` is
    awaited after each batch, the engine's version standing still meanwhile; False ends the run there."""
    driven = Driven()
    try:
        async for batch in loop.batches():
            counts = loop.books.accounts.counts()
            say(f"{batch.id}: {len(batch.samples)} trajectories of {len(batch.groups)} groups; {counts['quarantined']} quarantined")
            if learner is not None:
                await _update(loop, learner, batch, driven, limit_s)
            if after is not None and not await after(driven):
                break
    except RolloutStopped as stopped:
        say(str(stopped))
    return driven


async def _update(loop: RolloutLoop, learner: Learner, batch: Batch, driven: Driven, limit_s: float) -> None:
    began = loop.parts.clock.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            with loop.updating(), loop.books.meter.stage("optimisation"):
                update = await learner.update(batch)
    except TimeoutError:
        loop.stop(f"the learner made no update of {batch.id} within {limit_s:g} s")
        return
    except NotLearnable as error:  # the batch is recorded, the weights are as they were; the next ones would do no better
        loop.stop(str(error))
        return
    name = f"{batch.id}-update"
    took = [b for b in batch.recorded if update.off_policy or b != batch.off_policy_id]
    await loop.parts.pool.record_update(name, batches=took, checkpoint=update.checkpoint)
    if update.recorded is not None:
        await in_thread(update.recorded)
    loop.books.events.note("update", update=name, batch=batch.id, began=began, publish=update.publish, metrics=dict(update.metrics))
    driven.updates.append(name)
    driven.metrics.append({"update": name, "reward": _mean_reward(batch), **update.metrics})
    if not update.publish:
        return
    try:
        report = await loop.publish(update.weights)
        driven.publications.append(
            {"update": name, "version": report.version, "seconds": round(report.seconds, 3)}
            | {"in_flight": report.in_flight, "changed": report.changed}
        )
        driven.failed_publications.clear()
    except EngineLost as error:  # the old weights stay in force, and the gap counts from them
        log.warning("weights did not load", extra={"event": "rollout.not_published", "update": name, "error": str(error)})
        driven.failed_publications.append(f"{name}: {error}")
        if len(driven.failed_publications) >= FAILED_PUBLICATIONS:
            loop.stop(f"weights did not load {FAILED_PUBLICATIONS} times in a row: {error}")


def _mean_reward(batch: Batch) -> float | None:
    rewards = [s.trajectory.reward for s in batch.samples if s.trajectory.reward is not None]
    return round(fmean(rewards), 4) if rewards else None
