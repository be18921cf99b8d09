"""Recording a baseline: fresh instances must agree, and a rebuilt one is held beside them (P2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from probes.canonical import digest_of, fields_digest
from probes.compare import compare, is_volatile, strip
from probes.examine import examine
from probes.probe import Probe
from sandbox.errors import BaselineUnstable
from sandbox.model import Baseline, Depth, Mismatch, Reading, VolatileField

FieldsByProbe = Mapping[str, Mapping[str, str]]
SHOWN = 120


def settle(
    probes: Sequence[Probe],
    clones: Sequence[FieldsByProbe],
    rebuilt: FieldsByProbe | None,
    *,
    key: str,
    volatile: tuple[VolatileField, ...],
    recorded: datetime | None,
) -> Baseline:
    """Make the baseline of what was read. Raises BaselineUnstable with every field on which two clones differ."""
    if len(clones) < 2:
        raise BaselineUnstable(
            f"a baseline is recorded on at least two fresh instances, and {len(clones)} was given",
            fix="start a second instance from the same snapshot",
        )
    first = clones[0]
    unstable = [line for other in clones[1:] for line in _words(_differences(probes, first, other, volatile))]
    if unstable:
        raise BaselineUnstable(
            f"{len(unstable)} fields differ between fresh instances",
            fields=tuple(dict.fromkeys(unstable)),
            fix="make the state deterministic, or declare the field under [[volatile]] with a pattern and a reason",
        )
    readings = tuple(_readings(probes, first, volatile))
    drift = tuple(_differences(probes, first, rebuilt, volatile)) if rebuilt is not None else ()
    baseline = Baseline(
        key=key,
        digest=readings_digest(readings),
        readings=readings,
        instances=len(clones),
        volatile=volatile,
        drift=drift,
        recorded=recorded,
    )
    return replace(baseline, suspicions=examine(baseline))


def readings_digest(readings: Sequence[Reading]) -> str:
    """Digest readings, whatever order the probes ran in."""
    ordered = sorted(readings, key=lambda r: (r.probe, r.depth))
    return digest_of(part for r in ordered for part in (r.probe, r.depth, fields_digest(r.fields)))


def fields_of(baseline: Baseline, probe: str) -> dict[str, str] | None:
    """Return all of a probe's fields in a baseline, None where it holds none."""
    found = [r.fields for r in baseline.readings if r.probe == probe]
    return {name: text for fields in found for name, text in fields.items()} if found else None


def _readings(probes: Sequence[Probe], read: FieldsByProbe, volatile: tuple[VolatileField, ...]) -> list[Reading]:
    readings = []
    for probe in probes:
        fields = strip(probe.name, read[probe.name], volatile)
        for depth in Depth:
            part = {n: t for n, t in fields.items() if (probe.depth_of(n, in_place=False) or Depth.QUICK) is depth}
            if part:
                readings.append(Reading(probe=probe.name, depth=depth, fields=part))
    return readings


def _differences(
    probes: Sequence[Probe], left: FieldsByProbe, right: FieldsByProbe, volatile: tuple[VolatileField, ...]
) -> list[Mismatch]:
    return [
        mismatch
        for probe in probes
        for mismatch in compare(
            probe.name,
            left[probe.name],
            right[probe.name],
            depth_of=lambda field, p=probe: p.depth_of(field, in_place=False),  # type: ignore[misc]
        )
        if not is_volatile(probe.name, mismatch.field, volatile)
    ]


def _words(mismatches: Sequence[Mismatch]) -> list[str]:
    return [f"{m.probe}/{m.field}: {_short(m.expected)} and {_short(m.actual)}" for m in mismatches]


def _short(text: str | None) -> str:
    if text is None:
        return "absent"
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
