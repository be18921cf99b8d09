"""What a container of any image is made with: its settings in the engine's own words."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, Limits, ResetMethod
from sandbox.ports import Environment
from sandbox.resources.container import Container, ContainerOptions
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import Mark

_MIB = 1 << 20
_LOG = {"max-size": "5m", "max-file": "1"}


async def _publish_at(engine: Engine) -> str:
    """Where the engine's machine shows the ports of a container: at one address, never at all of them unless the user states it."""
    address = engine.address
    if address.publish or address.is_socket or address.is_loopback:
        return address.publish or "127.0.0.1"
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def wanted(environment: Environment) -> bool:
    """True for an environment that has a container of any image."""
    return any(isinstance(r, Container) for r in environment.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One environment's container. `image` is what its golden state was or will be built from; `volumes` where the image and the
    author want one."""

    spec: EnvironmentSpec
    resource: str
    options: ContainerOptions
    image: Mapping[str, Any]  # the engine's description
    published: bool = False  # ports through the engine's own network, since the container's cannot be entered from here
    publish_at: str = "127.0.0.1"

    @property
    def volumes(self) -> tuple[str, ...]:
        declared = (self.image.get("Config") or {}).get("Volumes") or {}
        return tuple(sorted({*(v.rstrip("/") for v in declared), *self.options.volumes}))

    @property
    def places(self) -> tuple[int | str, ...]:
        """What clients reach."""
        return (*self.options.ports, *self.options.sockets)

    def volume_names(self, mark: Mark) -> dict[str, str]:
        return {target: f"{mark.name}-{number}" for number, target in enumerate(self.volumes)}

    def config(self, image: str, mark: Mark, *, network: str, fresh: bool) -> dict[str, Any]:
        """Return the body of the engine's `create`. `fresh` volumes take over what the image holds at their place; others are
        filled by us."""
        chosen = self.options
        config: dict[str, Any] = {
            "Image": image,
            "Hostname": chosen.hostname,
            "Env": [f"{name}={text}" for name, text in sorted({**self.spec.env, **chosen.env}.items())],
            "Healthcheck": {"Test": ["NONE"]},  # it would run commands beside the probes
            "HostConfig": self._host_config(mark, network=network, fresh=fresh),
        }
        given: dict[str, Any] = {
            "Cmd": chosen.command,
            "Entrypoint": chosen.entrypoint,
            "User": chosen.user or None,
            "WorkingDir": chosen.workdir,
            "StopSignal": chosen.stop_signal,
            "ExposedPorts": {f"{port}/tcp": {} for port in chosen.ports} or None,
        }
        return config | {name: value for name, value in given.items() if value is not None}

    def _host_config(self, mark: Mark, *, network: str, fresh: bool) -> dict[str, Any]:
        chosen = self.options
        volumes = [
            {
                "Type": "volume",
                "Source": name,
                "Target": target,
                "VolumeOptions": {"NoCopy": not fresh, "Labels": mark.labels()},
            }
            for target, name in self.volume_names(mark).items()
        ]
        config: dict[str, Any] = {
            **_bounds(self.spec.limits),
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "CapAdd": sorted({c.upper().removeprefix("CAP_") for c in chosen.capabilities}),
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": chosen.read_only and not fresh,  # golden is made: files are laid in, and set up
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": _LOG},
            "Mounts": volumes,
            "Tmpfs": dict.fromkeys(chosen.tmpfs, f"nosuid,nodev,size={self.spec.limits.disk_mb}m"),
            "IpcMode": "private",
        }
        if chosen.runtime:
            config["Runtime"] = chosen.runtime
        if self.published:
            config["PortBindings"] = {f"{port}/tcp": [{"HostIp": self.publish_at, "HostPort": ""}] for port in chosen.ports}
        return config


def _bounds(limits: Limits) -> dict[str, Any]:
    memory = limits.memory_mb * _MIB
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(limits.cpus * 1e9),
        "PidsLimit": limits.pids,
        "ShmSize": max(1, limits.memory_mb // 4) * _MIB,
        "Ulimits": [
            {"Name": "nofile", "Soft": limits.descriptors, "Hard": limits.descriptors},
            {"Name": "fsize", "Soft": limits.file_mb * _MIB, "Hard": limits.file_mb * _MIB},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
    }


async def refuse_hook(engine: Engine, spec: EnvironmentSpec) -> None:
    """Raise EnvironmentInvalid for a reset in place whose leavings could not be seen."""
    await engine.facts()
    if spec.reset.method is ResetMethod.HOOK and not engine.beside:
        raise EnvironmentInvalid(
            f"environment {spec.name}: a hook leaves what its container holds in memory (/dev/shm, tmpfs, System V objects), which "
            "a manager reads that is root on the engine's machine, and no other",
            problems=("reset.method: hook cannot be checked from here",),
            fix='use method "restore"',
        )


async def define(engine: Engine, environment: Environment) -> Definition:
    """Read what an environment's container is; raise EnvironmentInvalid, ImageMissing."""
    spec = environment.spec
    found: Sequence[Container] = [r for r in environment.resources if isinstance(r, Container)]
    if len(environment.resources) != 1:
        raise EnvironmentInvalid(
            f"environment {spec.name}: a container of any image is all that its instance is",
            problems=tuple(f"resources.{r.spec.name}: is one too many" for r in environment.resources if r not in found),
            fix="make two environments, or one image that holds both",
        )
    resource = found[0]
    await engine.facts()
    if resource.options.sockets and not engine.beside:
        raise EnvironmentInvalid(
            f"environment {spec.name}: sockets in a container are reached by a manager that is root on the engine's machine",
            problems=(f"resources.{resource.spec.name}.sockets: cannot be reached from here",),
            fix="give `ports` instead",
        )
    name = resource.options.image or spec.image
    if not name:
        raise EnvironmentInvalid(
            f"environment {spec.name}: no image is named",
            problems=(f"resources.{resource.spec.name}.image: is missing",),
            fix="set it there, or `image` of the environment",
        )
    image = await engine.call(
        lambda client: client.inspect_image(name), doing=f"looking for image {name} of environment {spec.name}"
    )
    return Definition(
        spec=spec,
        resource=resource.spec.name,
        options=resource.options,
        image=image,
        published=bool(resource.options.ports) and not engine.beside,
        publish_at=await _publish_at(engine),
    )
