"""The probes that come with each kind of resource, so that an author who writes none still gets a strict check."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from probes.kinds import known_kinds, load_kind
from probes.probe import Probe
from probes.verifier import ProbeVerifier
from sandbox.model import NOTHING, EnvironmentSpec, Isolation, ProbeSpec
from sandbox.ports import Clock

INSTANCE = "process"  # the kind that reads the instance as a whole
FILES = "files"
TREE = "shared-tree"  # what namespaces share beside their own directories
OWNERS = ("home", "workspace")  # what a runtime gives the agent beside the resources


def default_probes(spec: EnvironmentSpec) -> tuple[ProbeSpec, ...]:
    """One probe for each resource (of the resource's own kind where there is such a kind of probe, else of its files), one for
    each directory of the agent's that no resource has, and one for processes, listeners and mounts. An author's probe of the same
    kind over the same resource (or the same `owner`) takes its place."""
    kinds = known_kinds()
    wanted = []
    for resource in spec.resources:
        kind, options = (resource.kind, NOTHING) if resource.kind in kinds else (FILES, {"running": True})
        wanted.append(ProbeSpec(name=resource.name, kind=kind, resource=resource.name, options=options))
    wanted.append(ProbeSpec(name="instance", kind=INSTANCE))
    wanted += [ProbeSpec(name=owner, kind=FILES, options={"owner": owner}) for owner in OWNERS]
    if spec.isolation is Isolation.DIRECTORY:
        wanted.append(ProbeSpec(name="tree", kind=TREE))
    written = {_subject_of(p) for p in spec.probes}
    taken = {p.name for p in spec.probes}
    found = []
    for probe in wanted:
        if _subject_of(probe) not in written:
            named = probe if probe.name not in taken else dataclasses.replace(probe, name=f"{probe.name} (default)")
            taken.add(named.name)
            found.append(named)
    return tuple(found)


def _subject_of(probe: ProbeSpec) -> tuple[str, str | None, object]:
    return probe.kind, probe.resource, probe.options.get("owner")


def create_verifier(spec: EnvironmentSpec, *, extra: Sequence[Probe] = (), clock: Clock | None = None) -> ProbeVerifier:
    """Return the verifier of an environment: its own probes, the default ones, and `extra` ones made in Python (see `probe`).
    Raises EnvironmentInvalid for an unknown kind or wrong options."""
    made = [load_kind(p.kind)(p, spec) for p in (*default_probes(spec), *spec.probes)]
    return ProbeVerifier([*made, *extra], policy=spec.check, volatile=spec.volatile, clock=clock)
