"""The pool's bounds: every queue, wait and retry has one here, under the name that messages use."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Durations in seconds. `creations` and `resets` bound what runs at once, off the critical path."""

    queue: int = 10_000  # requests that wait, per environment
    ageing_s: float = 30.0  # a waiting request gains one step of priority in this time, so that low ones do not starve
    creations: int = 2
    resets: int = field(default_factory=_cores)
    build_s: float = 1800.0
    start_s: float = 120.0
    reset_s: float = 300.0
    check_s: float = 300.0
    revoke_s: float = 30.0
    close_s: float = 60.0
    scoring_s: float = 300.0  # a lease does not expire under a running score() for this long
    drain_grace_s: float = 30.0
    breaker_failures: int = 3
    breaker_pause_s: float = 30.0
    rebuilds: int = 2
    session_snapshots: int = 32
    upkeep_s: float = 1.0
    retention_s: float = 60.0  # how often snapshots of ended sessions are looked for
    snapshot_grace_s: float = 600.0  # how long one stays that nobody needs: more than a fork takes that is on its way
    evidence_every_s: float = 3600.0
    evidence_s: float = 30 * 86_400.0  # `autoclave gc` has the same for what it deletes
    keep_checks: int = 1000
    seal_every_s: float = 3600.0
    duty_backoff_s: float = 60.0
