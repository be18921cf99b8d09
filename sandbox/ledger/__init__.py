"""The ledger on SQLite: the durable store of leases, transitions, checks and clearances.

One file in the home. A thread writes and groups what arrives together into one commit; reads see committed state beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sandbox.aio import in_thread, run_shielded
from sandbox.ledger import lock
from sandbox.ledger.activity import Activity
from sandbox.ledger.checks import Checks
from sandbox.ledger.clearance import Clearances
from sandbox.ledger.explain import Explain
from sandbox.ledger.instances import Instances
from sandbox.ledger.judged import Judged
from sandbox.ledger.knowledge import Knowledge
from sandbox.ledger.leases import Leases
from sandbox.ledger.namespaces import Namespaces
from sandbox.ledger.shipping import Shipping
from sandbox.ledger.store import Connections
from sandbox.ledger.suspects import Suspects
from sandbox.ledger.upkeep import Upkeep
from sandbox.ledger.writer import BOUNDARIES, Operation
from sandbox.ports import Clock

__all__ = ["BOUNDARIES", "Operation", "SqliteLedger", "open_ledger"]


class SqliteLedger(
    Namespaces, Leases, Checks, Instances, Clearances, Judged, Shipping, Knowledge, Explain, Suspects, Activity, Upkeep
):
    """`sandbox.ports.Ledger`, joined from its parts."""


@asynccontextmanager
async def open_ledger(
    path: Path,
    *,
    clock: Clock,
    durability: str = "normal",
    read_only: bool = False,
    lock_wait_s: float = 0.0,
    boundary: Callable[[str], None] | None = None,
) -> AsyncIterator[SqliteLedger]:
    """Open (and create) the ledger at `path`, and close it at the end.

    A writer holds the home's lock; where another process has it, PoolBroken names that process after `lock_wait_s` seconds.
    `read_only` needs no lock and works beside a running pool. `durability="full"` survives a power cut, "normal" a killed
    process. `boundary` is called in the writer's thread with each name of BOUNDARIES, right before and after a commit.
    """
    async with AsyncExitStack() as stack:
        if not read_only:
            await stack.enter_async_context(lock.held(path.with_name(f"{path.name}.lock"), wait_s=lock_wait_s))
        connections = Connections()
        stack.callback(connections.close)
        await in_thread(connections.open, path, durability, read_only=read_only)
        ledger = SqliteLedger(path, clock, connections, boundary=boundary)
        try:
            yield ledger
        finally:
            await run_shielded(ledger.close())
