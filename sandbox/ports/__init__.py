"""The protocols between the parts. Nothing here has behaviour; implementations live in the folders beside it.

Contracts that every implementation keeps: every wait has a deadline; a cancelled call cleans up and re-raises; an error is one
of `sandbox.errors`; nothing falls back without saying so in `in_force`.
"""

from sandbox.ports.clock import Clock
from sandbox.ports.environment import Environment, EnvironmentFactory, ResourceFactory, UsesFiles, Verifier
from sandbox.ports.instance import Instance, Listener, Subject
from sandbox.ports.ledger import Ledger
from sandbox.ports.resource import LiveResource, Resource, SeedHost, ServerPlan, StateDir
from sandbox.ports.runtime import Runtime, SavesElsewhere
from sandbox.ports.sharing import Divisible, Part, SharedInstance, SharedSubject, Sharing, SharingRuntime
from sandbox.ports.storage import Clone, Mount, Storage, Tree, TreeEntry

__all__ = [
    "Clock",
    "Clone",
    "Divisible",
    "Environment",
    "EnvironmentFactory",
    "Instance",
    "Ledger",
    "Listener",
    "LiveResource",
    "Mount",
    "Part",
    "Resource",
    "ResourceFactory",
    "Runtime",
    "SavesElsewhere",
    "SeedHost",
    "ServerPlan",
    "SharedInstance",
    "SharedSubject",
    "Sharing",
    "SharingRuntime",
    "StateDir",
    "Storage",
    "Subject",
    "Tree",
    "TreeEntry",
    "UsesFiles",
    "Verifier",
]
