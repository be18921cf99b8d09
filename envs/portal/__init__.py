"""The portal: a company's ordering and request site, a web application whose tasks are done in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envs import LoadedEnvironment

__all__ = ["environment"]


def environment() -> LoadedEnvironment:
    """Return the environment in this directory; the entry point `autoclave.environments: portal`."""
    from envs import load

    return load(Path(__file__).parent)
