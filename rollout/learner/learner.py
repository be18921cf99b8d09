"""What the loop needs of a learner, and the one that keeps the policy as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rollout.batches import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What came of a batch. With `publish`, the engine is given `weights` (None: it makes its own) as the next version. A learner
    that left the batch's `off_policy` samples alone says so: else the update is recorded as one that took them, too. `recorded` is
    called (in a thread) when the ledger has the update: a checkpoint that has its name only then is one that a recall can name."""

    publish: bool
    weights: Path | None = None
    checkpoint: str | None = None
    off_policy: bool = True
    recorded: Callable[[], None] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


class Learner(Protocol):
    @property
    def name(self) -> str: ...
    async def update(self, batch: Batch) -> Update: ...


class Stepping:
    """Learns nothing and publishes a next version after each batch: versions, gaps and recalls without a model."""

    name = "stepping"

    async def update(self, batch: Batch) -> Update:
        return Update(publish=True, checkpoint=f"{batch.id}-checkpoint")
