"""The durable store of leases, transitions, checks and clearances.

Each method is one transaction, durable when it returns. Compare-and-set decides: a method that finds another state, generation
or lease than it was told raises LedgerConflict and writes nothing. Rules of clearing and windows are `sandbox.quarantine`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sandbox.lifecycle import Event
from sandbox.model import (
    Baseline,
    BatchId,
    CheckOutcome,
    CheckpointId,
    Clearance,
    ClearanceState,
    Depth,
    InstanceId,
    Lease,
    LeaseId,
    NamespaceId,
    NamespaceRecord,
    QuarantineId,
    Recall,
    ResetMethod,
    Snapshot,
    SnapshotId,
    StoredScore,
    TrajectoryId,
    UpdateId,
    Verdict,
    WindowPolicy,
)


class Ledger(Protocol):
    # namespaces
    async def create_namespace(self, record: NamespaceRecord) -> None: ...
    async def namespace(self, namespace: NamespaceId) -> NamespaceRecord: ...
    async def namespaces(self, *, retired: bool = False) -> Sequence[NamespaceRecord]: ...
    async def transition(
        self, namespace: NamespaceId, event: Event, *, generation: int, note: str = "", identity: bool = False
    ) -> NamespaceRecord:
        """Move one namespace by the table, provided that its generation is the given one; write one transition row.
        `identity` goes with STARTED: the first lineage opens with a physical proof."""

    # leases
    async def lease(
        self,
        namespace: NamespaceId,
        *,
        generation: int,
        lease: LeaseId,
        trajectory: TrajectoryId,
        holder: str,
        task: str | None,
        ttl_s: float,
        parent: TrajectoryId | None = None,
    ) -> Lease:
        """READY -> LEASED with the next sequence number; the trajectory begins as pending. The start check is the namespace's
        last one (or, for a fork, what `fork_check` recorded)."""

    async def renew(self, lease: LeaseId, ttl_s: float) -> datetime: ...
    async def end_lease(self, lease: LeaseId, *, outcome: str, event: Event = Event.RELEASE) -> NamespaceRecord:
        """LEASED -> RESETTING (or what `event` says). `outcome`: released, expired, lost, killed."""

    async def leases(self, *, open_only: bool = True) -> Sequence[Lease]: ...

    # resets and checks
    async def begin_reset(self, namespace: NamespaceId, method: ResetMethod, *, generation: int, target: SnapshotId) -> None:
        """Write the intent before anything is swapped. State must be RESETTING and generation the present one."""

    async def end_reset(
        self,
        namespace: NamespaceId,
        *,
        generation: int,
        new_generation: int,
        replaced: bool,
        snapshot: SnapshotId,
        identity: bool,
        seconds: float,
        details: Mapping[str, Any],
    ) -> NamespaceRecord:
        """RESETTING -> VERIFYING under the new generation. `replaced` begins a new lineage (with or without `identity`)."""

    async def record_check(
        self, namespace: NamespaceId, verdict: Verdict, *, generation: int, window: WindowPolicy, purpose: str
    ) -> CheckOutcome:
        """Record a verdict in state VERIFYING with all that follows from it, in one transaction: check and mismatches,
        watermarks, clearances or quarantine (shipped ones too, with the recall), and VERIFYING -> READY or QUARANTINED.
        `purpose`: opening, reset, closing (before a lineage is replaced: state goes back to RESETTING instead of READY),
        recheck, drain, audit."""

    async def fork_check(
        self, namespace: NamespaceId, verdict: Verdict, *, generation: int, parent: TrajectoryId
    ) -> CheckOutcome: ...
    async def abandon(self, namespace: NamespaceId, *, note: str, depth: Depth | None = None) -> CheckOutcome:
        """End trajectories as quarantined/unverified (lost instance, no closing check): with `depth` those that
        `pending(namespace, depth)` lists (also when they are cleared at a lesser depth), so that a first holder can still be
        cleared by the successor's check; with None every one of the namespace that is still pending. Open leases count too."""

    async def pending(self, namespace: NamespaceId, depth: Depth) -> Sequence[Lease]:
        """Return ended leases of the present lineage whose trajectories still wait for a check of that depth on it (all but
        those that a successor's check may clear)."""

    # instances that several namespaces share: each has a record of its own, made by `create_namespace` with `shares`
    async def instances(self, *, retired: bool = False) -> Sequence[NamespaceRecord]: ...
    async def record_instance_check(self, instance: InstanceId, verdict: Verdict, *, generation: int, purpose: str) -> CheckOutcome:
        """Record a deep verdict on the whole instance in state VERIFYING; nobody may hold a lease on it. Clean: the watermark of
        the instance rises, and what its own namespace cleared at deep is cleared at deep. Otherwise every trajectory on it since
        the last clean one is quarantined. `purpose`: opening, barrier, drain, audit. A verdict on a namespace that holds
        mismatches of the shared instance (`Mismatch.shared`) has the same consequences: see `record_check`."""

    async def abandon_instance(self, instance: InstanceId, *, note: str, depth: Depth) -> CheckOutcome:
        """End as quarantined/unverified what still waits for a check of this instance (lost, or replaced): pending trajectories,
        and with depth deep also those cleared at quick."""

    async def oldest_pending(self, environment: str) -> Mapping[NamespaceId, datetime]: ...

    # clearance
    async def clearances(self, trajectories: Sequence[TrajectoryId]) -> Mapping[TrajectoryId, Clearance]: ...
    async def set_aside(
        self, trajectories: Sequence[TrajectoryId], state: ClearanceState, *, by: str, note: str
    ) -> Sequence[Clearance]:
        """A person's act: RELEASED or DISCARDED, only from quarantined, with a name and a reason."""

    async def judged(self, environment: str, *, limit: int) -> Mapping[TrajectoryId, bool]:
        """Return the latest trajectories of an environment (by digest) that a check judged since its leasing was last resumed,
        oldest first, and whether a check put each into quarantine."""

    async def resume(self, environment_name: str, *, by: str, note: str) -> None:
        """Record that a person lets an environment be leased again: what was judged until now counts no more."""

    def on_change(self, callback: Callable[[Sequence[TrajectoryId]], None]) -> Callable[[], None]:
        """Call back (in the event loop) after clearances changed; returns the function that unsubscribes."""

    async def quarantines(self) -> Sequence[Mapping[str, Any]]: ...
    async def quarantine(self, quarantine: QuarantineId) -> Mapping[str, Any]: ...
    async def why(self, trajectory: TrajectoryId) -> Mapping[str, Any]:
        """Return everything about one trajectory: lease, start and end checks, window, lineage, siblings, batches, updates."""

    async def suspects(self, name: str) -> Mapping[str, Any]:
        """Return, for a quarantine, a check or a trajectory, what differed and the leases that may have left it."""

    # shipping
    async def ship(
        self,
        batch: BatchId,
        trajectories: Sequence[TrajectoryId],
        *,
        policy_version: str,
        required: Mapping[str, Depth],
        mode: str = "gated",
    ) -> Mapping[str, Any]:
        """Compare-and-set of the clearances and the record of the batch. `required` maps an environment's digest to its depth.
        Raises NotCleared (nothing written), also when another batch already holds one of them. Idempotent for the same batch
        id and contents."""

    async def record_update(self, update: UpdateId, batches: Sequence[BatchId], checkpoint: CheckpointId | None) -> None: ...
    async def record_checkpoint(self, checkpoint: CheckpointId, updates: Sequence[UpdateId]) -> None: ...
    async def recall(self, quarantine: QuarantineId | None = None) -> Recall: ...
    async def join_group(self, group: str, trajectories: Sequence[TrajectoryId]) -> None:
        """Record that they are siblings (one task), so that a recall can name them."""

    # what was built
    async def save_snapshot(self, snapshot: Snapshot) -> None: ...
    async def snapshot(self, snapshot: SnapshotId) -> Snapshot: ...
    async def snapshots(self, environment: str | None = None) -> Sequence[Snapshot]: ...
    async def forget_snapshot(self, snapshot: SnapshotId) -> None: ...
    async def save_baseline(self, baseline: Baseline, *, environment: str, environment_name: str) -> None: ...
    async def baseline(self, key: str) -> Baseline | None: ...
    async def baselines(self, environment_name: str | None = None) -> Sequence[Baseline]: ...
    async def save_score(self, score: StoredScore) -> None: ...
    async def scores(self, environment_name: str | None = None) -> Sequence[StoredScore]: ...
    async def save_audit(self, report: Mapping[str, Any]) -> None: ...
    async def audits(self, limit: int = 10) -> Sequence[Mapping[str, Any]]: ...

    # upkeep
    async def history(self, namespace: NamespaceId | None = None, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Return transitions, newest first."""

    async def activity(self, since: datetime, *, limit: int = 10_000) -> Mapping[str, Any]:
        """Return, since then, `checks` with their evidence, `resets`, `leases` with their clearance, `quarantines` with their
        window."""

    async def counters(self) -> Mapping[str, Any]:
        """Return counts and percentiles for `pool status`: states, leases, checks, clearances, reset_ms, check_ms, acquire_ms."""

    async def prune(self, *, evidence_older_than_s: float, keep_checks: int) -> int: ...
    async def close(self) -> None: ...
