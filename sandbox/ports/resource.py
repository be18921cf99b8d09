"""A kind of state: how it is seeded, started, stopped, cleaned and reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sandbox.model import (
    EnvironmentSpec,
    ExecResult,
    Limits,
    ResourceSpec,
    Role,
    SealedDir,
)
from sandbox.ports.storage import Clone, Mount


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """A resource's server process: run in a sandbox of its own, over its state, with only the socket directory shared."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    binds: tuple[Mount, ...] = ()  # binaries and the like, read-only
    socket_dir: str = "/run/server"  # inside the server's sandbox; the agent sees it at /run/<resource name>
    workdir: str = "/"
    peers: tuple[str, ...] = ()  # resources whose socket directories it sees read-only at /run/<name>; it starts after them
    limits: Limits | None = None  # of its sandbox; None: the environment's


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDir:
    """A directory that holds a resource's state. `target` is where its user (agent or server) sees it."""

    name: str
    target: str
    role: Role


class SeedHost(Protocol):
    """What a resource may use while it seeds: its own blank directories, trusted commands, and its own server."""

    @property
    def environment(self) -> EnvironmentSpec: ...
    @property
    def state(self) -> Mapping[str, Clone]: ...
    async def run(
        self,
        argv: Sequence[str],
        *,
        role: Role,
        binds: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        limit_s: float = 300.0,
    ) -> ExecResult:
        """Run a command in a throw-away sandbox with the resource's state directories mounted at their targets."""

    async def serve(self) -> LiveResource:
        """Start the resource's server over its state and wait until it is ready."""

    async def stop(self, live: LiveResource) -> None:
        """Stop it cleanly."""


class LiveResource(Protocol):
    """A resource of a running instance, as its own code sees it from the host."""

    @property
    def spec(self) -> ResourceSpec: ...
    @property
    def state(self) -> Mapping[str, Clone]: ...
    @property
    def begun(self) -> Mapping[str, SealedDir]:
        """What each state directory was when its lineage began. Its clone's origin is a later state, once a session saved one."""

    @property
    def socket_dir(self) -> Path | None:
        """The host's path of the generation's socket directory."""

    def alive(self) -> bool:
        """True while its server runs (True where it has none)."""

    def signal(self, number: int) -> None:
        """Send a signal to the server's first process."""

    async def wait_stopped(self, timeout: float) -> bool: ...
    async def run(
        self,
        argv: Sequence[str],
        *,
        role: Role,
        binds: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        limit_s: float = 300.0,
    ) -> ExecResult:
        """Run a trusted command in a throw-away sandbox over the resource's state directories of that role, writable. Nothing
        else may write to them meanwhile."""


class Resource(Protocol):
    """A kind of state: how to seed, start, stop, clean and reach it. Stateless: one object per environment."""

    @property
    def spec(self) -> ResourceSpec: ...
    @property
    def in_force(self) -> Mapping[str, Any]:
        """Versions and settings worth knowing, e.g. the server's version."""

    @property
    def digest(self) -> str:
        """Covers everything of this resource that shapes state: options, seed files, versions of binaries."""

    def state_dirs(self) -> Sequence[StateDir]: ...
    def server(self) -> ServerPlan | None: ...
    def agent_env(self) -> Mapping[str, str]:
        """Environment variables for the agent's commands, e.g. PGHOST."""

    def agent_binds(self) -> Sequence[Mount]:
        """Client tools the agent's sandbox needs, read-only, e.g. psql."""

    def endpoint(self, socket_dir: str) -> str:
        """Return the address by which a client reaches the server through that directory, as the agent."""

    def trusted_endpoint(self, live: LiveResource) -> str:
        """Return the address from the host with the strongest rights there are; no secret stands in it."""

    def hook_access(self, live: LiveResource) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Hold the strongest rights for a reset hook: environment variables that are worth nothing afterwards."""

    async def disconnect(self, live: LiveResource) -> None:
        """End every client's connection, also those of host processes on the agent's behalf."""

    async def seed(self, host: SeedHost) -> None: ...
    async def start_state(self, host: SeedHost, options: Mapping[str, Any]) -> None:
        """Turn a clone of golden into a task's own start state."""

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        """Wait until the server answers a real request; raise InstanceLost."""

    async def stop(self, live: LiveResource, *, timeout: float) -> None:
        """Stop the server cleanly, so that what lies on disk is whole."""

    async def clean(self, live: LiveResource) -> None:
        """Undo in place, as far as it can; a check judges the result. Raise ResetFailed."""
