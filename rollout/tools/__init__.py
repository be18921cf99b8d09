"""What a policy can do in an environment, by the kinds of its resources."""

from rollout.tools.offer import tools_for
from rollout.tools.tool import Observation, Tool

__all__ = ["Observation", "Tool", "tools_for"]
