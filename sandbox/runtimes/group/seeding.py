"""Seeding: a resource's golden state made from nothing, or a task's start state made over a clone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, ExecResult, Role
from sandbox.ports import Clone, LiveResource, Mount, Resource
from sandbox.runtimes.group.box import Boxes
from sandbox.runtimes.group.live import Live
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.sockets import SocketDirs


class Seeder:
    """Implements `SeedHost` for one resource; `close` ends a server that the resource left running."""

    def __init__(self, boxes: Boxes, plans: Plans, resource: Resource, clones: Mapping[str, Clone], sockets: SocketDirs) -> None:
        self._boxes = boxes
        self._plans = plans
        self._resource = resource
        self._sockets = sockets
        self._live = Live(boxes, plans, resource.spec.name, clones, {name: clone.origin for name, clone in clones.items()})

    @property
    def name(self) -> str:
        return f"{self._plans.spec.name}.{self._sockets.token}"

    @property
    def environment(self) -> EnvironmentSpec:
        return self._plans.spec

    @property
    def state(self) -> Mapping[str, Clone]:
        return self._live.state

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
        if self._live.sandbox is not None and role is Role.SERVER:
            raise EnvironmentInvalid(
                f"resource {self._resource.spec.name}: its server still runs over the state", fix="stop it first"
            )
        return await self._live.run(argv, role=role, binds=binds, env=env, stdin=stdin, limit_s=limit_s)

    async def serve(self) -> LiveResource:
        await self._live.start_server(self._resource, self._sockets, self.name)
        return self._live

    async def stop(self, live: LiveResource) -> None:
        await self._live.stop_server(self._resource, self._sockets)

    async def close(self) -> None:
        await self._live.kill(self._sockets)
        await self._boxes.release(self.name)
