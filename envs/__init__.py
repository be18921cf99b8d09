"""Environments: their description, where they are found, how their tasks are scored, and how a reset is verified.

`load(path)` reads a directory, `define(data, base)` takes the same from Python, `from_testcontainer(container, name=...)` from a
testcontainers definition; `Registry(settings).open(name)` finds one by name.
"""

from envs.environment import LoadedEnvironment, define, load
from envs.reader import Definition
from envs.registry import Registry
from envs.testcontainer import from_testcontainer

__all__ = ["Definition", "LoadedEnvironment", "Registry", "define", "from_testcontainer", "load"]
