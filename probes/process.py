"""The kind `process`: what runs in an instance, what it listens on, and what is mounted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import Field

from probes.browser.running import browsers_of, without_noise, without_parts
from probes.canonical import name_of
from probes.kinds import Options, digest_of_kind, read_options
from probes.probe import Findings, ProbeContext
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec, ProcessInfo, Role
from sandbox.ports import Listener

# A backend's title says what it is doing at the moment; sessions are the postgres probe's to judge.
_BACKEND = re.compile(
    r"^(postgres: (?:[^ ]+: )?)(?!.*\b(?:writer|checkpointer|launcher|worker|logger|archiver|receiver|summarizer|sender)\b).+$"
)
SETTLE_S, CALM_S = 1.0, 0.06
# A program of any image goes on starting for a while after what its author calls ready: workers, a second socket.
STARTING_S, STARTED_S = 10.0, 1.0


class ProcessOptions(Options):
    """What counts."""

    sockets: bool = Field(default=True, description="read connected and bound sockets too, not only those that listen")
    mounts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessProbe:
    """Reads processes, sockets and mounts from outside. Runs before the other probes, whose sessions would show in it."""

    name: str
    options: ProcessOptions
    digest: str

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return True

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return Depth.QUICK

    def of_instance(self, field: str) -> bool:
        """A namespace's sandbox is its own; the server's processes are read with the instance as a whole."""
        return False

    async def read(self, context: ProbeContext) -> Findings:
        """Read until it is as the baseline says, for a process that is just going or coming is given a moment; of a fresh instance,
        until it has stood still."""
        loop = asyncio.get_running_loop()
        starting = not context.in_place and any(r.kind == "container" for r in context.subject.environment.resources)
        settle, calm = (STARTING_S, STARTED_S) if starting else (SETTLE_S, CALM_S)
        end = loop.time() + min(settle, context.limit_s / 2)
        last, since, pause = await self._now(context), loop.time(), 0.002

        def settled() -> bool:
            if (context.baseline is None or context.fresh) and loop.time() - since < calm:
                return False
            return context.baseline is None or context.compared(self.name, last) == context.baseline

        while loop.time() < end and not settled():
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.05)
            now = await self._now(context)
            if now != last:
                last, since = now, loop.time()
        return Findings(fields=last)

    async def _now(self, context: ProbeContext) -> Mapping[str, str]:
        browsers = browsers_of(context.subject.environment)
        fields = process_fields(without_parts(await context.subject.processes(), browsers))
        fields |= listener_fields(without_noise(await context.subject.listeners(), browsers), connected=self.options.sockets)
        if self.options.mounts:
            for role in Role:
                fields[f"mounts/{role}"] = "\n".join(map(name_of, await context.subject.mounts(role)))
        return fields


def process_fields(processes: Iterable[ProcessInfo]) -> dict[str, str]:
    """One field for each different command line, with how often it runs; and how many there are of each owner."""
    found = list(processes)
    postmasters = {(p.resource, p.pid) for p in found if p.role is Role.SERVER and p.argv and _is_postmaster(p.argv[0])}
    seen: Counter[str] = Counter()
    owners: Counter[str] = Counter({str(role): 0 for role in Role})
    for process in found:
        title = name_of(" ".join(process.argv))
        if process.role is Role.SERVER:
            title = _BACKEND.sub(r"\1(session)", title)
            # Anybody may call itself a session; the postmaster's own children are.
            if title.endswith("(session)") and (process.resource, process.parent) in postmasters:
                continue
        owners[str(process.role)] += 1
        seen[f"{_owner(process.role, process.resource)}/{title}"] += 1
    return {f"process/{n}": str(c) for n, c in seen.items()} | {f"processes/{n}": str(c) for n, c in owners.items()}


def _is_postmaster(program: str) -> bool:
    return program.rpartition("/")[2] == "postgres"


def listener_fields(listeners: Iterable[Listener], *, connected: bool) -> dict[str, str]:
    """One field for each different socket, with how often it is there."""
    seen = Counter(
        f"socket/{_owner(s.role, s.resource)}/{s.kind} {s.state} {name_of(s.address)}"
        for s in listeners
        if connected or s.state == "listen"
    )
    return {name: str(count) for name, count in seen.items()} | {"sockets": str(seen.total())}


def _owner(role: Role, resource: str | None) -> str:
    return f"{role} {resource}" if resource else str(role)


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> ProcessProbe:
    """Make the probe of an instance's processes."""
    options = read_options(spec, ProcessOptions, environment)
    return ProcessProbe(name=spec.name, options=options, digest=digest_of_kind(spec, options))
