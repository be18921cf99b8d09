"""The kind `command`: an author's command, run with trusted binaries in a fresh sandbox over the state mounted read-only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from probes.canonical import bytes_digest, name_of
from probes.kinds import Options, digest_of_kind, read_options
from probes.probe import Findings, ProbeContext
from sandbox.model import Depth, EnvironmentSpec, ExecResult, ProbeSpec

SHORT = 400


class CommandOptions(Options):
    """`fields` says how output becomes fields: `text` one field, `lines` one for each different line (order does not count),
    `pairs` one for each line `name=value`."""

    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    limit_s: float = Field(default=20.0, gt=0)
    exit_codes: tuple[int, ...] = (0,)
    fields: Literal["text", "lines", "pairs"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProbe:
    """Reads what a command prints."""

    name: str
    depth: Depth
    options: CommandOptions
    digest: str

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return self.depth

    async def read(self, context: ProbeContext) -> Findings:
        limit = min(self.options.limit_s, context.limit_s)
        result = await context.subject.trusted_run(self.options.argv, env=self.options.env or None, limit_s=limit)
        if problem := _problem(result, self.options, limit):
            return Findings(fields={}, problems=(problem,))
        return Findings(fields={"exit code": str(result.exit_code), **output_fields(result.stdout, self.options.fields)})


def output_fields(output: bytes, how: str) -> dict[str, str]:
    """Turn a command's output into fields."""
    if how == "text":
        text = output.decode("utf-8", "backslashreplace")
        return {"output": text if len(text) <= SHORT else f"{len(output)} bytes, {bytes_digest(output)}"}
    lines = output.decode("utf-8", "surrogateescape").splitlines()
    if how == "lines":
        return {f"line/{name_of(line)}": str(count) for line, count in Counter(lines).items()} | {"lines": str(len(lines))}
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition("=")
        found.setdefault(f"value/{name_of(name.strip())}", []).append(name_of(value.strip()))
    return {name: "\n".join(values) for name, values in found.items()} | {"lines": str(len(lines))}


def _problem(result: ExecResult, options: CommandOptions, limit: float) -> str | None:
    if result.timed_out:
        return f"the command ran longer than {limit:g} s"
    if result.truncated:
        return "the command printed more than the output limit"
    if result.exit_code not in options.exit_codes:
        said = " ".join(result.stderr.decode("utf-8", "replace").split())[-300:]
        return f"the command ended with exit code {result.exit_code}: {said or 'it said nothing'}"
    return None


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> CommandProbe:
    """Make a probe of a command."""
    options = read_options(spec, CommandOptions, environment)
    return CommandProbe(name=spec.name, depth=spec.depth, options=options, digest=digest_of_kind(spec, options))
