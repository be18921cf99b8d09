"""Looks into a sandbox from outside: processes, sockets and mounts as the host's own /proc shows them. Blocking."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.model import ProcessInfo, Role
from sandbox.ports import Listener

_PROC = Path("/proc")
_TCP = {1: "connected", 10: "listen", 7: "closed"}
_ENDING = (3, 4, 5, 6, 9, 11)  # SYN_RECV, FIN_WAIT1 and 2, TIME_WAIT, LAST_ACK, CLOSING
_LISTENING = 0x10000  # __SO_ACCEPTCON in /proc/net/unix


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A process of a PID namespace: its pid on the host and inside."""

    host: int
    inside: int
    parent: int  # on the host


def members(first: int, candidates: Iterable[int] | None = None) -> list[Member]:
    """Every process in the PID namespace of host process `first`, told by the namespace itself, not by what it says inside."""
    namespace = _link(first, "ns/pid")
    if namespace is None:
        return []
    found = []
    for pid in candidates if candidates is not None else _everyone():
        if _link(pid, "ns/pid") == namespace:
            status = fields(pid)
            inside = status.get("NSpid", "").split()
            if len(inside) > 1:
                found.append(Member(host=pid, inside=int(inside[-1]), parent=int(status.get("PPid", "0"))))
    return sorted(found, key=lambda m: m.inside)


def processes(first: int, role: Role, resource: str | None, candidates: Iterable[int] | None = None) -> tuple[ProcessInfo, ...]:
    """The same as values. Pid 1 is ours, and named so."""
    return of_members(members(first, candidates), role, resource)


def of_members(found: Sequence[Member], role: Role, resource: str | None) -> tuple[ProcessInfo, ...]:
    """Tell what the members of a sandbox are."""
    inside = {m.host: m.inside for m in found}
    infos = []
    for member in found:
        argv: tuple[str, ...] = ("autoclave-init",) if member.inside == 1 and is_ours(member.host) else _argv(member.host)
        if argv:  # else it ended while we looked
            infos.append(
                ProcessInfo(pid=member.inside, parent=inside.get(member.parent, 0), role=role, argv=argv, resource=resource)
            )
    return tuple(infos)


def io_priority(pid: int) -> int | None:
    """The I/O scheduling class and level of a process; None where it cannot be asked."""
    number = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
    return None if number is None else int(ctypes.CDLL(None).syscall(number, 1, pid))  # 1: of a process


def children(pid: int) -> list[int]:
    """Host pids of a process's own children."""
    return [other for other in _everyone() if fields(other).get("PPid") == str(pid)]


def strays(label: str) -> list[int]:
    """Host pids of bubblewrap processes whose label starts so, wherever they come from."""
    wanted = os.fsencode(label)
    return [
        pid for pid in _everyone() if (words := _cmdline(pid).split(b"\0"))[1:2] == [b"--unsetenv"] and words[2].startswith(wanted)
    ]


def fields(pid: int) -> dict[str, str]:
    """Return /proc/<pid>/status as a mapping; empty when the process is gone."""
    try:
        text = (_PROC / str(pid) / "status").read_text(errors="surrogateescape")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def is_dumpable(pid: int, uid: int) -> bool:
    """True where other processes of a process's user, `uid`, may look into its memory. The kernel gives /proc/<pid>/status to root
    where they may not; of one that has gone nothing is known."""
    try:
        return os.stat(_PROC / str(pid) / "status").st_uid == uid
    except OSError:
        return True


def escapes(facts: Mapping[str, bytes]) -> list[str]:
    """Say which tries to leave succeeded; or that none could be made, which proves nothing."""
    tried = {name: value for name, value in facts.items() if name.startswith("tried ")}
    if not tried or set(tried.values()) == {b"unknown"}:
        return ["nothing could be tried: its Python lacks _ctypes"]
    return [f"{name} succeeded" for name, value in tried.items() if value not in (b"-1", b"unknown")]


def mounts(pid: int) -> tuple[str, ...]:
    """The mount table: `target type options`, in order, without device numbers, host paths and generation names."""
    lines = []
    for line in (_PROC / str(pid) / "mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()[0]
        lines.append(f"{words[4]} {kind} {words[5]}")
    return tuple(lines)


def interfaces(pid: int) -> tuple[str, ...]:
    """Names of the network interfaces of a process's namespace."""
    lines = (_PROC / str(pid) / "net" / "dev").read_text().splitlines()[2:]
    return tuple(sorted(line.partition(":")[0].strip() for line in lines))


def listeners(pid: int, role: Role, resource: str | None, *, orphans: bool = True) -> tuple[Listener, ...]:
    """Every socket of a process's network namespace. `orphans` are the ends of connections that no process holds any more and the
    kernel keeps for a while; in a namespace that outlives its processes they say nothing about those of now. No process holds what
    is still to be accepted either, but whoever listens will read it."""
    found = []
    for name in _in_use(pid):
        for words in _net(pid, name):
            number = int(words[3], 16) if name.startswith("tcp") else 0
            if not orphans and words[9] == "0" and number in _ENDING:
                continue
            state = _TCP.get(number, "other") if number else "bound"
            address = _address(words[1])
            if state != "listen" and not words[2].endswith(":0000"):
                state, address = ("connected" if name.startswith("udp") else state), f"{address} -> {_address(words[2])}"
            found.append(Listener(role=role, resource=resource, kind=name[:3], state=state, address=address))
    for words in _net(pid, "unix"):
        path = words[7] if len(words) > 7 else ""
        state = "listen" if int(words[3], 16) & _LISTENING else "connected" if words[5] == "03" else "bound"
        found.append(Listener(role=role, resource=resource, kind="unix", state=state, address=path or "unnamed"))
    return tuple(sorted(found, key=lambda item: (item.kind, item.state, item.address)))


def _in_use(pid: int) -> list[str]:
    """Which tables hold anything. The kernel keeps one table for all namespaces and searches the whole of it for each reading
    (some 3 ms for TCP), while its counters are each namespace's own; a table whose counter cannot be read is read itself."""
    counts: dict[str, bool] = {}
    for table in ("sockstat", "sockstat6"):
        try:
            lines = (_PROC / str(pid) / "net" / table).read_text().splitlines()
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for line in lines:
            name, _, numbers = line.partition(": ")
            words = numbers.split()
            held = dict(zip(words[::2], words[1::2], strict=False))
            counts[name.lower()] = held.get("inuse", "1") != "0" or held.get("tw", "0") != "0"
    return [name for name in ("tcp", "tcp6", "udp", "udp6") if counts.get(name, True)]


def _net(pid: int, name: str) -> Iterable[list[str]]:
    try:
        lines = (_PROC / str(pid) / "net" / name).read_text(errors="surrogateescape").splitlines()[1:]
    except FileNotFoundError:
        return []  # a kernel without IPv6
    limit = 7 if name == "unix" else -1
    return [line.split(None, limit) for line in lines]


def _address(text: str) -> str:
    raw, _, port = text.partition(":")
    words = struct.pack(f"={len(raw) // 8}I", *(int(raw[at : at + 8], 16) for at in range(0, len(raw), 8)))
    host = socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)
    return f"[{host}]:{int(port, 16)}" if len(words) == 16 else f"{host}:{int(port, 16)}"


def _everyone() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _link(pid: int, name: str) -> str | None:
    try:
        return os.readlink(_PROC / str(pid) / name)
    except OSError:
        return None


def _cmdline(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def is_ours(pid: int) -> bool:
    """True for bubblewrap itself and for the init of a command channel."""
    return _runs_ours(_cmdline(pid))


def _runs_ours(cmdline: bytes) -> bool:
    words = cmdline.split(b"\0")
    return words[1:2] == [b"--unsetenv"] or b"/.autoclave/init.pyc" in words


def _argv(pid: int) -> tuple[str, ...]:
    """Its words, or its name where it has none; nothing where no thread of it runs any more and only its parent's wait is missing:
    that does nothing, and a busy machine's servers have some at any moment."""
    words = _cmdline(pid).rstrip(b"\0")
    if not words:
        status = fields(pid)
        over = "VmSize" not in status and status.get("Threads", "1") in ("0", "1")  # a first thread may end before the others
        return () if over else (f"[{status['Name']}]",)
    return tuple(os.fsdecode(word) for word in words.split(b"\0"))


def is_another(pid: int) -> bool:
    """True where a program that is not ours is being executed. A process that is just ending has no command line: it is neither."""
    cmdline = _cmdline(pid)  # read once: it may end between two readings
    return bool(cmdline) and not _runs_ours(cmdline)
