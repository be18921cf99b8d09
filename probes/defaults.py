"""The probes that come with each kind of resource, so that an author who writes none still gets a strict check."""

from __future__ import annotations

from collections.abc import Sequence

from probes.kinds import known_kinds, load_kind
from probes.probe import Probe
from probes.verifier import ProbeVerifier
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Clock

INSTANCE = "process"  # the kind that reads the instance as a whole
FILES = "files"


def default_probes(spec: EnvironmentSpec) -> tuple[ProbeSpec, ...]:
    """One probe for each resource (of the resource's own kind where there is such a kind of probe, else of its files), and one
    for processes, listeners and mounts. An author's probe of the same kind over the same resource takes its place."""
    kinds = known_kinds()
    written = {(p.kind, p.resource) for p in spec.probes}
    named = {p.name for p in spec.probes}
    wanted = [(INSTANCE, None), *((r.kind if r.kind in kinds else FILES, r.name) for r in spec.resources)]
    return tuple(
        ProbeSpec(name=_free(resource or "instance", named), kind=kind, resource=resource, depth=Depth.QUICK)
        for kind, resource in wanted
        if (kind, resource) not in written
    )


def create_verifier(spec: EnvironmentSpec, *, extra: Sequence[Probe] = (), clock: Clock | None = None) -> ProbeVerifier:
    """Return the verifier of an environment: its own probes, the default ones, and `extra` ones made in Python (see `probe`).
    Raises EnvironmentInvalid for an unknown kind or wrong options."""
    made = [load_kind(p.kind)(p, spec) for p in (*default_probes(spec), *spec.probes)]
    return ProbeVerifier([*made, *extra], policy=spec.check, volatile=spec.volatile, clock=clock)


def _free(name: str, taken: set[str]) -> str:
    return name if name not in taken else f"{name} (default)"
