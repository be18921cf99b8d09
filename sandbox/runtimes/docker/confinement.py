"""Checks that a container is confined as claimed, and refuses it by the line that is not. Blocking."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.errors import RuntimeUnavailable
from sandbox.model import Limits
from sandbox.runtimes import observe
from sandbox.runtimes.docker.host import Groups
from sandbox.runtimes.docker.profile import Shape

_FIX = "do not use the docker runtime with this engine; report its version, its configuration and the kernel's"
_NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
_MIB = 1 << 20
_NO_CAPABILITY = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def check_inspected(found: Mapping[str, Any], shape: Shape) -> None:
    """Check what the engine says that it made."""
    host, wrong = found["HostConfig"], []
    wanted: Mapping[str, Any] = {
        "NetworkMode": "none",
        "Privileged": False,
        "ReadonlyRootfs": True,
        "PidMode": "",
        "PidsLimit": shape.limits.pids,
        "Memory": shape.limits.memory_mb * _MIB,
    }
    wrong += [f"{name} is {host.get(name)!r}, not {value!r}" for name, value in wanted.items() if host.get(name) != value]
    if [c.upper() for c in host.get("CapDrop") or ()] != ["ALL"] or host.get("CapAdd"):
        wrong.append(f"capabilities are dropped: {host.get('CapDrop')}, added: {host.get('CapAdd')}")
    security = host.get("SecurityOpt") or []
    if any("unconfined" in option for option in security) or not any(o.startswith("no-new-privileges") for o in security):
        wrong.append(f"SecurityOpt is {security}")
    if host.get("Devices") or host.get("IpcMode") not in ("private", "none"):
        wrong.append(f"devices {host.get('Devices')}, IpcMode {host.get('IpcMode')!r}")
    for mount in found.get("Mounts") or ():
        if os.path.basename(mount.get("Source") or "") in ("docker.sock", "containerd.sock", "podman.sock"):
            wrong.append(f"the engine's own socket is mounted at {mount.get('Destination')}")
    if (user := found["Config"].get("User")) != f"{shape.uid}:{shape.gid}":
        wrong.append(f"User is {user!r}")
    refuse(wrong, "the engine's own description")


def check_status(status: Mapping[str, str], shape: Shape, who: str) -> None:
    """Check a /proc/<pid>/status: no capability, no new privileges, filtered, the user that was asked for."""
    wrong = [f"{n} is {status.get(n, 'missing')}" for n in _NO_CAPABILITY if n not in status or int(status[n], 16) != 0]
    for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        if status.get(name) != value:
            wrong.append(f"{name} is {status.get(name, 'missing')}, not {value}")
    if set(status.get("Uid", "0").split()) != {str(shape.uid)}:
        wrong.append(f"Uid is {status.get('Uid', 'missing')}, not {shape.uid}")
    if set(status.get("Groups", "").split()) - {str(shape.gid)}:
        wrong.append(f"Groups is {status['Groups']}")
    refuse(wrong, who)


def check_tried(facts: Mapping[str, bytes], shape: Shape, who: str) -> None:
    """Check what the first process saw and tried from inside (asked once for each image)."""
    lines = (line.partition(":") for line in facts.get("status", b"").decode(errors="replace").splitlines())
    check_status({name: value.strip() for name, _, value in lines}, shape, who)
    refuse(observe.escapes(facts), who)


def check_from_host(pid: int, groups: Groups, limits: Limits, *, own: bool) -> Mapping[str, str]:
    """Check a container from the host's own side and return what holds its bounds. `own`: whether this process may look at the
    namespaces of that one."""
    wrong = []
    for name in _NAMESPACES if own else ():
        if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
            wrong.append(f"the {name} namespace is the host's")
    if (interfaces := observe.interfaces(pid)) != ("lo",):
        wrong.append(f"network interfaces are {', '.join(interfaces) or 'none'}, not lo alone")
    found, missing = _bounds(groups, limits)
    refuse([*wrong, *missing], "the host")
    return found


def _bounds(groups: Groups, limits: Limits) -> tuple[dict[str, str], list[str]]:
    wrong = []
    memory = groups.value("memory", "memory.limit_in_bytes", "memory.max")
    if memory != str(limits.memory_mb * _MIB):
        wrong.append(f"the memory bound is {memory}, not {limits.memory_mb} MiB")
    if (pids := groups.value("pids", "pids.max")) != str(limits.pids):
        wrong.append(f"pids.max is {pids}, not {limits.pids}")
    quota = (groups.value("cpu", "cpu.max", "cpu.cfs_quota_us") or "").split()
    if quota[:1] != [str(int(limits.cpus * 100_000))]:
        wrong.append(f"the CPU quota is {quota[0] if quota else 'missing'}, not {limits.cpus:g} cores")
    swap = groups.value("memory", "memory.memsw.limit_in_bytes", "memory.swap.max")
    swaps = swap in (str(limits.memory_mb * _MIB), "0") or not Path("/proc/swaps").read_text().splitlines()[1:]
    version = {
        controller: f"cgroup v{groups.paths[controller][0]}"
        for controller in ("memory", "pids", "cpu")
        if controller in groups.paths
    }
    return {
        "memory": f"{limits.memory_mb} MiB{', no swap' if swaps else ', swap not bounded'} ({version.get('memory')})",
        "pids": f"{limits.pids} ({version.get('pids')})",
        "cpu": f"{limits.cpus:g} cores ({version.get('cpu')})",
        "file_size": f"{limits.file_mb} MiB (RLIMIT_FSIZE)",
        "descriptors": f"{limits.descriptors} (RLIMIT_NOFILE)",
        "core_dumps": "none (RLIMIT_CORE)",
    }, wrong


def mount_lines(text: str) -> dict[str, str]:
    """Read a mount table: what is seen at each target (the topmost), as `target type options`, sorted by target."""
    seen: dict[str, str] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        words = left.split()
        seen[words[4]] = f"{words[4]} {right.split()[0]} {words[5]}"
    return dict(sorted(seen.items()))


def check_mounts(table: Mapping[str, str], targets: Sequence[str], readonly: Sequence[str]) -> None:
    """Check that everything that was asked for is mounted, and that the root and what is read-only cannot be written."""
    wrong = [f"nothing is mounted at {target}" for target in targets if target not in table]
    for target in ("/", *readonly):
        if target in table and "ro" not in table[target].rsplit(" ", 1)[1].split(","):
            wrong.append(f"{target} can be written")
    refuse(wrong, "its mount table")


def refuse(wrong: Sequence[str], who: str) -> None:
    if wrong:
        raise RuntimeUnavailable(f"a container is not confined as claimed, says {who}: {'; '.join(wrong)}", fix=_FIX)
