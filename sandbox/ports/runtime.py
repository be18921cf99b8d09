"""The runtimes that make instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from sandbox.model import (
    NamespaceId,
    Snapshot,
    TaskSpec,
)
from sandbox.ports.environment import Environment
from sandbox.ports.instance import Instance
from sandbox.ports.storage import Storage


class Runtime(Protocol):
    """Makes instances."""

    @property
    def name(self) -> str: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def in_force(self) -> Mapping[str, Any]: ...
    async def identity(self, environment: Environment) -> str:
        """Return everything about the runtime that a baseline of this environment depends on: its name, an image's id, ..."""

    async def build(self, environment: Environment) -> Snapshot:
        """Seed from nothing and seal: the golden snapshot. Raises EnvironmentInvalid naming the seed file that failed."""

    async def derive(self, environment: Environment, golden: Snapshot, task: TaskSpec) -> Snapshot:
        """Make a task's own start state: a sealed child of golden."""

    async def start(self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> Instance: ...
    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Kill and remove everything of ours (processes, mounts, cgroups, directories, containers, volumes, ...) that no live
        Instance of this object owns, and say what it was. `dry_run`: only say it."""

    async def close(self) -> None: ...


@runtime_checkable
class SavesElsewhere(Protocol):
    """A runtime whose snapshots stand on more than the storage's directories: on an image that an engine has."""

    async def require(self, snapshot: Snapshot) -> None:
        """Raise SnapshotMissing where something of it is gone."""
