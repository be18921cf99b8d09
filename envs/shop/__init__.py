"""The shop: an order system in PostgreSQL, with tasks for the people at its service desk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envs import LoadedEnvironment

__all__ = ["environment"]


def environment() -> LoadedEnvironment:
    """Return the environment in this directory; the entry point `autoclave.environments: shop`."""
    from envs import load

    return load(Path(__file__).parent)
