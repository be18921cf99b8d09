"""Finding the known servers of an instance: what they can be asked for, and whether they answer yet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envs.discovery.servers import SERVERS, Server, probe_of, running, shell
from sandbox.model import EnvironmentSpec, ProbeSpec, ResourceSpec, VolatileField
from sandbox.ports import Instance
from sandbox.ports.container import ContainerView, HasContainers

LIMIT_S = 15.0  # as a probe has it for such a command
POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is proposed for the known servers of an instance, with remarks for the author. `answers` has a command for each
    container that ends with 0 once its servers answer; `ready` has those that are proposed."""

    probes: tuple[ProbeSpec, ...] = ()
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ready: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    volatile: tuple[VolatileField, ...] = ()
    remarks: tuple[str, ...] = ()


async def known(spec: EnvironmentSpec, instance: Instance) -> Known:
    """Find the servers that run in containers. Where the author has a probe, none is asked for what it keeps."""
    subject = instance.subject()
    containers = [r for r in spec.resources if r.kind == "container"]
    if not containers or not isinstance(subject, HasContainers):
        return Known()
    programs = running(await subject.processes())
    own = {p.resource for p in spec.probes if p.kind == "container"}
    found = Known()
    for resource in containers:
        view = subject.container(resource.name)
        found = _both(found, await _readiness(view, resource, programs))
        if resource.name in own:
            continue
        name = resource.name if resource.name not in {p.name for p in spec.probes} else f"{resource.name}-server"
        found = _both(found, await _kept(view, resource.name, programs, name=name))
    return found


async def until_answering(found: Known, instance: Instance) -> None:
    """Wait for some LIMIT_S until the known servers of another instance answer."""
    subject = instance.subject()
    if isinstance(subject, HasContainers):
        for resource, argv in found.answers.items():
            await _ends_well(subject.container(resource), argv)


async def _readiness(view: ContainerView, resource: ResourceSpec, programs: Sequence[str]) -> Known:
    answering, remarks = [], []
    for program in programs:
        if await _ends_well(view, shell(SERVERS[program].ready)):
            answering.append(SERVERS[program].ready)
        else:
            remarks.append(f"{program} runs in {resource.name}, and whether it answers cannot be told: see `ready`")
    answers = {resource.name: shell(" && ".join(answering))} if answering else {}
    if "ready" in resource.options:
        return Known(answers=answers)
    if answers and resource.options.get("setup"):
        remarks.append(f"{resource.name} has a `setup`, before which its server need not answer: say when it is `ready`")
        return Known(answers=answers, remarks=tuple(remarks))
    return Known(answers=answers, ready=answers, remarks=tuple(remarks))


async def _kept(view: ContainerView, resource: str, programs: Sequence[str], *, name: str) -> Known:
    """Ask them for what they keep. Commands that fail on this fresh instance are not proposed: what they print of it would pass for
    its state."""
    if not programs:
        return Known(remarks=(f"what a server of {resource} holds in memory alone is not read: add a command to `inside`",))
    asked: list[str] = []
    volatile: list[VolatileField] = []
    remarks: list[str] = []
    for program in programs:
        server = SERVERS[program]
        directory, refused = await _asked(view, server)
        if refused:
            remarks.append(f"{program} runs in {resource}, but what it holds cannot be asked for, and is not read: {refused}")
            continue
        asked.append(program)
        volatile += server.volatile(name, program, directory)
        remarks += [server.remark] if server.remark else []
    probes = (probe_of(asked, resource, name=name),) if asked else ()
    return Known(probes=probes, volatile=tuple(volatile), remarks=tuple(remarks))


def _both(one: Known, other: Known) -> Known:
    return Known(
        probes=(*one.probes, *other.probes),
        answers={**one.answers, **other.answers},
        ready={**one.ready, **other.ready},
        volatile=(*one.volatile, *other.volatile),
        remarks=(*one.remarks, *other.remarks),
    )


async def _ends_well(view: ContainerView, argv: Sequence[str]) -> bool:
    """Run it until it ends with 0, for some LIMIT_S. The end of the wait cuts no command short: on another machine's engine that
    would cost its container."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + LIMIT_S
    while (await view.run(argv, limit_s=LIMIT_S)).exit_code != 0:
        if loop.time() >= give_up:
            return False
        await asyncio.sleep(POLL_S)
    return True


async def _asked(view: ContainerView, server: Server) -> tuple[str, str]:
    """Return where its files lie, and why one of its commands tells nothing here, empty where all do."""
    directory = ""
    for name, argv in (*server.inside.items(), *([("directory", server.directory)] if server.directory else [])):
        result = await view.run(argv, limit_s=LIMIT_S)
        out, problem = (text.decode("utf-8", "replace") for text in (result.stdout, result.stderr))
        if result.exit_code != 0 or result.timed_out or result.truncated:
            said = " ".join((problem or out).split())[-200:]
            return "", f"{name} ended with {result.exit_code}: {said or 'it said nothing'}"
        if argv is server.directory:
            directory = out.strip()
        elif not re.fullmatch(server.answer, out, re.DOTALL):
            return "", f"{name} tells nothing: {' '.join(out.split())[:200] or 'no output'}"
    if server.writes and not directory.startswith("/"):
        return "", "it does not tell where its files lie"
    return directory, ""
