"""Puts what sandboxes need where the dropped user ids can reach it."""

from __future__ import annotations

from pathlib import Path

from sandbox.settings import Settings


async def stage(settings: Settings, source: Path, name: str) -> Path:
    """Return `source` when the unprivileged ids can reach it, else a content-addressed copy below `settings.store/staged/`."""
    raise NotImplementedError(f"staging of {source} as {name} in {settings.store}")
