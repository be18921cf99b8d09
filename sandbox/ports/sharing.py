"""Instances that several namespaces share: what a resource offers a part of, and how the pool drives the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sandbox.model import InstanceId, Isolation, Mismatch, NamespaceId, Snapshot
from sandbox.ports.environment import Environment
from sandbox.ports.instance import Instance, Subject
from sandbox.ports.resource import LiveResource
from sandbox.ports.storage import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One namespace's part of a shared instance in one generation. `name` is that of its role and database, its role and schema,
    its directory or its context; `secret` lets its holder in, and nobody else knows it."""

    isolation: Isolation
    namespace: NamespaceId
    name: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What a probe must know of a shared instance: whose fields it reads (those of the whole where `own` is None), and the names
    that other parts have. Read `names` before and after a reading: parts come and go meanwhile."""

    own: Part | None
    names: Collection[str]  # live: all parts there are, a name stays in it until nothing of it is left
    tree: Tree | None = None  # where a tree is shared: all of it, with directories named `<part>.<owner>.<number>`
    directories: Collection[str] = ()  # live: those of the tree that the runtime made and has not removed


@runtime_checkable
class SharedSubject(Subject, Protocol):
    """A namespace of a shared instance, or such an instance as a whole."""

    @property
    def sharing(self) -> Sharing: ...


@runtime_checkable
class Divisible(Protocol):
    """A resource with a server of which each namespace can have a part. `live` is the shared one."""

    @property
    def isolations(self) -> Collection[Isolation]: ...
    async def make_part(self, live: LiveResource, part: Part) -> None:
        """Make it anew from golden; whatever had that name is gone first. Raises ResetFailed."""

    async def fence_part(self, live: LiveResource, part: Part) -> None:
        """End every session on the part, and let nobody begin one, until it is made anew."""

    async def disconnect_part(self, live: LiveResource, part: Part) -> None:
        """End the sessions of its holder."""

    async def drop_part(self, live: LiveResource, part: Part) -> None:
        """Remove it for good. Idempotent; raises ResetFailed."""

    async def part_bytes(self, live: LiveResource, part: Part) -> int:
        """Return about how much the part holds."""

    def part_env(self, part: Part) -> Mapping[str, str]:
        """Variables of its holder's commands, over those of `agent_env`."""

    def part_endpoint(self, socket_dir: str, secret_file: str, part: Part) -> str:
        """Return its holder's address of it, as a host process uses it. The secret stands in the file, and not in the address."""

    def part_secret(self, part: Part) -> str:
        """Return what is written to that file."""

    def trusted_part_endpoint(self, live: LiveResource, part: Part) -> str:
        """Return the address from the host with the strongest rights there are."""

    async def try_walls(self, live: LiveResource, writer: Part, reader: Part) -> Sequence[str]:
        """Leave marks as the holder of one part, look for them as the holder of another, and say which were seen."""


class SharedInstance(Protocol):
    """One running copy of an environment with a part for each of several namespaces. `open`, `rebuild`, `close` are called one at a
    time; what `open` returned may be used meanwhile."""

    @property
    def id(self) -> InstanceId: ...
    @property
    def generation(self) -> int: ...
    async def open(self, namespace: NamespaceId, generation: int) -> Instance:
        """Make a part and come up. `restore` of what is returned makes the part anew from golden, whatever snapshot of golden it is
        given; `close` removes it."""

    def subject(self) -> SharedSubject:
        """The whole, as probes see it."""

    async def canaries(self) -> Sequence[Mismatch]:
        """Try the walls between the parts there are: marks left in one must not be seen from another. Nobody may use them."""

    async def rebuild(self, snapshot: Snapshot, generation: int) -> None:
        """Kill everything and start over fresh clones. Every part is gone, and is made anew by the `restore` of its namespace."""

    async def alive(self) -> bool: ...
    async def close(self) -> None: ...


@runtime_checkable
class SharingRuntime(Protocol):
    """A runtime that can share an instance."""

    async def start_shared(
        self, environment: Environment, snapshot: Snapshot, instance: InstanceId, generation: int
    ) -> SharedInstance: ...
