"""The default profile of a container, in the engine's own words, in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.model import Limits
from sandbox.ports import Mount
from sandbox.runtimes.docker.mounting import layers_of, overlay_options

_MIB = 1 << 20
_CPU_PERIOD_US = 100_000
HOSTNAME = "sandbox"
DEFAULT_RUNTIMES = ("", "runc", "io.containerd.runc.v2")  # of an engine: those whose processes the host's /proc shows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything about a container that cannot be changed once it runs. Two plans of one shape may use one container in turn."""

    image: str  # its id
    uid: int
    gid: int
    home: str
    limits: Limits
    targets: tuple[str, ...]
    files: tuple[str, ...] = ()  # targets at which a file is seen
    runtime: str = ""  # of the engine, e.g. runsc; empty: its default


def configuration(
    shape: Shape, argv: Sequence[str], mounts: Sequence[Mapping[str, Any]], memory: Mapping[str, int]
) -> dict[str, Any]:
    """Return what is asked of `POST /containers/create`. `memory` maps targets of empty scratch space to MiB."""
    limits = shape.limits
    return {
        "Image": shape.image,
        "Entrypoint": list(argv),
        "Cmd": [],
        "Env": [],
        "User": f"{shape.uid}:{shape.gid}",
        "Hostname": HOSTNAME,
        "WorkingDir": "/",
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,  # the manager's end is the container's end
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "Privileged": False,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "UsernsMode": "host",  # state belongs to host ids; where the engine maps ids, it must not do so here
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none"},  # nothing is kept by the engine; what servers write is kept by the manager, within a cap
            "Memory": limits.memory_mb * _MIB,
            "MemorySwap": limits.memory_mb * _MIB,
            "PidsLimit": limits.pids,
            "CpuPeriod": _CPU_PERIOD_US,
            "CpuQuota": int(limits.cpus * _CPU_PERIOD_US),
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "fsize", "Soft": limits.file_mb * _MIB, "Hard": limits.file_mb * _MIB},
                {"Name": "nofile", "Soft": limits.descriptors, "Hard": limits.descriptors},
            ],
            "Mounts": list(mounts),
            "Tmpfs": {target: f"rw,nosuid,nodev,exec,mode=1777,size={megabytes}m" for target, megabytes in memory.items()},
            **({"Runtime": shape.runtime} if shape.runtime else {}),
        },
    }


def follows(source: Path, target: str) -> dict[str, Any]:
    """A bind of an empty directory: what is mounted at it on the host is seen at `target`, and can be taken away."""
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": target,
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rslave"},
    }


def fixed(mount: Mount, labels: Mapping[str, str]) -> dict[str, Any]:
    """A mount that lives as long as the container. An overlay is an anonymous volume, made and removed by the engine with it."""
    layers = layers_of(mount)
    if len(layers) == 1 and (mount.upper is None or mount.readonly):
        bind = {"Propagation": "rprivate"}
        return {"Type": "bind", "Source": layers[0], "Target": mount.target, "ReadOnly": mount.readonly, "BindOptions": bind}
    # The engine refuses a read-only anonymous volume, so that the overlay itself is mounted read-only.
    flags = "nosuid,nodev,ro" if mount.readonly else "nosuid,nodev"
    options = {"type": "overlay", "device": "overlay", "o": f"{overlay_options(mount)},{flags}"}
    return {
        "Type": "volume",
        "Target": mount.target,
        "VolumeOptions": {"NoCopy": True, "Labels": dict(labels), "DriverConfig": {"Name": "local", "Options": options}},
    }
