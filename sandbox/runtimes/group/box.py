"""What the parts of an instance run in: the plan of one sandbox, and what a runtime must be able to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from sandbox.model import NOTHING, Limits, ProcessInfo, Role
from sandbox.ports import Listener, Mount
from sandbox.runtimes.channel.channel import Channel

DEFAULT_PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What to start. With `argv` it is a server (its stdout and stderr go to `log`, capped); without, it holds the command
    channel. `name` appears in messages and labels; `owner` is the instance that it belongs to, and `kept` says that the
    runtime may keep what it made for the owner's next plan that looks the same. The role's user must be able to pass the mounts'
    host paths. `env` is the server's, or every command's; PATH, HOME, TMPDIR and LANG have defaults."""

    name: str
    owner: str = ""
    kept: bool = False
    role: Role
    argv: tuple[str, ...] | None = None
    resource: str | None = None
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = NOTHING
    root: str = "host"
    image: str = ""
    container_runtime: str = ""
    workdir: str = "/"
    home: str = "/tmp"
    limits: Limits = _DEFAULT_LIMITS
    uid: int = 1000
    gid: int = 1000
    hostname: str = "sandbox"
    log: Path | None = None
    log_bytes: int = 1_000_000

    def environment(self) -> dict[str, str]:
        return {"PATH": DEFAULT_PATH, "HOME": self.home, "TMPDIR": "/tmp", "LANG": "C.UTF-8", **self.env}


class Box(Protocol):
    """One running sandbox: watched and looked into from outside."""

    @property
    def plan(self) -> SandboxPlan: ...
    @property
    def in_force(self) -> Mapping[str, Any]: ...
    @property
    def channel(self) -> Channel:
        """The command channel; raises InstanceLost where the plan has argv."""

    def alive(self) -> bool: ...
    def signal(self, number: int) -> None:
        """Signal the main process. No error when it has ended."""

    async def wait(self, timeout: float) -> bool:
        """Wait until it has ended; False when it still runs after `timeout` seconds."""

    async def kill(self) -> None:
        """End every process inside and wait until they are dead; nothing inside can reach the mounts any more. Idempotent."""

    async def processes(self) -> Sequence[ProcessInfo]: ...
    async def listeners(self) -> Sequence[Listener]: ...
    async def mounts(self) -> Sequence[str]:
        """Its mount table: `target type options`."""

    def memory_peak(self) -> int | None:
        """The most bytes that were in use inside at once since it started, page cache included; None where nobody counts."""

    def log_tail(self, limit: int = 4000) -> bytes:
        """The end of what a server wrote to stdout and stderr."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Boxes(Protocol):
    """Makes boxes: what a runtime brings, everything else about instances being the same."""

    @property
    def name(self) -> str:
        """The runtime's name."""

    @property
    def in_force(self) -> Mapping[str, Any]: ...
    async def identity(self, root: str, image: str) -> str:
        """Return everything of the runtime that a baseline depends on, for that root and image."""

    async def start(self, plan: SandboxPlan) -> Box:
        """Start a box and check that it is confined as claimed. Raises RuntimeUnavailable or InstanceLost; nothing is left then."""

    async def release(self, owner: str) -> None:
        """Remove what is still kept for an owner whose boxes have all been killed."""

    async def sweep(self, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
        """Kill and remove what carries our home's mark, of this process or an earlier one, and none of the tokens in `keep`; say
        what it was (with `dry_run`: only say it)."""

    async def close(self) -> None: ...


def scratch(limits: Limits) -> tuple[int, int]:
    """Return the sizes of /tmp and /dev/shm in MiB. They are memory: together they stay below the memory bound, so that filling
    them ends in `no space left` before it ends in the kernel's out-of-memory killer."""
    return max(1, min(limits.disk_mb, limits.memory_mb // 2)), max(1, limits.memory_mb // 4)
