"""The shipped environment `repo`: a small Python library under git, and bug-fix tasks on it."""

from __future__ import annotations

from pathlib import Path

from envs.environment import LoadedEnvironment, load


def environment() -> LoadedEnvironment:
    """Return the environment (entry point `autoclave.environments`)."""
    return load(Path(__file__).parent)
