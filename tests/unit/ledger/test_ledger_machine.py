"""Any history of leases, resets, checks, forks, decisions, batches and crashes, against a small model of its own.

The model is written from the promises (P5, P5c, P6, P9, P10), not from the code: plain dictionaries, one long list per namespace,
every rule spelled out again.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandbox.errors import LedgerConflict, NotCleared
from sandbox.ledger import SqliteLedger, open_ledger
from sandbox.lifecycle import Event
from sandbox.model import (
    BatchId,
    ClearanceState,
    Depth,
    LeaseId,
    LineageId,
    Mismatch,
    NamespaceId,
    NamespaceRecord,
    Problem,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    Verdict,
    VerdictStatus,
    WindowPolicy,
)

NAMES = ("a", "b", "c")
LOST = ("quarantined", "discarded")


class Ticks:
    def __init__(self) -> None:
        self._ticks = count()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(self._ticks))

    def monotonic(self) -> float:
        return float(next(self._ticks))

    async def sleep(self, seconds: float) -> None: ...


@dataclass
class Trajectory:
    """The model's own record of one trajectory."""

    name: str
    space: str
    sequence: int
    lineage: int
    first: bool
    deep_start: bool
    parent: str | None
    open: bool = True
    state: str = "pending"
    deep: bool = False  # the depth of its clearance
    reason: str = ""


@dataclass
class Space:
    """The model's own record of one namespace."""

    state: str = "creating"
    generation: int = 1
    lineage: int = 0
    proof: bool = False
    check_deep: bool = False
    quick_mark: int = 0
    deep_mark: int = 0
    fork_of: str | None = None
    chain: list[Trajectory] = field(default_factory=list)

    @property
    def used(self) -> bool:
        return any(t.lineage == self.lineage for t in self.chain)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Ticks()
        self.spaces: dict[str, Space] = {}
        self.all: dict[str, Trajectory] = {}
        self.batches: dict[str, list[str]] = {}
        self.numbers = count(1)
        self._open()

    def _open(self) -> None:
        async def enter() -> tuple[AsyncExitStack, SqliteLedger]:
            stack = AsyncExitStack()
            path = Path(self.folder.name) / "ledger.sqlite"
            return stack, await stack.enter_async_context(open_ledger(path, clock=self.clock))

        self.stack, self.ledger = self.runner.run(enter())

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def refused(self, work: Any) -> None:
        with pytest.raises(LedgerConflict):
            self.runner.run(work)

    # the world

    @initialize(proofs=st.tuples(st.booleans(), st.booleans(), st.booleans()), deep=st.booleans())
    def create(self, proofs: tuple[bool, ...], deep: bool) -> None:
        for name, proof in zip(NAMES, proofs, strict=True):
            record = NamespaceRecord(
                id=NamespaceId(name),
                environment="e",
                environment_name="shop",
                snapshot=SnapshotId("s"),
                state="creating",
                generation=1,
                sequence=0,
                lineage=LineageId(name),
                runtime="memory",
                created=datetime(2026, 1, 1, tzinfo=UTC),
            )
            self.do(self.ledger.create_namespace(record))
            self.do(self.ledger.transition(NamespaceId(name), Event.STARTED, generation=1, identity=proof))
            self.spaces[name] = Space(state="verifying", proof=proof)
            self._judge(name, "clean", deep, exposed=False, purpose="opening")

    @rule(name=st.sampled_from(NAMES))
    def lease(self, name: str) -> None:
        space = self.spaces[name]
        work = self._lease(name, f"t{next(self.numbers)}", None)
        if space.state != "ready" or space.fork_of is not None:
            self.refused(work)
            return
        self._held(name, self.do(work), None)

    @rule(name=st.sampled_from(NAMES), lost=st.booleans())
    def end(self, name: str, lost: bool) -> None:
        space = self.spaces[name]
        if space.state != "leased":
            return
        last = space.chain[-1]
        event = Event.LOST if lost else Event.RELEASE
        self.do(self.ledger.end_lease(LeaseId(f"lease-{last.name}"), outcome="released", event=event))
        self.refused(self.ledger.end_lease(LeaseId(f"lease-{last.name}"), outcome="again"))
        last.open = False
        space.state = "quarantined" if lost else "resetting"

    @rule(name=st.sampled_from(NAMES), replaced=st.booleans(), proof=st.booleans())
    def reset(self, name: str, replaced: bool, proof: bool) -> None:
        space = self.spaces[name]
        if space.state == "ready":
            self._event(name, Event.RESET, "resetting")
        if space.state == "quarantined":
            self._event(name, Event.ESCALATE, "resetting")
        if space.state == "resetting":
            self._reset(name, replaced, proof)

    @rule(
        name=st.sampled_from(NAMES),
        what=st.sampled_from(["clean", "clean", "clean", "quick", "deep", "both", "silent"]),
        deep=st.booleans(),
        exposed=st.booleans(),
        purpose=st.sampled_from(["reset", "closing", "audit"]),
    )
    def check(self, name: str, what: str, deep: bool, exposed: bool, purpose: str) -> None:
        if self.spaces[name].state == "ready":
            self._event(name, Event.RECHECK, "verifying")
        if self.spaces[name].state == "verifying":
            self._judge(name, what, deep, exposed, purpose)

    @rule(name=st.sampled_from(NAMES), data=st.data(), clean=st.booleans())
    def fork(self, name: str, data: st.DataObject, clean: bool) -> None:
        space = self.spaces[name]
        if space.state != "ready" or not self.all:
            return
        parent = data.draw(st.sampled_from(sorted(self.all)))
        self._event(name, Event.RESET, "resetting")
        self._reset(name, replaced=True, proof=True)
        verdict = self._verdict("clean" if clean else "quick", deep=False)
        self.do(self.ledger.fork_check(NamespaceId(name), verdict, generation=space.generation, parent=TrajectoryId(parent)))
        if not clean:
            self._taint(space, [t for t in space.chain if t.sequence > space.quick_mark], "contaminated")
            space.state = "quarantined"
            return
        space.state, space.check_deep, space.fork_of = "ready", False, parent
        self._held(name, self.do(self._lease(name, f"t{next(self.numbers)}", parent)), parent)

    @rule(name=st.sampled_from(NAMES), depth=st.sampled_from([None, Depth.QUICK, Depth.DEEP]))
    def abandon(self, name: str, depth: Depth | None) -> None:
        space = self.spaces[name]
        self.do(self.ledger.abandon(NamespaceId(name), note="lost", depth=depth))
        gone = [t for t in space.chain if t.open and t.state == "pending"]
        for t in space.chain:
            if depth is None and t.state == "pending":
                gone.append(t)
            if depth is not None and not t.open and t.lineage == space.lineage:
                wants_deep = depth is Depth.DEEP
                short = t.state == "pending" or (t.state == "cleared" and wants_deep and not t.deep)
                by_successor = t.first and (t.deep_start or not wants_deep)
                if short and not by_successor:
                    gone.append(t)
        self._taint(space, gone, "unverified")

    # people and trainers

    @rule(data=st.data(), required=st.sampled_from(Depth), optimistic=st.booleans())
    def ship(self, data: st.DataObject, required: Depth, optimistic: bool) -> None:
        if not self.all:
            return
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.all)), min_size=1, max_size=3, unique=True))
        batch = f"b{next(self.numbers)}"
        work = self.ledger.ship(
            BatchId(batch),
            [TrajectoryId(t) for t in chosen],
            policy_version="1",
            required={"e": required},
            mode="optimistic" if optimistic else "gated",
        )
        shipped = {t for members in self.batches.values() for t in members}
        wrong = [t for t in chosen if t in shipped or not self._ships(self.all[t], required, optimistic)]
        if wrong:
            with pytest.raises(NotCleared) as refused:
                self.do(work)
            assert sorted(refused.value.clearances) == sorted(wrong)
            return
        self.do(work)
        self.batches[batch] = chosen

    @rule(data=st.data(), state=st.sampled_from([ClearanceState.RELEASED, ClearanceState.DISCARDED]))
    def decide(self, data: st.DataObject, state: ClearanceState) -> None:
        if not self.all:
            return
        name = data.draw(st.sampled_from(sorted(self.all)))
        work = self.ledger.set_aside([TrajectoryId(name)], state, by="ada", note="looked at")
        if self.all[name].state != "quarantined":
            self.refused(work)
            return
        self.do(work)
        self.all[name].state = state.value

    @rule()
    def crash(self) -> None:
        """What was acknowledged is there again, the same to the last field."""
        before = self._everything()
        self.do(self.stack.aclose())
        self._open()
        assert self._everything() == before

    # what must always hold

    @invariant()
    def every_trajectory_stands_where_the_model_says(self) -> None:
        found = self.do(self.ledger.clearances([TrajectoryId(t) for t in self.all]))
        real = {t: (c.state.value, c.depth is Depth.DEEP, (c.reason or "")) for t, c in found.items()}
        assert real == {t.name: (t.state, t.deep, t.reason) for t in self.all.values()}

    @invariant()
    def namespaces_stand_where_the_model_says(self) -> None:
        for record in self.do(self.ledger.namespaces(retired=True)):
            space = self.spaces[record.id]
            assert (record.state, record.generation, record.sequence) == (space.state, space.generation, len(space.chain))
            assert (record.quick_mark, record.deep_mark) == (space.quick_mark, space.deep_mark)

    @invariant()
    def one_holder_and_no_gap(self) -> None:
        """P9, read from the ledger alone."""
        leases = self.do(self.ledger.leases(open_only=False))
        opened = [lease.namespace for lease in self.do(self.ledger.leases())]
        assert len(opened) == len(set(opened))
        for name in NAMES:
            chain = [lease.sequence for lease in leases if lease.namespace == name]
            assert chain == list(range(1, len(chain) + 1))

    @invariant()
    def the_recall_reaches_exactly_the_batches_of_what_lost_clearance(self) -> None:
        recall = self.do(self.ledger.recall())
        lost = {t.name for t in self.all.values() if t.state in LOST}
        assert set(recall.trajectories) == lost
        assert set(recall.batches) == {b for b, members in self.batches.items() if lost & set(members)}

    @invariant()
    def pending_are_those_that_only_their_own_lineage_can_clear(self) -> None:
        for name, space in self.spaces.items():
            waiting = [lease.trajectory for lease in self.do(self.ledger.pending(NamespaceId(name), Depth.QUICK))]
            assert waiting == [
                t.name for t in space.chain if t.lineage == space.lineage and not t.open and t.state == "pending" and not t.first
            ]

    # the model's rules

    def _judge(self, name: str, what: str, deep: bool, exposed: bool, purpose: str) -> None:
        space = self.spaces[name]
        if not deep and what in ("deep", "both"):
            what = "quick"
        window = WindowPolicy.EXPOSED_ONLY if exposed else WindowPolicy.STRICT
        verdict = self._verdict(what, deep)
        self.do(self.ledger.record_check(NamespaceId(name), verdict, generation=space.generation, window=window, purpose=purpose))
        here = len(space.chain)
        if what == "clean":
            for t in space.chain:
                if t.open or t.state not in ("pending", "cleared"):
                    continue
                same = t.lineage == space.lineage
                at_deep = deep and (same or (t.first and t.deep_start))
                at_quick = same or t.first
                if at_deep or at_quick:
                    t.state, t.deep = "cleared", t.deep or at_deep
            space.quick_mark = here
            if deep:
                space.deep_mark = here
            space.state, space.check_deep = "resetting" if purpose == "closing" else "ready", deep
            return
        wide = deep and what in ("deep", "both", "silent")
        mark = space.deep_mark if wide else space.quick_mark
        hit = [t for t in space.chain if t.sequence > mark and not (exposed and (t.deep_start or not wide))]
        self._taint(space, hit, "unverified" if what == "silent" else "contaminated")
        if deep and what == "deep":
            space.quick_mark = here
        space.state = "quarantined"

    def _taint(self, space: Space, hit: list[Trajectory], reason: str) -> None:
        names = {t.name for t in hit}
        while more := {t.name for t in self.all.values() if t.parent in names} - names:
            names |= more
        for t in (self.all[name] for name in names):
            if t.state in ("pending", "cleared"):
                t.state, t.deep, t.reason = "quarantined", False, reason
            elif t.state == "quarantined" and reason == "contaminated":
                t.reason = reason

    def _held(self, name: str, lease: Any, parent: str | None) -> None:
        space = self.spaces[name]
        deep_start = (space.proof and not space.used) or space.check_deep
        if parent is not None:
            deep_start = deep_start and self.all[parent].deep_start
        t = Trajectory(lease.trajectory, name, len(space.chain) + 1, space.lineage, not space.used, deep_start, parent)
        assert (lease.sequence, lease.first_of_lineage) == (t.sequence, t.first)
        assert (lease.start_check.verified is Depth.DEEP) == deep_start
        if parent is not None and self.all[parent].state in LOST:
            t.state, t.reason = "quarantined", self.all[parent].reason
        space.chain.append(t)
        self.all[t.name] = t
        space.state = "leased"

    def _reset(self, name: str, replaced: bool, proof: bool) -> None:
        space = self.spaces[name]
        work = {
            "generation": space.generation,
            "new_generation": space.generation + 1,
            "replaced": replaced,
            "snapshot": SnapshotId("s"),
            "identity": proof,
            "seconds": 0.1,
            "details": {},
        }
        method = ResetMethod.RESTORE if replaced else ResetMethod.HOOK
        self.refused(self.ledger.end_reset(NamespaceId(name), **work))  # type: ignore[arg-type]
        self.do(self.ledger.begin_reset(NamespaceId(name), method, generation=space.generation, target=SnapshotId("s")))
        self.do(self.ledger.end_reset(NamespaceId(name), **work))  # type: ignore[arg-type]
        if replaced:
            left = [t for t in space.chain if t.lineage == space.lineage and t.state == "pending" and not t.first]
            self._taint(space, left, "unverified")
            space.lineage += 1
            space.fork_of = None
        space.generation += 1
        space.proof = replaced and proof
        space.state = "verifying"

    def _event(self, name: str, event: Event, state: str) -> None:
        space = self.spaces[name]
        self.refused(self.ledger.transition(NamespaceId(name), event, generation=space.generation + 1))
        self.do(self.ledger.transition(NamespaceId(name), event, generation=space.generation))
        space.state = state

    @staticmethod
    def _ships(t: Trajectory, required: Depth, optimistic: bool) -> bool:
        if optimistic:
            return t.state in ("pending", "cleared", "released")
        return t.state == "released" or (t.state == "cleared" and (t.deep or required is Depth.QUICK))

    @staticmethod
    def _verdict(what: str, deep: bool) -> Verdict:
        fields = {"quick": [Depth.QUICK], "deep": [Depth.DEEP], "both": [Depth.DEEP, Depth.QUICK]}.get(what, [])
        status = {"clean": VerdictStatus.CLEAN, "silent": VerdictStatus.INCONCLUSIVE}.get(what, VerdictStatus.MISMATCH)
        return Verdict(
            status=status,
            depth=Depth.DEEP if deep else Depth.QUICK,
            mismatches=tuple(Mismatch(probe="p", field=d, expected="1", actual="2", depth=d) for d in fields),
            problems=(Problem(probe="p", reason="timed out"),) if what == "silent" else (),
        )

    def _lease(self, name: str, trajectory: str, parent: str | None) -> Any:
        return self.ledger.lease(
            NamespaceId(name),
            generation=self.spaces[name].generation,
            lease=LeaseId(f"lease-{trajectory}"),
            trajectory=TrajectoryId(trajectory),
            holder="h",
            task=None,
            ttl_s=60,
            parent=None if parent is None else TrajectoryId(parent),
        )

    def _everything(self) -> Any:
        async def read() -> Any:
            return (
                await self.ledger.namespaces(retired=True),
                await self.ledger.leases(open_only=False),
                [await self.ledger.why(TrajectoryId(t)) for t in self.all],
                await self.ledger.quarantines(),
                await self.ledger.history(limit=100_000),
                await self.ledger.recall(),
            )

        return self.do(read())


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
