"""What resources without a server have in common: one directory of the agent's, brought back in place from the sealed layers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sandbox.errors import ResetFailed
from sandbox.model import NOTHING, ResourceSpec, Role
from sandbox.ports import LiveResource, Mount, ServerPlan, StateDir

GOLDEN = "/golden"
# Directories first become passable: an agent may leave some that their owner cannot enter.
_BRING_BACK = 'chmod -R u+rwX "$1" && find "$1" -mindepth 1 -delete && cp -a "$2/." "$1/"'
_RESERVED = frozenset(
    {"autoclave", "bin", "checks", "dev", "etc", "golden", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr"}
)


def default_target(name: str) -> str:
    """Where such a resource lies unless its `target` says otherwise."""
    return f"/workspace/{name}"


def golden_mount(live: LiveResource, state: str) -> Mount:
    """Return what a directory was when its lineage began, as a read-only mount."""
    return Mount(target=GOLDEN, layers=live.begun[state].layers, readonly=True)


class AtRest:
    """Base of resources that are a directory at `target` and nothing else."""

    STATE = "files"

    def __init__(self, spec: ResourceSpec, target: str) -> None:
        self._spec = spec
        self._target = target

    @property
    def spec(self) -> ResourceSpec:
        return self._spec

    @property
    def target(self) -> str:
        return self._target

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"target": self._target}

    def state_dirs(self) -> Sequence[StateDir]:
        return (StateDir(name=self.STATE, target=self._target, role=Role.AGENT),)

    def server(self) -> ServerPlan | None:
        return None

    def agent_env(self) -> Mapping[str, str]:
        return NOTHING

    def agent_binds(self) -> Sequence[Mount]:
        return ()

    def endpoint(self, socket_dir: str) -> str:
        return self._target

    def trusted_endpoint(self, live: LiveResource) -> str:
        return self._target

    @asynccontextmanager
    async def hook_access(self, live: LiveResource) -> AsyncIterator[Mapping[str, str]]:
        yield NOTHING

    async def disconnect(self, live: LiveResource) -> None:
        return

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        return

    async def stop(self, live: LiveResource, *, timeout: float) -> None:
        return

    async def clean(self, live: LiveResource) -> None:
        """Delete everything and copy the sealed state back."""
        argv = ("/bin/sh", "-c", _BRING_BACK, "sh", self._target, GOLDEN)
        done = await live.run(argv, role=Role.AGENT, binds=(golden_mount(live, self.STATE),))
        if done.exit_code or done.timed_out:
            said = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise ResetFailed(f"resource {self._spec.name}: the files could not be brought back: {said}")


def absolute(value: str) -> str:
    """Validate a target; raise ValueError."""
    parts = value.split("/")
    if not value.startswith("/") or value == "/" or ".." in parts or "" in parts[1:] or "." in parts:
        raise ValueError("must be an absolute path without `.`, `..` or a slash at its end")
    if parts[1] in _RESERVED:
        raise ValueError(f"/{parts[1]} belongs to the system")
    return value
