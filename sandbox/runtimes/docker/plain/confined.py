"""Reads back what a container of any image was made with, and refuses it by the line that is not as claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.aio import in_thread
from sandbox.errors import RuntimeUnavailable
from sandbox.runtimes import observe
from sandbox.runtimes.docker.confinement import check_from_host, refuse
from sandbox.runtimes.docker.host import Groups
from sandbox.runtimes.docker.plain.definition import Definition

_SETTLE_S = 5.0  # the engine answers before its runtime has loaded the filter and begun the program
_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
# In the order of their numbers.
# fmt: off
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)
# fmt: on


def check_described(found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Check what the engine says that it made against the `HostConfig` that it was asked for."""
    host, wrong = found["HostConfig"], []
    wanted: dict[str, Any] = {"Privileged": False, "PidMode": "", "UTSMode": ""}
    wanted |= {name: asked[name] for name in ("NetworkMode", "ReadonlyRootfs", "PidsLimit", "Memory", "NanoCpus", "IpcMode")}
    wrong += [f"{name} is {host.get(name)!r}, not {value!r}" for name, value in wanted.items() if host.get(name) != value]
    for name in ("CapAdd", "CapDrop"):
        if _names(host.get(name)) != _names(asked[name]):
            wrong.append(f"{name} is {host.get(name)}, not {asked[name]}")
    security = host.get("SecurityOpt") or []
    if any("unconfined" in option for option in security) or not any(o.startswith("no-new-privileges") for o in security):
        wrong.append(f"SecurityOpt is {security}")
    if any(host.get(name) for name in ("Devices", "DeviceRequests", "DeviceCgroupRules", "Binds", "VolumesFrom")):
        wrong.append("devices or directories of the host are given to it")
    refuse(wrong, "the engine's own description")


def check_status(status: Mapping[str, str], definition: Definition) -> None:
    """Check a /proc/<pid>/status: no capability beyond those that the author named, no new privileges, filtered."""
    allowed = sum(1 << _CAPABILITIES.index(name) for name in _names(definition.options.capabilities))
    wrong = [f"{n} is {status.get(n, 'missing')}" for n in _SETS if n not in status or int(status[n], 16) & ~allowed]
    for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        if status.get(name) != value:
            wrong.append(f"{name} is {status.get(name, 'missing')}, not {value}")
    refuse(wrong, "the host")


async def check_running(pid: int, definition: Definition) -> Mapping[str, str]:
    """Check the first process from the host, and return what holds its bounds."""

    def look() -> Mapping[str, str]:
        check_status(observe.fields(pid), definition)
        return check_from_host(pid, Groups.of(pid), definition.spec.limits, own=True)

    return await _settled(look)


async def _settled(look: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _SETTLE_S
    while True:
        try:
            return await in_thread(look)
        except (RuntimeUnavailable, OSError) as error:
            if loop.time() > give_up:
                if isinstance(error, OSError):
                    refuse([f"its process cannot be looked at: {error}"], "the host")
                raise
        await asyncio.sleep(0.02)


def _names(capabilities: Any) -> set[str]:
    return {str(name).upper().removeprefix("CAP_") for name in capabilities or ()}
