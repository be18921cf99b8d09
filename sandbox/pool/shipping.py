"""Clearance as trainers use it: look, wait, ship, and record what was trained."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox.errors import NotCleared, RecordMissing
from sandbox.model import (
    BatchId,
    CheckpointId,
    Clearance,
    ClearanceState,
    Depth,
    NamespaceId,
    QuarantineId,
    Recall,
    TrajectoryId,
    UpdateId,
)
from sandbox.ports import Ledger

DECIDED = (ClearanceState.QUARANTINED, ClearanceState.RELEASED, ClearanceState.DISCARDED)


class Shipping:
    """Trajectories to batches. Never hands out what is not cleared at its environment's required depth."""

    def __init__(
        self, ledger: Ledger, *, required: Mapping[str, Depth], ask_deep: Callable[[Sequence[NamespaceId]], Awaitable[None]]
    ) -> None:
        self._ledger = ledger
        self._required = required  # by digest and by name of the environment; filled as environments are prepared
        self._ask_deep = ask_deep

    async def clearance(self, trajectories: Sequence[TrajectoryId]) -> Mapping[TrajectoryId, Clearance]:
        """Look, without waiting."""
        return await self._ledger.clearances(list(trajectories))

    async def cleared(
        self, trajectories: Sequence[TrajectoryId], *, timeout: float, depth: Depth | None = None
    ) -> Mapping[TrajectoryId, Clearance]:
        """Wait until each one is decided: cleared at `depth` (its environment's required depth by default), or set aside.

        Asks at once for the deep check that some of them wait for. Raises NotCleared with every clearance when `timeout`
        seconds pass first, RecordMissing for one that the ledger does not know; a quarantined one is an answer and is returned.
        """
        wanted = list(trajectories)
        asked: set[NamespaceId] = set()
        changed = asyncio.Event()
        unsubscribe = self._ledger.on_change(lambda _: changed.set())
        try:
            async with asyncio.timeout(timeout):
                while True:
                    changed.clear()
                    now = await self._ledger.clearances(wanted)
                    if unknown := [t for t in wanted if t not in now]:
                        raise RecordMissing(
                            f"the ledger knows no trajectory {', '.join(unknown)}", fix="give the `trajectory_id` of a session"
                        )
                    waiting = [c for c in now.values() if c.state not in DECIDED and not c.ships_at(self._depth(c, depth))]
                    if not waiting:
                        return now
                    deep = {c.namespace for c in waiting if c.namespace and self._depth(c, depth) is Depth.DEEP} - asked
                    if deep:
                        await self._ask_deep(sorted(deep))
                        asked |= deep
                    await changed.wait()
        except TimeoutError:
            now = await self._ledger.clearances(wanted)
            short = (c for c in now.values() if c.state not in DECIDED and not c.ships_at(self._depth(c, depth)))
            raise self._explained(
                NotCleared(
                    f"not every trajectory was decided within {timeout:g} s",
                    clearances={t: _say(c) for t, c in now.items()},
                    fix="wait longer, or look at `autoclave why TRAJECTORY`",
                ),
                short,
            ) from None
        finally:
            unsubscribe()

    async def ship(
        self, batch: str, trajectories: Sequence[TrajectoryId], *, policy_version: str, mode: str = "gated"
    ) -> Mapping[str, Any]:
        """Record a batch of cleared trajectories, in one transaction, before it is delivered; else raise NotCleared."""
        wanted = list(trajectories)
        found = await self._ledger.clearances(wanted)
        unknown = {c.environment for c in found.values()} - self._required.keys()
        required = {**self._required, **dict.fromkeys(unknown, Depth.DEEP)}  # an environment we do not know: the strictest
        try:
            return await self._ledger.ship(BatchId(batch), wanted, policy_version=policy_version, required=required, mode=mode)
        except NotCleared as error:
            raise self._explained(error, (c for t, c in found.items() if t in error.clearances)) from None

    async def record_update(self, update: str, *, batches: Sequence[str], checkpoint: str | None = None) -> None:
        """Say which batches an update was made of, and the checkpoint it went into, so that a recall can name them."""
        await self._ledger.record_update(
            UpdateId(update), [BatchId(b) for b in batches], None if checkpoint is None else CheckpointId(checkpoint)
        )

    async def record_checkpoint(self, checkpoint: str, *, updates: Sequence[str]) -> None:
        await self._ledger.record_checkpoint(CheckpointId(checkpoint), [UpdateId(u) for u in updates])

    async def recall(self, quarantine: str | None = None) -> Recall:
        """What a quarantine (every one by default) had already reached."""
        return await self._ledger.recall(None if quarantine is None else QuarantineId(quarantine))

    async def set_aside(
        self, trajectories: Sequence[TrajectoryId], state: ClearanceState, *, by: str, note: str
    ) -> Sequence[Clearance]:
        return await self._ledger.set_aside(list(trajectories), state, by=by, note=note)

    def _explained(self, error: NotCleared, refused: Iterable[Clearance]) -> NotCleared:
        """Say of which of them no check can come here: those of a version that this pool does not keep, after a restart say."""
        undecided = [c for c in refused if c.state not in DECIDED and not c.ships_at(Depth.DEEP)]
        stuck = [c for c in undecided if c.environment not in self._required]
        if not stuck:
            return error
        names, versions = ", ".join(c.trajectory for c in stuck), ", ".join(sorted({c.environment[:12] for c in stuck}))
        return NotCleared(
            f"{error.message}. This pool does not keep the version ({versions}) that {names} acted in: it makes no check of it, and"
            " as it does not know what that version requires, only deep will do",
            clearances=error.clearances,
            fix="ship them from a pool that was opened with that version (its directory as it was; it may roll afterwards),"
            " or leave them out",
        )

    def _depth(self, clearance: Clearance, asked: Depth | None) -> Depth:
        return asked or self._required.get(clearance.environment, Depth.DEEP)


def _say(clearance: Clearance) -> str:
    detail = clearance.depth or clearance.reason
    return f"{clearance.state.value} ({detail})" if detail else clearance.state.value
