"""What goes while the pool is up, by itself: snapshots that no session can fork any more, and evidence nobody decides by."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from sandbox.errors import LedgerConflict, RecordMissing
from sandbox.model import Snapshot, SnapshotId
from sandbox.pool.leasing import Leasing
from sandbox.pool.members import Ports, Prepared
from sandbox.pool.preparation import Preparer

log = logging.getLogger(__name__)


def of_a_session(snapshot: Snapshot) -> bool:
    """True for what a session saved; a golden has no parent, and a task's start state names its task."""
    return snapshot.parent is not None and snapshot.task is None


class SpentSnapshots:
    """Forgets and removes what sessions saved, once the session and every fork of it have ended.

    The ledger's record goes first: data without a record is swept at the next start, a record without data would be trusted.
    """

    def __init__(
        self, ports: Ports, *, preparer: Preparer, leasing: Leasing, environments: Callable[[], Collection[Prepared]]
    ) -> None:
        self.every_s = ports.limits.retention_s
        self._ports = ports
        self._preparer = preparer
        self._leasing = leasing
        self._environments = environments
        self._since: dict[SnapshotId, float] = {}  # when each was first seen to be needed by nobody

    async def round(self) -> None:
        known = [s for s in await self._ports.ledger.snapshots() if of_a_session(s)]
        needed = await self._needed() if known else set()
        now = self._ports.clock.monotonic()
        self._since = {s.id: self._since.get(s.id, now) for s in known if s.id not in needed}
        gone = 0
        for snapshot in reversed(known):  # what grew from another goes before it
            # A fork that began as its parent's lease ended may still be on its way to the snapshot.
            if now - self._since.get(snapshot.id, now) >= self._ports.limits.snapshot_grace_s:
                gone += await self._remove(snapshot)
        if gone:
            log.info("session snapshots removed", extra={"event": "pool.snapshots_removed", "count": gone})

    async def _needed(self) -> set[SnapshotId]:
        """Return what a living session may fork, and what a namespace stands on or is being reset from."""
        saved = {name for session in self._leasing.sessions.values() for name in session.saved}
        stood = {n.start.snapshot.id for prepared in self._environments() for n in prepared.members.values()}
        return saved | stood | {n.snapshot for n in await self._ports.ledger.namespaces()}

    async def _remove(self, snapshot: Snapshot) -> bool:
        try:
            await self._ports.ledger.forget_snapshot(snapshot.id)
        except (LedgerConflict, RecordMissing):  # another grew from it, which has not gone yet
            return False
        await self._preparer.remove(snapshot)
        self._since.pop(snapshot.id, None)
        return True


class OldEvidence:
    """Deletes rows that vouch for nothing and are older than the limits say; what a person has yet to decide on stays."""

    def __init__(self, ports: Ports) -> None:
        self.every_s = ports.limits.evidence_every_s
        self._ports = ports

    async def round(self) -> None:
        limits = self._ports.limits
        gone = await self._ports.ledger.prune(evidence_older_than_s=limits.evidence_s, keep_checks=limits.keep_checks)
        if gone:
            log.info("old evidence deleted", extra={"event": "pool.evidence_deleted", "rows": gone})
