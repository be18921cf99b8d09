"""From final groups to batches: what is dropped, what is stale, what the ledger lets ship; and what a later check took back."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from rollout.batches import Batch, Sample, Shelf
from rollout.books import Books
from rollout.groups import Group, advantages_of, refusal
from rollout.record import Trajectory
from rollout.running.runner import Parts
from rollout.terms import Late, State
from sandbox.errors import NotCleared
from sandbox.model import ClearanceState, TrajectoryId

log = logging.getLogger(__name__)
LATER = "a later check took its clearance back"


class Delivery:
    """Ships each group once."""

    def __init__(self, books: Books, parts: Parts, shelf: Shelf) -> None:
        self._books = books
        self._parts = parts
        self._shelf = shelf
        self._count = 0
        self._off_policy: list[Group] = []
        self.batches: list[str] = []
        self.quarantined_in_batches: set[str] = set()
        self.shipped: dict[str, Trajectory] = {}  # without tokens: a run may be long

    async def closed(self, group: Group) -> bool:
        """Take a final group in; True when it waits for a batch, False when it was dropped or is late."""
        if (why := refusal(group, self._books.plan.group_rule)) is not None:
            await self._give_up(group, State.DROPPED, why)
            return False
        if self._shelf.missed(group):
            await self._give_up(group, State.STALE, "its batch went without it")
            return False
        self._shelf.put(group)
        self._books.changed.set()
        return True

    async def next(self, version: int, *, last: bool) -> tuple[Batch | None, int]:
        """Return the next batch where there is one, and how many groups are done with (shipped, stale, dropped)."""
        await self._look_again()
        if self._books.stopped:
            return None, 0
        gone = await self._sort_out(version)
        groups = self._shelf.cut(last=last)
        if groups is None:
            name, late = await self._late(version) if last else ("", ())
            apart = Batch(id=name, version=version, samples=(), groups=(), off_policy=late, off_policy_id=name)
            return (apart if late else None), gone
        gone += len(groups)
        began = self._parts.clock.monotonic()
        samples = self._samples(groups, version)
        too_old = [s for s in samples if s.gap > self._shelf.rule.max_gap]
        if too_old:  # the hard guarantee, whatever came before
            raise AssertionError(f"{len(too_old)} trajectories beyond the gap were about to ship: {too_old[0].trajectory.id}")
        batch = Batch(id=self._name(""), version=version, samples=samples, groups=tuple(g.id for g in groups))
        refused = await self._ship(batch.id, samples, version)
        if refused:
            return None, gone - await self._put_back(groups, refused)
        for sample in samples:
            await self._settled(sample, State.ACCEPTED, batch.id)
        self.batches.append(batch.id)
        self._books.events.note(
            "batch",
            batch=batch.id,
            version=version,
            groups=batch.groups,
            trajectories=[s.trajectory.id for s in samples],
            began=began,
        )
        name, late = await self._late(version)
        return replace(batch, off_policy=late, off_policy_id=name), gone

    async def settle(self) -> None:
        """Look at every trajectory once more; what shipped and lost its clearance since is counted as quarantined in a batch."""
        shipped = [TrajectoryId(t) for t in self.shipped]
        leased = [TrajectoryId(t) for t, record in self._books.records.items() if record.lease]
        if shipped:
            with suppress(NotCleared):
                await self._parts.pool.cleared(shipped, timeout=self._books.plan.clear_s)
        found = await self._parts.pool.clearance(leased) if leased else {}
        for trajectory, clearance in found.items():
            if clearance.state not in (ClearanceState.QUARANTINED, ClearanceState.DISCARDED):
                continue
            self._books.contaminated.add(trajectory)
            if trajectory not in self.shipped:
                continue
            self.quarantined_in_batches.add(trajectory)
            if self._books.accounts.state(trajectory) is not State.QUARANTINED:
                await self._books.settle(self.shipped[trajectory], State.QUARANTINED, LATER, clearance=clearance)

    async def _look_again(self) -> None:
        """Where batches do not wait for clearances, what was found meanwhile is heard of before the next, so that the alarm may
        sound."""
        if self._books.watched and len(self._shelf) >= self._shelf.rule.least:
            for clearance in (await self._parts.pool.clearance(sorted(self._books.watched))).values():
                if clearance.state is not ClearanceState.PENDING:
                    self._books.saw(clearance)

    def _samples(self, groups: list[Group], version: int) -> tuple[Sample, ...]:
        rule, weight = self._books.plan.group_rule, self._shelf.rule.weight
        out: list[Sample] = []
        with self._books.meter.stage("advantage"):
            for group in groups:
                gap = version - group.oldest_version
                given = advantages_of(group, rule)
                out += [Sample(trajectory=t, advantage=given[t.id], gap=gap, weight=weight(gap)) for t in group.survivors.values()]
        return tuple(out)

    async def _ship(self, name: str, samples: tuple[Sample, ...], version: int) -> set[str]:
        """Record the batch; return those that the ledger refuses (then nothing was shipped)."""
        ids = [s.trajectory.id for s in samples]
        try:
            await self._parts.pool.ship(name, ids, policy_version=str(version), mode=self._shelf.rule.mode)
        except NotCleared as error:
            log.warning("a batch was refused", extra={"event": "rollout.refused", "batch": name, "refused": dict(error.clearances)})
            return set(error.clearances)
        self.shipped |= {s.trajectory.id: s.trajectory.without_tokens() for s in samples}
        return set()

    async def _put_back(self, groups: list[Group], refused: set[str]) -> int:
        """Take the refused ones out of their groups; return how many groups are whole enough to wait again."""
        kept = 0
        found = await self._parts.pool.clearance([TrajectoryId(t) for t in sorted(refused)])
        for group in groups:
            for name in [t.id for t in group.survivors.values() if t.id in refused]:
                record = group.take_out(name)
                clearance = found.get(TrajectoryId(name))
                if record is not None:
                    await self._books.settle(replace(record, reward=None), State.QUARANTINED, LATER, clearance=clearance)
                    self._books.contaminated.add(name)
            if (why := refusal(group, self._books.plan.group_rule)) is not None:
                await self._give_up(group, State.DROPPED, why)
            else:
                self._shelf.put(group)
                kept += 1
        return kept

    async def _sort_out(self, version: int) -> int:
        """Take the groups beyond the gap off the shelf: stale, or kept apart where the rule keeps them."""
        old = self._shelf.too_old(version)
        for group in old:
            if self._shelf.rule.late is Late.KEEP_OFF_POLICY:
                self._off_policy.append(group)
            else:
                gap = version - group.oldest_version
                await self._give_up(group, State.STALE, f"{gap} versions old, {self._shelf.rule.max_gap} may be")
        return len(old)

    async def _late(self, version: int) -> tuple[str, tuple[Sample, ...]]:
        """Hand out what lies beyond the gap, recorded as a batch of its own, whose name comes first."""
        groups, self._off_policy = self._off_policy, []
        if not groups:
            return "", ()
        samples = self._samples(groups, version)
        name = self._name("-off-policy")
        if refused := await self._ship(name, samples, version):
            for group in groups:
                for record in list(group.survivors.values()):
                    state = State.QUARANTINED if record.id in refused else State.STALE
                    await self._books.settle(record, state, LATER if record.id in refused else "its late batch was refused")
            return "", ()
        for sample in samples:
            await self._settled(sample, State.OFF_POLICY, name)
        self.batches.append(name)
        return name, samples

    async def _settled(self, sample: Sample, state: State, batch: str) -> None:
        await self._books.settle(
            sample.trajectory, state, advantage=sample.advantage, weight=sample.weight, gap=sample.gap, batch=batch
        )

    async def _give_up(self, group: Group, state: State, reason: str) -> None:
        for record in group.survivors.values():
            await self._books.settle(record, state, reason)

    def _name(self, suffix: str) -> str:
        self._count += 1
        return f"{self._books.plan.run}-batch-{self._count}{suffix}"
