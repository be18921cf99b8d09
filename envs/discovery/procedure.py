"""From an environment to the probes and volatile fields that it needs, as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.discovery.observe import LATER_S, Observed, observe
from envs.discovery.sources import draft
from envs.discovery.text import Origin, proposed
from envs.discovery.unstable import Proposal, Unstable, covering, left_over, proposals
from envs.environment import load
from probes.defaults import default_probes
from sandbox.aio import in_thread
from sandbox.model import ProbeSpec
from sandbox.ports import Environment, Runtime
from sandbox.settings import Settings
from sandbox.wiring import machinery

INSTANCES = 5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found out about an environment. `probes` are those in force, with how many fields each reads; `left` is what
    differed and no pattern covers."""

    environment: str
    runtime: str  # under which it was looked at
    observed: Observed
    probes: tuple[tuple[ProbeSpec, Origin, int], ...]
    proposals: tuple[Proposal, ...]
    left: tuple[Unstable, ...]
    text: str

    def as_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "runtime": self.runtime,
            "instances": self.observed.instances,
            "fields": self.observed.fields,
            "builds": self.observed.between_builds,
            "remarks": list(self.observed.known.remarks),
            "probes": [
                {
                    "name": probe.name,
                    "kind": probe.kind,
                    "resource": probe.resource,
                    "depth": probe.depth.value,
                    "options": dict(probe.options),
                    "origin": origin.name.lower(),
                    "fields": fields,
                }
                for probe, origin, fields in self.probes
            ],
            "ready": {resource: list(argv) for resource, argv in self.observed.known.ready.items()},
            "volatile": [
                {"pattern": p.pattern, "reason": p.reason, "covers": list(p.covers), "also": p.also, "once": p.once}
                for p in self.proposals
            ],
            "left": [u.name for u in self.left],
            "text": self.text,
        }


async def begin(
    given: str, name: str, directory: Path, *, settings: Settings, instances: int = INSTANCES, say: Say = lambda _: None
) -> tuple[list[Path], Discovery]:
    """Draft an environment from a directory, an address of PostgreSQL or an image, look at it, and add what was found. The draft
    stays where looking at it fails: its author mends it and goes on with `env baseline --discover`."""
    made = await draft(given, settings)
    if made.runtime is not None:
        settings = replace(settings, runtime=made.runtime)
    files = await in_thread(made.write, name, directory)
    environment = load(files[0])
    async with machinery(settings) as (runtime, _):
        await runtime.sweep()
        found = await discover(environment, runtime, instances=instances, say=say)
    with files[0].open("a", encoding="utf-8") as description:
        description.write(f"\n{found.text}")
    load(files[0])  # what is handed over is valid
    return files, found


async def discover(
    environment: Environment,
    runtime: Runtime,
    *,
    instances: int = INSTANCES,
    later_s: float = LATER_S,
    say: Say = lambda _: None,
) -> Discovery:
    """Look at so many fresh instances. What the environment declares volatile already is not proposed again."""
    observed = await observe(environment, runtime, instances=instances, later_s=later_s, say=say)
    own, servers = environment.spec, observed.known
    spec = replace(own, probes=(*own.probes, *servers.probes))
    known = (*own.volatile, *servers.volatile)
    undeclared = {u.name for u in left_over(observed.readings, known)}
    found = covering(observed.readings, servers.volatile)
    found += [p for p in proposals(observed.readings) if not undeclared.isdisjoint(p.covers)]
    left = left_over(observed.readings, [*own.volatile, *(p.volatile for p in found)])
    counts = {probe: len(fields) for probe, fields in observed.readings[0].fields.items()}
    probes = [(p, Origin.DEFAULT, counts.get(p.name, 0)) for p in default_probes(spec)]
    probes += [(p, Origin.AUTHOR, counts.get(p.name, 0)) for p in own.probes]
    probes += [(p, Origin.SERVER, counts.get(p.name, 0)) for p in servers.probes]
    seen = (
        f"{observed.instances} fresh instances, one of them again {later_s:g} s later and after a restore: {observed.fields} fields"
    )
    text = proposed(
        probes, found, seen=seen, remarks=servers.remarks, ready=servers.ready, left=left, builds=observed.between_builds
    )
    return Discovery(
        environment=own.name,
        runtime=runtime.name,
        observed=observed,
        probes=tuple(probes),
        proposals=tuple(found),
        left=tuple(left),
        text=text,
    )
