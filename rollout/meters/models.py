"""What engine and learner say of their memory, and how many GPUs a run holds. Either may say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from rollout.meters.power import PowerMeter


@runtime_checkable
class TellsMemory(Protocol):
    """An engine or learner that knows its memory."""

    def memory_mb(self) -> Mapping[str, float | None]:
        """Peak MiB by category (weights, optimizer, activations, kv_cache); None where it cannot say."""


def told_memory(*parts: Any) -> dict[str, float | None]:
    """Join what they say: weights of engine and learner add up, since both hold them."""
    found: dict[str, float | None] = {}
    for part in parts:
        if isinstance(part, TellsMemory):
            for name, value in part.memory_mb().items():
                before = found.get(name)
                found[name] = value if before is None else before + (value or 0.0)
    return found


def gpus_in_use(in_force: Mapping[str, Any], learner: str) -> int:
    """How many GPUs the run holds, used or not: those that its process may use, and nobody else; 0 where neither engine nor learner
    runs on one."""
    on_gpu = in_force.get("device") == "cuda" or (learner == "grpo" and _cuda())
    if not on_gpu:
        return 0
    meter = PowerMeter.find()
    return meter.devices if meter else 1


def _cuda() -> bool:
    from importlib import import_module

    try:
        return bool(import_module("torch").cuda.is_available())
    except ImportError:
        return False
