"""The probes that come with each kind of resource, so that an author who writes none still gets a strict check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probes.kinds import known_kinds, load_kind
from probes.probe import Probe
from probes.verifier import ProbeVerifier
from sandbox.model import NOTHING, Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Clock

INSTANCE = "process"  # the kind that reads the instance as a whole
FILES = "files"


def default_probes(spec: EnvironmentSpec) -> tuple[ProbeSpec, ...]:
    """One probe for each resource (of the resource's own kind where there is such a kind of probe, else of its files), and one
    for processes, listeners and mounts. An author's probe of the same kind over the same resource takes its place."""
    kinds = known_kinds()
    written = {(p.kind, p.resource) for p in spec.probes}
    named = {p.name for p in spec.probes}
    wanted: list[tuple[str, str | None, Mapping[str, Any]]] = [(INSTANCE, None, NOTHING)]
    for resource in spec.resources:
        known = resource.kind in kinds
        wanted.append((resource.kind if known else FILES, resource.name, NOTHING if known else {"running": True}))
    return tuple(
        ProbeSpec(name=_free(name or "instance", named), kind=kind, resource=name, depth=Depth.QUICK, options=options)
        for kind, name, options in wanted
        if (kind, name) not in written
    )


def create_verifier(spec: EnvironmentSpec, *, extra: Sequence[Probe] = (), clock: Clock | None = None) -> ProbeVerifier:
    """Return the verifier of an environment: its own probes, the default ones, and `extra` ones made in Python (see `probe`).
    Raises EnvironmentInvalid for an unknown kind or wrong options."""
    made = [load_kind(p.kind)(p, spec) for p in (*default_probes(spec), *spec.probes)]
    return ProbeVerifier([*made, *extra], policy=spec.check, volatile=spec.volatile, clock=clock)


def _free(name: str, taken: set[str]) -> str:
    return name if name not in taken else f"{name} (default)"
