"""What an instance consists of between two replacements: its clones, its servers, and the sandbox of its agent."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from sandbox.errors import InstanceLost
from sandbox.model import IdentityProof, SealedDir, Snapshot
from sandbox.ports import Clone, Storage
from sandbox.runtimes.group.box import Box, Boxes
from sandbox.runtimes.group.live import Live
from sandbox.runtimes.group.order import start_in_order, stop_in_order, with_dependents
from sandbox.runtimes.group.plans import Plans, State
from sandbox.runtimes.group.sockets import SocketDirs
from sandbox.runtimes.group.together import all_of, together

log = logging.getLogger(__name__)


class World:
    """One lineage's state and processes. Made by `prepare`, which clones and proves; nothing runs before `start`."""

    def __init__(
        self, boxes: Boxes, storage: Storage, plans: Plans, sockets: SocketDirs, clones: dict[str, Clone], name: str
    ) -> None:
        self._boxes = boxes
        self._shares = storage.name != "copy"
        self._plans = plans
        self._sockets = sockets
        self._name = name
        self.clones = clones
        self.begun = {state: clone.origin for state, clone in clones.items()}
        self.proof: IdentityProof | None = None
        owners = [r.spec.name for r in plans.resources] + [s.owner for s in plans.added]
        self.lives = {owner: Live(boxes, plans, owner, clones, self.begun) for owner in dict.fromkeys(owners)}
        self.agent: Box | None = None

    @classmethod
    async def prepare(
        cls,
        boxes: Boxes,
        storage: Storage,
        plans: Plans,
        sockets: SocketDirs,
        snapshot: Snapshot,
        name: str,
        *,
        states: Sequence[State] | None = None,
    ) -> Self:
        """Make fresh clones of every directory of a snapshot (or of some) and prove each before anything runs on it."""
        clones: dict[str, Clone] = {}
        proofs: dict[str, IdentityProof] = {}

        async def one(state_name: str, sealed: SealedDir) -> None:
            clones[state_name] = await storage.clone(sealed)
            proofs[state_name] = await clones[state_name].prove()

        try:
            chosen = plans.states if states is None else states
            await together(*(one(s.name, plans.sealed(s, snapshot.dirs)) for s in chosen))
        except BaseException:
            await all_of(*(clone.destroy() for clone in clones.values()))
            raise
        world = cls(boxes, storage, plans, sockets, clones, name)
        world.proof = _joined(proofs)
        return world

    @property
    def servers(self) -> Mapping[str, Path]:
        """The directories of the servers that run."""
        return {owner: live.socket_dir for owner, live in self.lives.items() if live.socket_dir is not None}

    @property
    def sandboxes(self) -> Sequence[Box]:
        found = [live.sandbox for live in self.lives.values()]
        return [s for s in (self.agent, *found) if s is not None]

    def alive(self) -> bool:
        return self.agent is not None and self.agent.alive() and self._servers_alive()

    def _servers_alive(self) -> bool:
        return all(self._running(name) for name in self._plans.peers)

    async def start(self, generation: int) -> None:
        """Start the servers that do not run and the agent's sandbox side by side; publish the generation's addresses."""
        try:
            await together(self._start_all())
        except BaseException:
            await self.kill()
            raise
        self._sockets.publish(generation, self.servers.items())

    async def _start_all(self) -> None:
        # The agent's sandbox is mounted over the socket directories, which are there before the servers are ready.
        starting = [name for name in self._plans.peers if self.lives[name].sandbox is None]
        for name in starting:
            self.lives[name].reserve(self._sockets)
        await together(start_in_order(self._plans.peers, starting, self._start_server), self._start_agent())

    async def _start_server(self, name: str) -> None:
        resource = next(r for r in self._plans.resources if r.spec.name == name)
        await self.lives[name].start_server(resource, self._sockets, self._name, self.servers)

    async def _start_agent(self) -> None:
        plan = await self._plans.agent(self._name, self.clones, self.servers)
        self.agent = await self._boxes.start(plan)

    async def start_servers(self) -> None:
        """Start the servers that do not run (after an unclean end: over the state as it is)."""
        starting = with_dependents(self._plans.peers, [name for name in self._plans.peers if not self._running(name)])
        for name in starting:
            await self.lives[name].kill(self._sockets)
        for name in starting:
            self.lives[name].reserve(self._sockets)
        await start_in_order(self._plans.peers, starting, self._start_server)

    def _running(self, owner: str) -> bool:
        return self.lives[owner].sandbox is not None and self.lives[owner].alive()

    def readdress(self) -> None:
        """Take every address of the servers that run away, also from those who looked behind the generation's own."""
        for live in self.lives.values():
            live.readdress(self._sockets)

    async def disconnect(self) -> None:
        """End every client's connection of the servers that run."""
        await together(*(r.disconnect(self.lives[r.spec.name]) for r in self._plans.resources if self._running(r.spec.name)))

    async def stop_servers(self) -> None:
        """Stop every server cleanly, so that what lies on disk is whole."""
        for name in self._plans.peers:
            if not self._running(name):
                raise InstanceLost(f"the server of resource {name} had ended: its state on disk is not whole")
        await stop_in_order(self._plans.peers, tuple(self._plans.peers), self._stop_server)

    async def _stop_server(self, name: str) -> None:
        resource = next(r for r in self._plans.resources if r.spec.name == name)
        await self.lives[name].stop_server(resource, self._sockets)

    async def kill_agent(self) -> None:
        """Whoever else asks meanwhile waits too: no caller goes on before it is dead."""
        agent = self.agent
        if agent is not None:
            await agent.kill()
            if self.agent is agent:
                self.agent = None

    async def kill(self) -> None:
        """End every process, and wait until they are dead."""
        await all_of(self.kill_agent(), *(live.kill(self._sockets) for live in self.lives.values()))

    async def destroy(self) -> None:
        """Remove the clones; nothing may run on them."""
        await all_of(*(clone.destroy() for clone in self.clones.values()))

    async def written_bytes(self) -> int:
        """What the lineage holds beyond its snapshot. A plain copy shares nothing, so that its origin's own size is taken off."""
        total = 0
        for clone in self.clones.values():
            copied = 0 if self._shares else clone.origin.bytes
            total += max(0, await clone.usage_bytes() - copied)
        return total


def _joined(proofs: Mapping[str, IdentityProof]) -> IdentityProof:
    """One proof for all directories: it holds where each holds."""
    methods = "+".join(sorted({p.method for p in proofs.values()}))
    details = "; ".join(f"{name}: {p.detail or 'differs'}" for name, p in sorted(proofs.items()) if not p.holds)
    seconds = sum(p.seconds for p in proofs.values())
    return IdentityProof(method=methods, holds=not details, detail=details, seconds=seconds)
