"""Checks that a sandbox is confined as claimed, and refuses it by the line that is not."""

from __future__ import annotations

import os
from collections.abc import Collection

from sandbox.errors import RuntimeUnavailable
from sandbox.runtimes import observe

_FIX = "do not use the namespaces runtime on this machine; report the kernel and bubblewrap versions"
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_KERNEL_MOUNTS = {
    "/": "tmpfs overlay",
    "/proc": "proc",
    "/dev": "tmpfs",
    "/dev/pts": "devpts",
    "/dev/shm": "tmpfs",
    "/tmp": "tmpfs",
}
_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/console"})


def check_process(status: dict[str, str], *, host_uid: int | None, who: str, groups: Collection[int] = ()) -> None:
    """Check a /proc/<pid>/status: no capability, no new privileges, filtered, not root, no group beside its own and `groups` (an
    ordinary user cannot drop the groups that he is in)."""
    wrong = [
        f"{name} is {status.get(name, 'missing')}"
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        if not _zero(status, name)
    ]
    for name, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        if status.get(name) != wanted:
            wrong.append(f"{name} is {status.get(name, 'missing')}, not {wanted}")
    uids = set(status.get("Uid", "0").split())
    if "0" in uids or (host_uid is not None and uids != {str(host_uid)}):
        wrong.append(f"Uid is {status.get('Uid', 'missing')}")
    if host_uid is not None and set(status.get("Groups", "").split()) - {str(host_uid), *map(str, groups)}:
        wrong.append(f"Groups is {status['Groups']}")
    refuse(wrong, who)


def check_namespace(pid: int, *, targets: frozenset[str], inside_uid: int, host_uid: int, who: str) -> None:
    """Check from the host what `pid` lives in: its own namespaces, its user map, its mounts, its network. Blocking."""
    wrong = []
    for name in _NAMESPACES:
        if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
            wrong.append(f"the {name} namespace is the host's")
    with open(f"/proc/{pid}/uid_map", encoding="ascii") as file:
        maps = [line.split() for line in file]
    if maps != [[str(inside_uid), str(host_uid), "1"]]:
        wrong.append(f"uid_map is {maps}")
    if (found := observe.interfaces(pid)) != ("lo",):
        wrong.append(f"network interfaces are {', '.join(found) or 'none'}, not lo alone")
    wrong += _mounts(pid, targets)
    refuse(wrong, who)


def _mounts(pid: int, targets: frozenset[str]) -> list[str]:
    wrong = []
    for line in observe.mounts(pid):
        target, kind, options = line.rsplit(" ", 2)
        flags = options.split(",")
        if target in _KERNEL_MOUNTS:
            if kind not in _KERNEL_MOUNTS[target].split():
                wrong.append(f"{target} is a {kind}")
        elif target not in targets and target not in _DEVICES and not target.startswith("/usr"):
            wrong.append(f"{target} is mounted and was not asked for")
        if target in ("/", "/usr", "/etc", "/dev") and "ro" not in flags:
            wrong.append(f"{target} can be written")
    return wrong


def check_facts(facts: dict[str, bytes], who: str) -> None:
    """Check what the init saw and tried from inside (asked once for each root)."""
    status = {
        n: v.strip() for n, _, v in (line.partition(":") for line in facts.get("status", b"").decode(errors="replace").splitlines())
    }
    check_process(status, host_uid=None, who=f"{who}, from inside")
    wrong = observe.escapes(facts)
    if facts.get("processes") != b"1":
        wrong.append(f"{facts.get('processes', b'?').decode()} processes are visible, not 1")
    refuse(wrong, f"{who}, from inside")


def _zero(status: dict[str, str], name: str) -> bool:
    return name in status and int(status[name], 16) == 0


def refuse(wrong: list[str], who: str) -> None:
    if wrong:
        raise RuntimeUnavailable(f"the sandbox of {who} is not confined as claimed: {'; '.join(wrong)}", fix=_FIX)
