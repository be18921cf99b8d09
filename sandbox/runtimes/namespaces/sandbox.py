"""One bubblewrap sandbox: planned, started, watched, looked into from outside, killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from sandbox.model import NOTHING, Limits, ProcessInfo, Role
from sandbox.ports import Listener, Mount
from sandbox.runtimes.namespaces.channel import Channel
from sandbox.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What to start. With `argv` it is a server (its stdout and stderr go to `log`, capped); without, it holds the command
    channel. `name` appears in messages and in the cgroup's name. Mounts' hosts paths must be passable by the role's user."""

    name: str
    role: Role
    argv: tuple[str, ...] | None = None
    resource: str | None = None
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = NOTHING
    root: str = "host"
    workdir: str = "/"
    home: str = "/tmp"
    limits: Limits = Limits()
    uid: int = 1000
    gid: int = 1000
    hostname: str = "sandbox"
    log: Path | None = None
    log_bytes: int = 1_000_000


class Sandbox(Protocol):
    """SIGNATURES (the implementation follows in this file under the same name).

    `async with await Sandbox.start(plan, settings) as sandbox:` or start and `kill`.
    """

    plan: SandboxPlan
    pid: int  # host pid of the namespace's first process
    main_pid: int  # host pid of the server itself (equal to `pid` where the channel's init is the first process)
    in_force: Mapping[str, Any]

    @classmethod
    async def start(cls, plan: SandboxPlan, settings: Settings, *, timeout: float = 20.0) -> Sandbox:
        """Start it, check its profile; with a channel, return when it answers. Raises RuntimeUnavailable (the machine lacks
        something), InstanceLost (it ended while starting; carries its stderr's tail)."""

    @property
    def channel(self) -> Channel:
        """The command channel; raises InstanceLost where the plan has argv."""

    @property
    def exit_code(self) -> int | None: ...
    def alive(self) -> bool: ...
    def signal(self, number: int) -> None:
        """Signal the main process (pidfd: never a reused pid). No error when it has ended."""

    async def wait(self, timeout: float) -> bool:
        """Wait until it has ended; False when it still runs."""

    async def kill(self, *, timeout: float = 10.0) -> None:
        """Kill the namespace's first process, wait until the kernel has reaped the whole namespace, remove the cgroup."""

    async def processes(self) -> tuple[ProcessInfo, ...]: ...
    async def listeners(self) -> tuple[Listener, ...]: ...
    async def mounts(self) -> tuple[str, ...]: ...
    def oom_kills(self) -> int | None:
        """How often the kernel killed inside for memory; None where nobody counts."""

    def log_tail(self, limit: int = 4000) -> bytes: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
