"""The rollout loop: many trajectories at once over a pool, and batches that hold only what may be trained on.

async with RolloutLoop(books, parts) as loop:
    async for batch in loop.batches():
        ...                                   # a user's own update
        await loop.publish(weights)
await loop.settle()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rollout.batches import Batch, Shelf
from rollout.books import Books
from rollout.branching import Branching
from rollout.deadline import deadline
from rollout.delivery import Delivery
from rollout.engines.engine import PublishReport
from rollout.errors import EngineLost, RolloutStopped
from rollout.gate import Gate
from rollout.groups import Group
from rollout.members import Members
from rollout.meters.power import PowerMeter
from rollout.meters.sampler import Sampler
from rollout.running.board import Phase
from rollout.running.runner import Parts
from rollout.selection.selector import Purpose
from rollout.watchdog import Watchdog
from sandbox.aio import run_shielded
from sandbox.model import Depth

log = logging.getLogger(__name__)


class RolloutLoop:
    """Hold it with `async with`: entering starts admission, leaving ends what still runs (those trajectories stay `open`)."""

    def __init__(self, books: Books, parts: Parts) -> None:
        self.books = books
        self.parts = parts
        plan = books.plan
        self.shelf = Shelf(plan.sync, capacity=plan.shelf or plan.sync.outstanding)
        self._members = Members(books, parts)
        self._branching = Branching(books, parts, self._members)
        self.delivery = Delivery(books, parts, self.shelf)
        self._gate = Gate(books, parts, outstanding=lambda: self._outstanding, shelf=self.shelf)
        self._outstanding = 0  # groups admitted and not yet trained on, dropped or gone
        self._learning = 0  # of them, in the batch that was handed out last: until it is published, or the next one is asked for
        self._running: set[asyncio.Task[None]] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._duties: list[asyncio.Task[None]] = []
        self._admitting = True
        self._asked_at: float | None = None
        self._updating = False
        self._shipped: Batch | None = None  # recorded, and not yet handed out
        self._publishing = asyncio.Lock()  # no batch is cut while the version moves
        self.watchdog = Watchdog(clock=parts.clock, patience=plan.patience, quiet_s=self._quiet_s, holds=self.holds, stop=self.stop)

    async def __aenter__(self) -> Self:
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._duties = [
            self._tasks.create_task(self._admit(), name="rollout admission"),
            self._tasks.create_task(self.watchdog.watch(), name="rollout watchdog"),
        ]
        if self.books.events.on:
            self._duties.append(self._tasks.create_task(self._sampler().watch(), name="rollout sampler"))
        self._asked_at = self.parts.clock.monotonic()
        return self

    def _sampler(self) -> Sampler:
        plan = self.books.plan
        power = PowerMeter.find() if plan.power else None
        return Sampler(self.books.events, self.parts, ready=lambda: len(self.shelf), every_s=plan.sample_s, power=power)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tasks is not None
        for task in (*self._duties, *self._running):
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:  # what the block raised goes on as it is, not wrapped in a group
            await self._tasks.__aexit__(None, None, None)

    @property
    def version(self) -> int:
        return self.parts.engine.version

    @property
    def over(self) -> bool:
        """True when no further group can become final."""
        return not self._admitting and not self._running

    def stop(self, reason: str) -> None:
        """End the run early: nobody new is admitted, what runs is cancelled and stays `open`."""
        self.books.stop(reason)
        for task in (*self._duties[:1], *self._running):
            task.cancel()
        self.parts.board.move()

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batches until no more can come; RolloutStopped when the run was ended early."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> Batch | None:
        """Wait for a batch. It was recorded in the ledger, and holds nothing uncleared, quarantined, or older than the gap."""
        self._asked_at = None
        if self._shipped is None:  # else it was never handed out: nothing was learned from it
            self._learned()
        try:
            while True:
                self.books.changed.clear()
                if self.books.stopped:
                    raise RolloutStopped(self.books.stopped)
                gone, over = 0, self.over  # as it was before we looked: what comes while we look is looked at again
                if self._shipped is None:
                    gone = await run_shielded(self._ship_next(last=over))
                if self._shipped is not None:
                    batch, self._shipped = self._shipped, None
                    return batch
                if gone or self.books.changed.is_set():
                    continue  # a batch that was refused may be whole without whom it was refused for
                if over:
                    return None
                await self.books.changed.wait()
        finally:
            self._asked_at = self.parts.clock.monotonic()

    async def _ship_next(self, *, last: bool) -> int:
        """Ship where a batch is complete; return how many groups are done with. Finished once begun: a caller that is cancelled
        in the middle finds the batch at its next call, since the ledger has it already."""
        async with self._publishing:
            self._shipped, gone = await self.delivery.next(self.version, last=last)
        if self._shipped is not None:
            self._learning = len(self._shipped.groups)
        self._outstanding -= gone - self._learning
        if gone:
            self.parts.board.move()
        return gone

    async def publish(self, weights: Path | None) -> PublishReport:
        """Bring new weights to the engine as the next version. Raises EngineLost when they do not load: the old ones stay."""
        limit_s = self.books.plan.publish_s
        async with self._publishing:
            with self.books.meter.stage("publication"):
                began = self.parts.clock.monotonic()
                try:
                    async with deadline(self.parts.clock, limit_s):
                        report = await self.parts.engine.publish(weights, self.version + 1)
                except TimeoutError as error:
                    raise EngineLost(f"the engine took no weights within {limit_s:g} s (publish_s)") from error
                self.books.events.note("published", version=report.version, began=began)
        self._learned()
        self.books.changed.set()
        return report

    def _learned(self) -> None:
        """The trainer is done with its batch: what is admitted from now on begins with what came of it."""
        self._outstanding -= self._learning
        self._learning = 0
        self.parts.board.move()

    @contextmanager
    def updating(self) -> Iterator[None]:
        """While a learner works under a deadline of its own: the watchdog does not take that for a trainer that is gone."""
        self._updating = True
        try:
            yield
        finally:
            self._updating = False
            self.parts.board.move()

    async def settle(self, *, check: bool = False) -> None:
        """After the end: look once more at what every trajectory's clearance is, since a later check may have reached it. With
        `check` every namespace is read at depth before, as the end of its pool would do when nobody counts any more."""
        if check:
            await self.parts.pool.audit_namespaces(Depth.DEEP)
        await self.delivery.settle()

    def holds(self) -> Mapping[str, Any]:
        """What is in the way, for people: who holds what, where each trajectory is, what waits for the trainer."""
        idle = None if self._asked_at is None else round(self.parts.clock.monotonic() - self._asked_at, 1)
        return {
            "dependencies": self.parts.limits.held(),
            "trajectories": self.parts.board.shown(),
            "admission": self._gate.why,
            "trainer": f"has not asked for a batch for {idle} s; {len(self.shelf)} groups are ready" if idle is not None else "",
        }

    def _quiet_s(self) -> float:
        """How long nothing moved while there is something to do."""
        over = self.over and not len(self.shelf)
        return 0.0 if over or self._updating else self.parts.board.quiet_s

    async def _admit(self) -> None:
        """Start groups one after the other, each when the gate lets it."""
        plan = self.books.plan
        try:
            number = trained = 0
            while trained < plan.groups and (chosen := await self._gate.next()) is not None:
                task, decision = chosen
                selector = self.books.selector
                purpose = Purpose.TRAIN if selector is None else selector.chose(task.id)
                trained += purpose is Purpose.TRAIN
                self.books.events.note(
                    "select", group=f"{plan.run}-{number}", task=task.id, family=task.family, purpose=purpose.value
                )
                group = Group(
                    id=f"{plan.run}-{number}",
                    number=number,
                    task=task,
                    size=plan.group_rule.size if selector is None or purpose is Purpose.TRAIN else selector.rule.scouts,
                    began=self.parts.clock.monotonic(),
                    purpose=purpose,
                )
                number += 1
                self._outstanding += 1
                for index in range(group.size):  # counted from now on, not from when its task first runs
                    self.parts.board.enter(f"{group.id}-{index}", Phase.SESSION)
                assert self._tasks is not None
                running = self._tasks.create_task(self._group(group, round(decision.score * 100)), name=f"group {group.id}")
                self._running.add(running)
                running.add_done_callback(self._group_ended)
                await asyncio.sleep(0)
        finally:
            self._admitting = False
            self.books.changed.set()

    def _group_ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.parts.board.move()
        self.books.changed.set()

    async def _group(self, group: Group, priority: int) -> None:
        """Run all members to their end; one that fails changes no other."""
        if self.books.plan.branch_turn and group.size > 1 and group.purpose is Purpose.TRAIN:
            await self._branching.run(group, priority)
        else:
            async with asyncio.TaskGroup() as members:
                for index in range(group.size):
                    members.create_task(self._members.run(group, index, priority), name=f"member {group.id}-{index}")
        if self.books.selector is not None:
            went = [bool(record.success) for record in group.survivors.values()]
            self.books.selector.observed(group.task.id, went)
        kept = await self.delivery.closed(group)
        self.books.events.note("final", group=group.id, kept=kept)
        if not kept:
            self._outstanding -= 1
