"""What the embedded runtime makes boxes of: bubblewrap sandboxes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from sandbox.aio import in_thread
from sandbox.binaries import bubblewrap
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.namespaces import leftovers
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings


class NamespaceBoxes:
    """Implements `Boxes`. Nothing of a sandbox outlives its end, so that there is nothing to release."""

    name = "namespaces"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"bubblewrap": bubblewrap(self._settings).version, "kernel": platform.release()}

    async def identity(self, image: str) -> str:
        return self.name

    async def start(self, plan: SandboxPlan) -> Sandbox:
        return await Sandbox.start(plan, self._settings)

    async def release(self, owner: str) -> None:
        return

    async def sweep(self, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
        return await in_thread(leftovers.sweep, self._settings, keep, dry_run=dry_run)

    async def close(self) -> None:
        return
