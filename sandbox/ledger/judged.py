"""How the latest trajectories of an environment came out of their checks: what its quarantine rate is counted from."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.ledger.rows import text
from sandbox.ledger.store import Store
from sandbox.ledger.writer import Operation, Transaction
from sandbox.model import TrajectoryId

# One that no check could judge (a lost host, a killed manager) says nothing of the reset. A person's release does not undo that a
# check had failed. The order is that of the first checks after the leases, as a pool hears of them.
_JUDGED = (
    "SELECT leases.trajectory, held.check_id IS NOT NULL AS quarantined FROM leases"
    " LEFT JOIN quarantines AS held ON held.id = leases.quarantine"
    " LEFT JOIN checks AS first ON first.id = leases.end_check"
    " JOIN checks AS last ON last.id = coalesce(held.check_id, leases.cleared_by)"
    " WHERE leases.environment = ?1 AND last.number > coalesce((SELECT max(resumptions.after) FROM resumptions"
    " JOIN namespaces ON namespaces.environment_name = resumptions.environment_name WHERE namespaces.environment = ?1), 0)"
    " ORDER BY coalesce(first.number, last.number) DESC LIMIT ?2"
)


class Judged(Store):
    async def judged(self, environment: str, *, limit: int) -> Mapping[TrajectoryId, bool]:
        """Return the latest trajectories of an environment (by digest) that a check judged since its leasing was last resumed,
        oldest first, and whether a check put each into quarantine."""
        rows = await self._read(lambda db: db.execute(_JUDGED, (environment, limit)).fetchall())
        return {TrajectoryId(row["trajectory"]): bool(row["quarantined"]) for row in reversed(rows)}

    async def resume(self, environment_name: str, *, by: str, note: str) -> None:
        """Record that a person lets an environment be leased again: what was judged until now counts no more."""

        def work(tx: Transaction) -> None:
            tx.db.execute(
                "INSERT INTO resumptions (environment_name, after, at, person, note)"
                " VALUES (?, (SELECT coalesce(max(number), 0) FROM checks), ?, ?, ?)",
                (environment_name, tx.at, text(by), text(note)),
            )

        await self._write(Operation.RESUME, work)
