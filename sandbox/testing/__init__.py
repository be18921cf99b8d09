"""Shipped fakes: the whole pool in memory, with a clock that tests set and faults and leaks that they script.

They keep the ports' contracts, so that a training loop, a probe or an environment can be tested without bubblewrap,
PostgreSQL or waiting.
"""

from sandbox.testing.clock import FakeClock
from sandbox.testing.environment import MemoryEnvironment, memory_environment
from sandbox.testing.faults import Faults
from sandbox.testing.instance import MemoryInstance
from sandbox.testing.runtime import Machine, MemoryRuntime
from sandbox.testing.shared import MemoryShared
from sandbox.testing.storage import MemoryStorage, MemoryTree
from sandbox.testing.verifier import ScriptedVerifier

__all__ = [
    "FakeClock",
    "Faults",
    "Machine",
    "MemoryEnvironment",
    "MemoryInstance",
    "MemoryRuntime",
    "MemoryShared",
    "MemoryStorage",
    "MemoryTree",
    "ScriptedVerifier",
    "memory_environment",
]
