"""What must be known of a trajectory before an update may take it. Explicit, so that nothing slips in with half a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from rollout.record import Trajectory


def _finite(numbers: Sequence[float], count: int) -> bool:
    return len(numbers) == count and all(map(isfinite, numbers))


ARTIFACTS: Mapping[str, Callable[[Trajectory], bool]] = {
    "policy revision": lambda r: r.oldest_version is not None,
    "action trace": lambda r: (
        bool(r.turns) and len(r.tokens) == len(r.mask) == len(r.versions) and _finite(r.logprobs, len(r.tokens))
    ),
    "environment state": lambda r: bool(r.environment_digest and r.start_check and r.start_digest),
    "reward": lambda r: r.reward is not None and isfinite(r.reward),
    "termination reason": lambda r: bool(r.termination),
}


def missing(record: Trajectory) -> tuple[str, ...]:
    """Return the artifacts that a trajectory lacks; empty where it may be learned from. Clearance is the ledger's matter."""
    return tuple(name for name, there in ARTIFACTS.items() if not there(record))
