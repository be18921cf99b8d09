"""What a check sees of a container of any image, beside what every subject shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sandbox.model import NOTHING, ExecResult

SHARED = "System V"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container as its engine describes it. `settings` holds canonical texts by name: image, user, command, environment and
    the like; `mounts` one line for each, without names that are new each time."""

    status: str  # created, running, exited, ...
    exit_code: int
    out_of_memory: bool
    restarts: int  # how often it was started beside the one time that we started it
    settings: Mapping[str, str] = NOTHING
    mounts: tuple[str, ...] = ()


@runtime_checkable
class ContainerView(Protocol):
    """A container of any image, read from outside."""

    async def state(self) -> ContainerState: ...
    async def changes(self, *, contents: bool) -> Mapping[str, str]:
        """Return what the engine lists as changed since the golden image, by path: `added`, `changed` or `removed`; with `contents`
        followed by kind, mode, owner, size and digest of what lies there now. Volumes do not belong to it."""

    async def run(self, argv: Sequence[str], *, limit_s: float) -> ExecResult:
        """Run a program inside: of the container's own files, which the agent may have changed."""

    async def volumes(self) -> Mapping[str, Mapping[str, str]]:
        """Return every volume's contents by where it is mounted: kind, mode, owner, size and digest by path ("." is the top)."""

    async def memory(self) -> Mapping[str, Mapping[str, str]]:
        """Return what lies in mounted memory, by where it is mounted, in the same way; and under SHARED one entry for each kind of
        System V object, with their number. Empty where it cannot be read: no hook resets such a container."""


@runtime_checkable
class HasContainers(Protocol):
    """A subject that has containers of any image."""

    def container(self, resource: str) -> ContainerView:
        """Raises KeyError."""
