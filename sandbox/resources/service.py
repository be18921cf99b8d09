"""The `service` kind: any program that listens on a Unix socket.

    [resources.api]
    kind = "service"
    argv = ["/usr/bin/python3", "-I", "/app/server.py", "{socket}"]   # {socket} becomes the socket's path
    app = "server"             # a directory that the server alone sees, read-only, at /app
    state = "/srv/api"         # where its state lies, if it has any; `seed` fills it
    seed = "seed/api"
    http = "/health"           # ready when this path answers with a status below 500; else when the socket accepts
    env = { MODE = "test" }
    uses = ["db"]              # resources whose servers it talks to: it sees their sockets at /run/<name>, and starts after them

The agent finds the socket at /run/<name>/service.sock (variable <NAME>_SOCKET). Servers share no network with the agent, so one
that listens on TCP only cannot be reached.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from sandbox.aio import in_thread, poll
from sandbox.errors import EnvironmentInvalid, InstanceLost, ResetFailed
from sandbox.model import NOTHING, ResourceSpec, Role
from sandbox.ports import LiveResource, Mount, SeedHost, ServerPlan, StateDir
from sandbox.resources import contents, options
from sandbox.resources.files import Target, seed_directory

SOCKET = "service.sock"
_SOCKET_DIR = "/run/server"
_STATE = "state"


class ServiceOptions(options.Options):
    argv: list[str] = Field(min_length=1)
    app: str | None = None
    state: Target | None = None
    seed: str | None = None
    http: str | None = Field(None, pattern=r"^/")
    env: dict[str, str] = Field(default_factory=dict)
    uses: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _seed_needs_state(self) -> ServiceOptions:
        if self.seed is not None and self.state is None:
            raise ValueError("`seed` fills `state`, and there is none")
        return self


class Service:
    """A program in a sandbox of its own, reached through a Unix socket."""

    def __init__(self, spec: ResourceSpec, chosen: ServiceOptions) -> None:
        self._spec = spec
        self._options = chosen
        self._app = seed_directory(spec, chosen.app)
        self._seed = seed_directory(spec, chosen.seed)

    @property
    def spec(self) -> ResourceSpec:
        return self._spec

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"argv": list(self._options.argv)}

    @cached_property
    def digest(self) -> str:
        files = [path for path in (self._app, self._seed) if path]
        return options.digest("service", 1, self._options.model_dump(exclude={"seed", "app"}), files=files)

    def state_dirs(self) -> Sequence[StateDir]:
        return (StateDir(name=_STATE, target=self._options.state, role=Role.SERVER),) if self._options.state else ()

    def server(self) -> ServerPlan | None:
        binds = (Mount(target="/app", layers=(str(self._app),), readonly=True),) if self._app else ()
        argv = tuple(word.replace("{socket}", f"{_SOCKET_DIR}/{SOCKET}") for word in self._options.argv)
        # The socket is made for the agent, who has another user id: the mask must not take that away.
        argv = ("/bin/sh", "-c", 'umask 0; exec "$@"', "sh", *argv)
        return ServerPlan(
            argv=argv, env=dict(self._options.env), binds=binds, socket_dir=_SOCKET_DIR, peers=tuple(self._options.uses)
        )

    def agent_env(self) -> Mapping[str, str]:
        return {f"{self._spec.name.upper().replace('-', '_')}_SOCKET": self.endpoint(f"/run/{self._spec.name}")}

    def agent_binds(self) -> Sequence[Mount]:
        return ()

    def endpoint(self, socket_dir: str) -> str:
        return f"{socket_dir}/{SOCKET}"

    def trusted_endpoint(self, live: LiveResource) -> str:
        return self.endpoint(str(_socket_dir(live)))

    @asynccontextmanager
    async def hook_access(self, live: LiveResource) -> AsyncIterator[Mapping[str, str]]:
        yield NOTHING

    async def disconnect(self, live: LiveResource) -> None:
        """A server's connections are its own; they end with the agent's processes."""

    async def seed(self, host: SeedHost) -> None:
        if self._seed is not None and self._options.state:
            stream = await in_thread(contents.archive, self._seed)
            await contents.unpack(host, stream, self._options.state, role=Role.SERVER)
        live = await host.serve()
        await host.stop(live)

    async def start_state(self, host: SeedHost, options_: Mapping[str, Any]) -> None:
        raise EnvironmentInvalid(f"resource {self._spec.name!r} (kind service) has no start states", fix="leave it out of `start`")

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        path = _socket_dir(live) / SOCKET

        async def answers() -> bool:
            if not live.alive():
                raise InstanceLost(f"the server of resource {self._spec.name} ended before it was ready")
            return path.exists() and await _answers(path, self._options.http)

        if not await poll(answers, timeout=timeout):
            what = f"answer {self._options.http}" if self._options.http else "accept connections"
            raise InstanceLost(f"the server of resource {self._spec.name} did not {what} within {timeout:g} s")

    async def stop(self, live: LiveResource, *, timeout: float) -> None:
        live.signal(signal.SIGTERM)
        if not await live.wait_stopped(timeout):
            raise InstanceLost(f"the server of resource {self._spec.name} did not end within {timeout:g} s of SIGTERM")

    async def clean(self, live: LiveResource) -> None:
        raise ResetFailed(
            f"resource {self._spec.name} (kind service) cannot be cleaned in place: nobody knows what its server holds in memory",
            fix='use method "restore", or a hook of your own',
        )


def _socket_dir(live: LiveResource) -> Path:
    if live.socket_dir is None:
        raise InstanceLost(f"resource {live.spec.name} has no socket directory")
    return live.socket_dir


async def _answers(path: Path, http: str | None) -> bool:
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                if http is None:
                    return True
                writer.write(f"GET {http} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                words = (await reader.readline()).split()
                return len(words) > 1 and words[1].isdigit() and int(words[1]) < 500
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def create(spec: ResourceSpec) -> Service:
    """Make the resource; raise EnvironmentInvalid."""
    return Service(spec, options.read(spec, ServiceOptions))
