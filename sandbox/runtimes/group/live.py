"""A resource of a running instance (or of one that is being seeded): its state, its server, and trusted commands over the state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.errors import InstanceLost
from sandbox.model import NOTHING, ExecResult, ResourceSpec, Role, SealedDir
from sandbox.ports import Clone, Mount, Resource
from sandbox.runtimes.group.box import Box, Boxes, SandboxPlan
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.sockets import SocketDirs

READY_S = 90.0  # a browser on a machine that is loaded ten times over
STOP_S = 60.0
_OUTPUT = 64_000_000


async def run_once(boxes: Boxes, plan: SandboxPlan, argv: Sequence[str], *, stdin: bytes, limit_s: float) -> ExecResult:
    """Run one command in a sandbox of its own."""
    async with await boxes.start(plan) as sandbox:
        return await sandbox.channel.run(argv, stdin=stdin, limit_s=limit_s, output_bytes=_OUTPUT)


class Live:
    """Implements `LiveResource`. `clones` holds every directory of the instance by snapshot name, `begun` what each was first."""

    def __init__(self, boxes: Boxes, plans: Plans, owner: str, clones: Mapping[str, Clone], begun: Mapping[str, SealedDir]) -> None:
        self._boxes = boxes
        self._plans = plans
        self._owner = owner
        self._clones = clones
        self._begun = begun
        self.sandbox: Box | None = None
        self._socket_dir: Path | None = None

    @property
    def spec(self) -> ResourceSpec:
        added = ResourceSpec(name=self._owner, kind="files")
        return next((r.spec for r in self._plans.resources if r.spec.name == self._owner), added)

    @property
    def state(self) -> Mapping[str, Clone]:
        return {s.directory.name: self._clones[s.name] for s in self._plans.states_of(self._owner)}

    @property
    def begun(self) -> Mapping[str, SealedDir]:
        return {s.directory.name: self._begun[s.name] for s in self._plans.states_of(self._owner)}

    @property
    def socket_dir(self) -> Path | None:
        return self._socket_dir

    def alive(self) -> bool:
        return self.sandbox is None or self.sandbox.alive()

    def signal(self, number: int) -> None:
        if self.sandbox is not None:
            self.sandbox.signal(number)

    async def wait_stopped(self, timeout: float) -> bool:
        return self.sandbox is None or await self.sandbox.wait(timeout)

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
        plan = await self._plans.errand(self._owner, self._clones, role=role, binds=binds, env=env)
        return await run_once(self._boxes, plan, argv, stdin=stdin, limit_s=limit_s)

    # what the runtime does with it

    def reserve(self, sockets: SocketDirs) -> Path:
        """Make the directory of the server's socket, so that other sandboxes can be mounted over it before the server runs."""
        if self._socket_dir is None:
            self._socket_dir = sockets.for_server(self._owner)
        return self._socket_dir

    def readdress(self, sockets: SocketDirs) -> None:
        """Give the directory of the running server's socket another name."""
        if self._socket_dir is not None:
            self._socket_dir = sockets.renew(self._socket_dir)

    async def start_server(self, resource: Resource, sockets: SocketDirs, owner: str, peers: Mapping[str, Path] = NOTHING) -> None:
        """Start the server and wait until it is ready; nothing is left when that fails."""
        path = self.reserve(sockets)
        try:
            plan = await self._plans.server(owner, resource, self._clones, path, peers)
            self.sandbox = await self._boxes.start(plan)
            await self._until_ready(resource)
        except BaseException:
            await self.kill(sockets)
            raise

    async def _until_ready(self, resource: Resource) -> None:
        try:
            await resource.ready(self, timeout=READY_S)
        except InstanceLost as error:
            said = self.sandbox.log_tail(1500).decode("utf-8", "replace").strip() if self.sandbox else ""
            raise InstanceLost(f"{error.message}: {said}" if said else error.message, fix=error.fix) from error

    async def stop_server(self, resource: Resource, sockets: SocketDirs) -> None:
        """Stop the server cleanly, then end its sandbox."""
        if self.sandbox is None:
            return
        try:
            async with asyncio.timeout(STOP_S + 5):
                await resource.stop(self, timeout=STOP_S)
        finally:
            await self.kill(sockets)

    async def kill(self, sockets: SocketDirs) -> None:
        """End the server's sandbox, whatever it is doing. Whoever else asks meanwhile waits too."""
        sandbox, path = self.sandbox, self._socket_dir
        if sandbox is not None:
            await sandbox.kill()
            if self.sandbox is sandbox:
                self.sandbox = None
        if path is not None:
            sockets.drop(path)
            if self._socket_dir == path:
                self._socket_dir = None
