"""The training side: trajectories over a pool, and batches of those that may be trained on.

`rollout.run.run(Options(...), pool=..., ...)` does a whole run. A trainer of your own takes batches from a `RolloutLoop`: see
docs/rollout.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollout.batches import Batch, Sample, SyncRule
    from rollout.books import Books, Plan
    from rollout.engines.engine import Completion, Engine, Request
    from rollout.groups import GroupRule
    from rollout.journal import Journal, Outcome
    from rollout.loop import RolloutLoop
    from rollout.policies.chat import ChatPolicy
    from rollout.policies.policy import Policy, ToolSpec
    from rollout.record import Trajectory
    from rollout.running.runner import Bounds, Parts
    from rollout.setup import Options
    from rollout.terms import Failure, State, Termination
    from rollout.tools.tool import Observation, Tool

_LATER = {
    "Batch": "rollout.batches",
    "Books": "rollout.books",
    "Bounds": "rollout.running.runner",
    "ChatPolicy": "rollout.policies.chat",
    "Completion": "rollout.engines.engine",
    "Engine": "rollout.engines.engine",
    "Failure": "rollout.terms",
    "GroupRule": "rollout.groups",
    "Journal": "rollout.journal",
    "Observation": "rollout.tools.tool",
    "Options": "rollout.setup",
    "Outcome": "rollout.journal",
    "Parts": "rollout.running.runner",
    "Plan": "rollout.books",
    "Policy": "rollout.policies.policy",
    "Request": "rollout.engines.engine",
    "RolloutLoop": "rollout.loop",
    "Sample": "rollout.batches",
    "State": "rollout.terms",
    "SyncRule": "rollout.batches",
    "Termination": "rollout.terms",
    "Tool": "rollout.tools.tool",
    "ToolSpec": "rollout.policies.policy",
    "Trajectory": "rollout.record",
}

__all__ = [
    "Batch",
    "Books",
    "Bounds",
    "ChatPolicy",
    "Completion",
    "Engine",
    "Failure",
    "GroupRule",
    "Journal",
    "Observation",
    "Options",
    "Outcome",
    "Parts",
    "Plan",
    "Policy",
    "Request",
    "RolloutLoop",
    "Sample",
    "State",
    "SyncRule",
    "Termination",
    "Tool",
    "ToolSpec",
    "Trajectory",
]


def __getattr__(name: str) -> Any:
    if (module := _LATER.get(name)) is None:
        raise AttributeError(f"module 'rollout' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
