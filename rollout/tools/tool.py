"""What a tool is: a name, a schema, and one act in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollout.policies.policy import ToolSpec
from sandbox.model import ExecResult, PageAction, PageResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came back. `ok` False is the policy's own matter (a failed command); a fault of the tool is raised as ToolFault."""

    text: str
    ok: bool = True
    timed_out: bool = False


class Acting(Protocol):
    """What tools need of a session, in process or remote."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult: ...
    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes: ...
    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None: ...
    async def browse(self, action: PageAction) -> PageResult: ...


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...
    @property
    def limit_s(self) -> float:
        """How long one act may take before it counts as timed out."""

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation: ...


def text_schema(**properties: str) -> dict[str, Any]:
    """A JSON schema of required text parameters, each with its description."""
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in properties.items()},
        "required": list(properties),
    }


def described(result: ExecResult) -> Observation:
    """A command's result as text: what it printed, then its exit code where it is not 0."""
    parts = [result.text, result.stderr.decode("utf-8", "replace")]
    if result.truncated:
        parts.append("(output cut)")
    if result.timed_out:
        parts.append("(timed out)")
    elif result.exit_code != 0:
        parts.append(f"(exit code {result.exit_code})")
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return Observation(text=text or "(no output)", ok=result.exit_code == 0 and not result.timed_out, timed_out=result.timed_out)
