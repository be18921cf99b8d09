"""The host's end of the command channel: frames to and from the init of one sandbox, told apart by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandbox.model import ExecResult


class Channel(Protocol):
    """SIGNATURES (the implementation follows in this file under the same name). Bytes are never decoded."""

    @property
    def dead(self) -> str | None:
        """Why the channel ended, None while it works."""

    async def run(
        self,
        argv: Sequence[str | bytes],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command; `env` is added to the plan's. A signal's death is exit code 128 + n; at `limit_s` its group and every
        descendant die (`timed_out`). Cancelled: kills it first. Raises InstanceLost when the channel is or gets dead."""

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        """Raises FileNotFoundError, IsADirectoryError, PermissionError, OSError as the inside met them; LimitReached."""

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write beside the target and rename; parents are made."""

    async def quiesce(self, *, timeout: float = 10.0) -> None:
        """Kill every process except the init until none is left."""

    async def ping(self, *, timeout: float = 5.0) -> float: ...
    async def close(self) -> None: ...
