"""Sandboxes for the integration tests: started by a factory, killed at the end, and nothing of them left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sandbox.model import Role
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings


@pytest.fixture
async def start(settings: Settings, nothing_left: None) -> AsyncIterator[Callable[..., Awaitable[Sandbox]]]:
    """`await start(limits=..., argv=...)` starts a sandbox, an agent's with a command channel unless told otherwise."""
    running: list[Sandbox] = []

    async def begin(**changes: Any) -> Sandbox:
        sandbox = await Sandbox.start(SandboxPlan(**{"name": "test", "role": Role.AGENT, **changes}), settings)
        running.append(sandbox)
        return sandbox

    yield begin
    for sandbox in running:
        await sandbox.kill()
