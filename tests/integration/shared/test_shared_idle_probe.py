"""The default probe of a shared tree is not idle: what lies there and is nobody's is seen by it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from probes.defaults import TREE, default_probes
from probes.kinds import load_kind
from probes.verifier import ProbeVerifier
from sandbox.model import Depth, VerdictStatus

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_what_is_nobodys_is_seen_by_the_probe_of_the_tree_alone(open_house: Any) -> None:
    house = await open_house("directory", size=2, share=2)
    (host,) = house.hosts
    spec, recorded = house.prepared.environment.spec, house.prepared.golden.instance
    (probe,) = (p for p in default_probes(spec) if p.kind == TREE)
    kept = [load_kind(p.kind)(p, spec) for p in default_probes(spec) if p.name != probe.name]
    subject = host.live().subject()
    place = subject.sharing.tree.real("") / "nobody"
    place.mkdir()
    try:
        whole = await house.prepared.environment.verifier.check(subject, recorded, Depth.DEEP)
        readings = tuple(r for r in recorded.readings if r.probe != probe.name)
        less = await ProbeVerifier(kept, policy=spec.check).check(subject, replace(recorded, readings=readings), Depth.DEEP)
    finally:
        place.rmdir()

    assert {m.probe for m in whole.mismatches} == {probe.name}
    assert less.status is VerdictStatus.CLEAN, (less.mismatches, less.problems)
