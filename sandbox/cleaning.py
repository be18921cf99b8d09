"""Deletes what nothing needs any more, within one home: leftovers of killed managers, superseded snapshots, old evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox import plugins
from sandbox.errors import AutoclaveError
from sandbox.model import Snapshot, SnapshotId
from sandbox.plugins import Group
from sandbox.ports import Ledger
from sandbox.settings import Settings
from sandbox.wiring import environment, machinery


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was deleted (or would be). `evidence` counts rows of the ledger; it is 0 in a dry run, which does not open them."""

    snapshots: tuple[SnapshotId, ...]
    leftovers: tuple[str, ...]
    evidence: int
    used_mb: int
    kept: tuple[str, ...]  # why snapshots of unknown environments were kept


async def clean(settings: Settings, *, evidence_older_than_s: float, keep_checks: int, dry_run: bool) -> Cleaned:
    """Clean one home. Raises PoolBroken when a manager holds it."""
    async with machinery(settings) as (runtime, ledger):
        known = await ledger.snapshots()
        stale, kept = await _superseded(settings, ledger, known)
        leftovers: tuple[str, ...] = ()
        evidence = 0
        if dry_run:
            leftovers = await runtime.sweep(dry_run=True)
        else:
            for snapshot in stale:
                await ledger.forget_snapshot(snapshot.id)
            remaining = [sealed for snapshot in known if snapshot not in stale for sealed in snapshot.dirs]
            swept = (*await runtime.sweep(), *await runtime.storage.sweep(remaining))
            leftovers = (*swept, *await runtime.sweep())  # what stood on snapshots that have gone now
            evidence = await ledger.prune(evidence_older_than_s=evidence_older_than_s, keep_checks=keep_checks)
        return Cleaned(
            snapshots=tuple(snapshot.id for snapshot in stale),
            leftovers=leftovers,
            evidence=evidence,
            used_mb=await runtime.storage.usage_bytes() // 1_000_000,
            kept=kept,
        )


async def _superseded(settings: Settings, ledger: Ledger, known: Sequence[Snapshot]) -> tuple[list[Snapshot], tuple[str, ...]]:
    """Return the snapshots whose environment has another digest now, or that a session saved and no namespace stands on.

    An environment that cannot be opened keeps its snapshots: gc never deletes for want of knowledge.
    """
    names = {n.environment: n.environment_name for n in await ledger.namespaces(retired=True)}
    in_use = {n.snapshot for n in await ledger.namespaces()}
    current: dict[str, str | None] = {}
    kept: list[str] = []
    for name in sorted(set(names.values()) | set(plugins.offered(Group.ENVIRONMENTS))):
        try:
            current[name] = environment(name, settings).spec.digest
        except AutoclaveError as error:
            current[name] = None
            kept.append(f"environment {name} cannot be opened ({error.message}): its snapshots stay")
    living = set(current.values())
    needed = {
        s.id
        for s in known
        if s.id in in_use or (s.environment in living and not _of_a_session(s)) or current.get(names.get(s.environment, "")) is None
    }
    by_id = {s.id: s for s in known}
    for snapshot in [by_id[i] for i in needed]:
        parent = snapshot.parent
        while parent is not None and parent in by_id and parent not in needed:
            needed.add(parent)
            parent = by_id[parent].parent
    return [s for s in known if s.id not in needed], tuple(kept)


def _of_a_session(snapshot: Snapshot) -> bool:
    """A session forks what it saved while it lives; a golden has no parent, and a task's start state names its task."""
    return snapshot.parent is not None and snapshot.task is None
