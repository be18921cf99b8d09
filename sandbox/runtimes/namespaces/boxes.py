"""What the embedded runtime makes boxes of: bubblewrap sandboxes."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread
from sandbox.binaries import bubblewrap
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.group.environ import over_image
from sandbox.runtimes.namespaces import fetched, leftovers
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings

IMAGE = "image"  # the root that means: the environment's image, unpacked


class NamespaceBoxes:
    """Implements `Boxes`. Nothing of a sandbox outlives its end, so that there is nothing to release."""

    name = "namespaces"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fetched: dict[str, fetched.Fetched] = {}
        self._fingerprints: dict[str, str] = {}

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"bubblewrap": bubblewrap(self._settings).version, "kernel": platform.release()}

    async def identity(self, root: str, image: str) -> str:
        own = f"{self.name}, bubblewrap {bubblewrap(self._settings).version}, kernel {platform.release()}"
        if root == "host":
            return own
        if root == IMAGE:
            return f"{own}, image {(await self._image(image)).id}"
        if root not in self._fingerprints:
            self._fingerprints[root] = await in_thread(fetched.fingerprint, Path(root))
        return f"{own}, root {self._fingerprints[root]}"

    async def start(self, plan: SandboxPlan) -> Sandbox:
        if plan.root == IMAGE:
            found = await self._image(plan.image)
            plan = dataclasses.replace(plan, root=str(found.root), env=over_image(found.env, plan.env))
        return await Sandbox.start(plan, self._settings)

    async def _image(self, name: str) -> fetched.Fetched:
        """Ask the engine once for each name: an instance's root does not change while the manager runs."""
        name = name or fetched.DEFAULT
        if name not in self._fetched:
            self._fetched[name] = await in_thread(fetched.fetch, self._settings, name)
        return self._fetched[name]

    async def release(self, owner: str) -> None:
        return

    async def sweep(self, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
        return await in_thread(leftovers.sweep, self._settings, keep, dry_run=dry_run)

    async def close(self) -> None:
        return
