"""Instances that namespaces share, as the pool sees them: who is on one, who may work on it now, and who is kept back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.lifecycle import State
from sandbox.model import InstanceId, NamespaceRecord
from sandbox.pool.turn import Turn
from sandbox.ports import SharedInstance

if TYPE_CHECKING:
    from sandbox.pool.members import Namespace, Prepared


@dataclass(slots=True, eq=False, kw_only=True)
class Host:
    """One shared instance. `closed` says why no lease is given on it; while it is not `serving`, no reset is made on it either."""

    environment: Prepared
    record: NamespaceRecord
    instance: SharedInstance | None = None
    members: set[Namespace] = field(default_factory=set)
    held: list[Namespace] = field(default_factory=list)  # ready, and kept back while it is closed
    closed: str = ""
    gone: str = ""  # why it never comes back
    failed: str = ""  # why it must be rebuilt
    wanted: bool = False  # somebody asks for its check
    leases: int = 0  # since its last clean check
    first_lease: float | None = None  # monotonic: the first of them
    turn: Turn = field(default_factory=Turn)
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> InstanceId:
        return InstanceId(self.record.id)

    @property
    def state(self) -> State:
        return State(self.record.state)

    @property
    def room(self) -> int:
        return 0 if self.gone else self.environment.spec.namespaces_per_instance - len(self.members)

    def live(self) -> SharedInstance:
        assert self.instance is not None, f"{self.id} has no instance"
        return self.instance

    def used(self, now: float) -> None:
        """A lease was given on it."""
        self.leases += 1
        if self.first_lease is None:
            self.first_lease = now

    def checked(self) -> None:
        """Its check came back clean."""
        self.leases, self.first_lease, self.wanted = 0, None, False

    def close(self, why: str) -> None:
        """Admit nobody: those that are ready are kept back, and whoever becomes ready is, too."""
        self.closed = why
        for namespace in self.members:
            if self.environment.claim(namespace):
                self.held.append(namespace)
        self.changed.set()

    def hold(self, namespace: Namespace) -> bool:
        """Keep a ready namespace back; False when the instance is open."""
        if not self.closed:
            return False
        if namespace not in self.held:
            self.held.append(namespace)
        self.changed.set()
        return True

    def open(self) -> list[Namespace]:
        """Admit again; return those that were kept back."""
        self.closed = ""
        held, self.held = self.held, []
        return held

    def leave(self, namespace: Namespace) -> None:
        self.members.discard(namespace)
        if namespace in self.held:
            self.held.remove(namespace)
        self.changed.set()

    @property
    def busy(self) -> list[Namespace]:
        """Those in service that are not kept back."""
        return [m for m in self.members if m.id in self.environment.members and m not in self.held]

    async def gathered(self) -> None:
        """Wait until everybody in service is kept back, or the instance failed. The deadline is the caller's."""
        while self.busy and not self.failed:
            self.changed.clear()
            await self.changed.wait()

    def fail(self, why: str) -> bool:
        """It is not as it was, or lost. False when that was known already."""
        if self.failed or self.gone:
            return False
        self.failed = why
        self.serving.clear()
        self.close(why)
        return True
