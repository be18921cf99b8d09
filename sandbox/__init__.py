"""Environments for agents, each proven clean before it is used again.

`Pool.open()` keeps a pool in this process; `Pool.connect()` uses the one that `autoclave pool up` keeps.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sandbox.errors import (
    AutoclaveError,
    BaselineMissing,
    BaselineUnstable,
    EnvironmentInvalid,
    InstanceLost,
    LedgerConflict,
    LimitReached,
    NotCleared,
    PoolBroken,
    PoolBusy,
    ResetFailed,
    RuntimeUnavailable,
    SealBroken,
    SessionExpired,
    SnapshotMissing,
    StaleGeneration,
)
from sandbox.model import (
    Clearance,
    ClearanceState,
    Depth,
    ExecResult,
    PageAction,
    PageDo,
    PageResult,
    QuarantineReason,
    Recall,
    Score,
    Snapshot,
    TrajectoryId,
)

if TYPE_CHECKING:
    from sandbox.client import RemotePool, RemoteSession
    from sandbox.pool import PoolLimits, Session
    from sandbox.settings import Settings
    from sandbox.wiring import Pool

# Found at first use: whoever needs only the words or the errors does not load the pool, the ledger and the runtimes.
_LATER = {
    "Pool": "sandbox.wiring",
    "PoolLimits": "sandbox.pool",
    "RemotePool": "sandbox.client",
    "RemoteSession": "sandbox.client",
    "Session": "sandbox.pool",
    "Settings": "sandbox.settings",
}

__all__ = [
    "AutoclaveError",
    "BaselineMissing",
    "BaselineUnstable",
    "Clearance",
    "ClearanceState",
    "Depth",
    "EnvironmentInvalid",
    "ExecResult",
    "InstanceLost",
    "LedgerConflict",
    "LimitReached",
    "NotCleared",
    "PageAction",
    "PageDo",
    "PageResult",
    "Pool",
    "PoolBroken",
    "PoolBusy",
    "PoolLimits",
    "QuarantineReason",
    "Recall",
    "RemotePool",
    "RemoteSession",
    "ResetFailed",
    "RuntimeUnavailable",
    "Score",
    "SealBroken",
    "Session",
    "SessionExpired",
    "Settings",
    "Snapshot",
    "SnapshotMissing",
    "StaleGeneration",
    "TrajectoryId",
]


def __getattr__(name: str) -> Any:
    if (module := _LATER.get(name)) is None:
        raise AttributeError(f"module 'sandbox' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
