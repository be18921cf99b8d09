"""The pool's own view of its namespaces, and who among them is ready for whom.

The ledger decides; what is here is what the ledger last said, plus the live instance.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sandbox.actions import Unrecorded
from sandbox.actions.log import Recorder
from sandbox.breaker import Breaker
from sandbox.errors import AutoclaveError, PoolBroken
from sandbox.lifecycle import State
from sandbox.model import (
    Baseline,
    CheckOutcome,
    EnvironmentSpec,
    NamespaceId,
    NamespaceRecord,
    Snapshot,
    SnapshotId,
    TrajectoryId,
)
from sandbox.pool.alarm import QuarantineRate
from sandbox.pool.hosts import Host
from sandbox.pool.limits import PoolLimits
from sandbox.pool.waiting import WaitingLine
from sandbox.ports import Clock, Environment, Instance, Ledger, Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the pool is given."""

    ledger: Ledger
    runtime: Runtime
    clock: Clock
    limits: PoolLimits
    actions: Recorder = field(default_factory=Unrecorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """A sealed snapshot that leases may start from, and what fresh instances of it read."""

    snapshot: Snapshot
    baseline: Baseline
    fork: bool = False  # a session's own snapshot: its baseline is that of the state it grew from
    instance: Baseline | None = None  # where namespaces share one: what it reads as a whole


@dataclass(slots=True, eq=False, kw_only=True)
class Namespace:
    """A live namespace."""

    environment: Prepared
    start: StartState
    record: NamespaceRecord
    instance: Instance | None = None
    identity: bool = False  # the present lineage opened with a physical proof
    resets_since_deep: int = 0
    deep_since: float | None = None  # monotonic: the oldest release that no deep check has followed
    deep_wanted: bool = False
    leaving: bool = False  # to be retired after its next clean check
    host: Host | None = None  # the instance that it shares with others
    checked: datetime | None = None
    born: float = 0.0

    @property
    def id(self) -> NamespaceId:
        return self.record.id

    @property
    def state(self) -> State:
        return State(self.record.state)

    @property
    def generation(self) -> int:
        return self.record.generation

    def live(self) -> Instance:
        assert self.instance is not None, f"{self.id} has no instance"
        return self.instance


class Superseded(AutoclaveError):
    """Tells who waits that a newer version has taken the environment's place. It never leaves the pool."""


class Prepared:
    """One environment that leases can be had of: its golden and task start states, its namespaces and who waits for them."""

    def __init__(self, environment: Environment, golden: StartState, *, size: int, ports: Ports) -> None:
        limits, clock = ports.limits, ports.clock
        self.environment = environment
        self.golden = golden
        self.starts: dict[str, StartState] = {}
        self.size = size
        self.broken: Exception | None = None  # a broken seal retires the environment
        self.members: dict[NamespaceId, Namespace] = {}
        self.hosts: list[Host] = []  # where namespaces share instances
        self.creating = 0
        self.leased = 0
        self.cycle_s = 1.0  # how long a lease and its reset take, smoothed: for `retry_after_s`
        self.breaker = Breaker(clock=clock, threshold=limits.breaker_failures, pause_s=limits.breaker_pause_s)
        self.waiting: WaitingLine[Namespace] = WaitingLine(clock=clock, limit=limits.queue, ageing_s=limits.ageing_s)
        policy = self.spec.check
        self.rate = QuarantineRate(limit=policy.quarantine_limit, window=policy.quarantine_window)
        self.halted: AutoclaveError | None = None  # a person must look before leases are given again
        self.successor: Prepared | None = None  # the newer version that has taken its place
        self.former: list[Prepared] = []  # older versions that still hold some of its places
        self._ready: dict[SnapshotId, deque[Namespace]] = {}

    def breaks(self, error: AutoclaveError) -> None:
        """No namespace of it is made any more, and whoever waits for one learns why."""
        self.broken = error
        self.waiting.fail_all(error)

    def judged(self, outcome: CheckOutcome) -> None:
        """Take note of what a check said of trajectories; too many in quarantine stop the leasing."""
        self.rate.note(cleared=outcome.cleared, quarantined=outcome.quarantined)
        self._halt_above_limit()

    def remember(self, judged: Mapping[TrajectoryId, bool]) -> None:
        """Go on counting where a former manager ended: what it had stopped stays stopped."""
        for trajectory, bad in judged.items():
            self.rate.note(cleared=() if bad else (trajectory,), quarantined=(trajectory,) if bad else ())
        self._halt_above_limit()

    def _halt_above_limit(self) -> None:
        if self.halted is not None or not self.rate.over:
            return
        self.halted = PoolBroken(
            f"no leases of {self.name}: {self.rate.quarantined} of its last {self.rate.judged} trajectories were quarantined, and"
            f" check.quarantine_limit is {self.rate.limit:g}",
            fix=f"`autoclave quarantine list` shows why; then `autoclave pool resume {self.name} --by NAME --reason WHY`",
        )
        log.error("leasing stopped", extra={"event": "pool.halted", "environment": self.name, **self.rate.as_json()})
        self.waiting.fail_all(self.halted)

    def resume(self) -> None:
        """Give leases again, and count anew."""
        self.halted = None
        self.rate.forget()

    @property
    def latest(self) -> Prepared:
        """The version that leases are had of now."""
        return self if self.successor is None else self.successor.latest

    @property
    def spec(self) -> EnvironmentSpec:
        return self.environment.spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def missing(self) -> int:
        """How many namespaces are to be made."""
        if self.broken or self.successor:
            return 0
        held = sum(len(version.members) + version.creating for version in (self, *self.former))
        return self.size - held

    @property
    def can_come(self) -> bool:
        """True where a namespace may come free without that any lease ends."""
        coming = sum(len(version.members) - version.leased + version.creating for version in (self, *self.former))
        return self.broken is None and self.successor is None and (coming > 0 or (self.missing > 0 and not self.breaker.is_open))

    def ready(self) -> Iterator[Namespace]:
        """Iterate over those that nobody has claimed."""
        for line in self._ready.values():
            yield from line

    def take(self, snapshot: SnapshotId) -> Namespace | None:
        """Claim a ready one, of that start state where there is one, else of golden, else any."""
        for wanted in (snapshot, self.golden.snapshot.id, *self._ready):
            if line := self._ready.get(wanted):
                found = line.popleft()
                if not line:
                    del self._ready[wanted]
                return found
        return None

    def claim(self, namespace: Namespace) -> bool:
        """Claim this one; False when it is not ready or somebody else holds it."""
        line = self._ready.get(namespace.start.snapshot.id)
        if not line or namespace not in line:
            return False
        line.remove(namespace)
        if not line:
            del self._ready[namespace.start.snapshot.id]
        return True

    def put(self, namespace: Namespace) -> None:
        """Hand a claimed or newly ready namespace to the first who waits, else keep it as a spare."""
        if namespace.state is not State.READY or namespace.id not in self.members:
            return
        if namespace.host is not None and namespace.host.hold(namespace):
            return
        if self.waiting.hand(namespace):
            return
        line = self._ready.setdefault(namespace.start.snapshot.id, deque())
        if namespace not in line:
            line.append(namespace)
