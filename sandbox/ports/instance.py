"""Instances, and what probes see of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.model import (
    EnvironmentSpec,
    ExecResult,
    IdentityProof,
    NamespaceId,
    ProcessInfo,
    Role,
    Snapshot,
)
from sandbox.ports.storage import Mount, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A socket seen from outside: `kind` tcp, udp, unix; `state` listen, connected, bound; canonical texts."""

    role: Role
    resource: str | None
    kind: str
    state: str
    address: str


class Subject(Protocol):
    """What probes and scorers see: an instance from outside the agent's reach. Read-only by contract."""

    @property
    def environment(self) -> EnvironmentSpec: ...
    @property
    def namespace(self) -> NamespaceId: ...
    @property
    def in_place(self) -> bool:
        """True after hook or clean: the agent's servers and files were not replaced, and verdicts carry that label."""

    @property
    def proof(self) -> IdentityProof | None: ...
    @property
    def in_force(self) -> Mapping[str, Any]: ...
    def tree(self, resource: str, state: str | None = None) -> Tree:
        """Return the host's view of a resource's state directory (its only one by default)."""

    def endpoint(self, resource: str) -> str:
        """Return the resource's address from the host, with the strongest read rights there are (a libpq conninfo for
        postgres, as superuser)."""

    async def processes(self) -> Sequence[ProcessInfo]: ...
    async def listeners(self) -> Sequence[Listener]: ...
    async def mounts(self, role: Role) -> Sequence[str]:
        """Return the mount table of a sandbox, canonical lines without device numbers and generation paths."""

    async def trusted_run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        binds: Sequence[Mount] = (),
        limit_s: float = 60.0,
    ) -> ExecResult:
        """Run trusted binaries in a fresh sandbox over the state mounted read-only (scratch space at /tmp)."""


class Instance(Protocol):
    """One running copy of an environment, driven by the pool. Methods are called one at a time except `run`, `read_file`,
    `write_file`, which may overlap."""

    @property
    def namespace(self) -> NamespaceId: ...
    @property
    def generation(self) -> int: ...
    @property
    def snapshot(self) -> Snapshot:
        """The start state it was last restored to."""

    @property
    def in_force(self) -> Mapping[str, Any]: ...
    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command as the agent. Its process group dies at `limit_s`. Raises InstanceLost when the channel is dead."""

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes: ...
    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...
    def endpoint(self, resource: str) -> str:
        """Return the agent's address of a resource, as a host process on the session's behalf uses it (this generation only)."""

    async def quiesce(self) -> None:
        """Kill every process of the agent's; servers stay (scoring reads next)."""

    async def revoke(self) -> None:
        """Remove this generation's endpoints and kill every process that could act on them. Idempotent."""

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        """Run the hook (or `clean` of each resource when None) over the state as it is, then come up under the new
        generation. Raises ResetFailed. Success is judged by the check that follows, not by an exit code."""

    async def restore(self, snapshot: Snapshot, generation: int) -> None:
        """Replace the state wholesale: kill everything, fresh clones under new names, physical proof, start. Raises ResetFailed."""

    async def snapshot_now(self) -> Snapshot:
        """Stop resources cleanly, seal copies of the state, start again over it. Connections are lost."""

    def subject(self) -> Subject: ...
    async def alive(self) -> bool: ...
    async def close(self) -> None:
        """Kill and remove everything of this instance. Idempotent."""
