"""The `container` kind: a container of any image, which is then all that the instance is (docker runtime only).

    [resources.cache]
    kind = "container"
    image = "redis:7"                  # or the environment's own `image`
    ports = [6379]                     # TCP ports inside (or sockets = ["/run/x.sock"]); the first is the endpoint
    command = ["redis-server"]         # instead of the image's own (entrypoint = [...] likewise)
    env = { MODE = "test" }
    copy = [{ from = "seed/redis.conf", to = "/etc/redis/redis.conf" }]   # laid over the image before the first start
    volumes = ["/data"]                # beside those that the image declares
    setup = [["redis-cli", "set", "greeting", "hello"]]   # run inside once, then the golden state is taken
    capabilities = ["CHOWN", "SETUID", "SETGID"]          # none by default
    ready = { port = 6379 }            # or log, http, command, seconds; default: the first port accepts, else 1 second

The agent's commands run inside the container, as its user. The network is the container's own: loopback alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.model import NOTHING, ResourceSpec
from sandbox.ports import LiveResource, Mount, SeedHost, ServerPlan, StateDir
from sandbox.resources import options
from sandbox.resources.at_rest import absolute

Place = Annotated[str, AfterValidator(absolute)]
Port = Annotated[int, Field(ge=1, le=65_535)]
_TOO_STRONG = (
    "ALL",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_PTRACE",
    "SYS_BOOT",
    "DAC_READ_SEARCH",
    "BPF",
    "PERFMON",
    "NET_ADMIN",
)


class CopyOptions(options.Options):
    """A file or directory of the environment, and where the container has it."""

    source: str = Field(alias="from")
    to: Place


class ReadyOptions(options.Options):
    """When the container is ready: every condition given must hold within `limit_s` seconds."""

    port: Port | None = None
    http: str | None = Field(None, pattern=r"^/", description="a path on `port` (else the first port) answers below 400")
    log: str | None = Field(None, description="a regular expression that its output must hold")
    command: list[str] | None = Field(None, min_length=1, description="a command inside that must end with 0")
    seconds: float = Field(0.0, ge=0, description="a pause after all else")
    limit_s: float = Field(60.0, gt=0)


class ContainerOptions(options.Options):
    image: str = Field("", description="empty: the environment's own `image`")
    command: list[str] | None = None
    entrypoint: list[str] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    ports: list[Port] = Field(default_factory=list)
    sockets: list[Place] = Field(default_factory=list)
    volumes: list[Place] = Field(default_factory=list)
    tmpfs: list[Place] = Field(default_factory=list)
    copy_: list[CopyOptions] = Field(default_factory=list, alias="copy")
    setup: list[list[str]] = Field(default_factory=list)
    user: str = ""
    workdir: Place | None = None
    hostname: str = "container"
    capabilities: list[str] = Field(default_factory=list)
    read_only: bool = False
    stop_signal: str | None = None
    stop_limit_s: float = Field(15.0, gt=0)
    ready: ReadyOptions = Field(default_factory=lambda: ReadyOptions.model_validate({}))
    runtime: str = Field("", description="the engine's runtime, e.g. runsc; empty is its default")

    @model_validator(mode="after")
    def _sound(self) -> ContainerOptions:
        strong = sorted({c.upper().removeprefix("CAP_") for c in self.capabilities} & set(_TOO_STRONG))
        if strong:
            raise ValueError(f"capabilities: {', '.join(strong)} would let the agent out of its container")
        if self.ready.http is not None and self.ready.port is None and not self.ports:
            raise ValueError("ready.http needs a port")
        for place in [*self.volumes, *self.tmpfs, *(c.to for c in self.copy_)]:
            if place == "/" or any(place == top or place.startswith(f"{top}/") for top in ("/proc", "/sys", "/dev")):
                raise ValueError(f"{place} is the system's own")
        return self


class Container:
    """A container that stands for itself. Everything about it is the docker runtime's to do; no other can."""

    def __init__(self, spec: ResourceSpec, chosen: ContainerOptions) -> None:
        self._spec = spec
        self.options = chosen

    @property
    def spec(self) -> ResourceSpec:
        return self._spec

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"image": self.options.image or "the environment's"}

    @cached_property
    def digest(self) -> str:
        given = self.options.model_dump(by_alias=True, exclude={"copy_"})
        copied = [Path(c.source) for c in self.options.copy_]
        return options.digest("container", 1, given, [c.to for c in self.options.copy_], files=copied)

    def state_dirs(self) -> Sequence[StateDir]:
        return ()

    def server(self) -> ServerPlan | None:
        return None

    def agent_env(self) -> Mapping[str, str]:
        return NOTHING

    def agent_binds(self) -> Sequence[Mount]:
        return ()

    def endpoint(self, socket_dir: str) -> str:
        raise self._elsewhere()

    def trusted_endpoint(self, live: LiveResource) -> str:
        raise self._elsewhere()

    @asynccontextmanager
    async def hook_access(self, live: LiveResource) -> AsyncIterator[Mapping[str, str]]:
        yield NOTHING

    async def disconnect(self, live: LiveResource) -> None:
        """Its connections are ended with its endpoints."""

    async def seed(self, host: SeedHost) -> None:
        raise self._elsewhere()

    async def start_state(self, host: SeedHost, options_: Mapping[str, Any]) -> None:
        raise EnvironmentInvalid(
            f"resource {self._spec.name!r} (kind container) has no start states", fix="make one environment for each start state"
        )

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        raise self._elsewhere()

    async def stop(self, live: LiveResource, *, timeout: float) -> None:
        raise self._elsewhere()

    async def clean(self, live: LiveResource) -> None:
        raise self._elsewhere()

    def _elsewhere(self) -> RuntimeUnavailable:
        image = self.options.image or "the environment's image"
        return RuntimeUnavailable(
            f"resource {self._spec.name!r} is a container of {image}, which only the docker runtime can run",
            fix="--runtime docker (or AUTOCLAVE_RUNTIME=docker), with a Docker engine at DOCKER_HOST",
        )


def create(spec: ResourceSpec) -> Container:
    """Make the resource; raise EnvironmentInvalid."""
    return Container(spec, options.read(spec, ContainerOptions))
