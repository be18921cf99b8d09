"""What a new baseline says differently from the one before it, kept with it for a person to review (P2)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from sandbox.errors import BaselineRefused
from sandbox.model import Baseline, Depth, Mismatch, Reading

log = logging.getLogger(__name__)
NAMED = 20  # fields that a refusal names
Approve = Callable[[Baseline], Awaitable[bool]]  # asks somebody whether a baseline may take the place of the one before it


async def require_approval(baseline: Baseline, approve: Approve | None, *, environment: str) -> None:
    """Raise BaselineRefused where a field differs from the baseline before it, and whoever is asked does not accept that."""
    if approve is None or not baseline.changes or await approve(baseline):
        return
    fields = [f"{m.probe}/{m.field}" for m in baseline.changes]
    more = [f"and {len(fields) - NAMED} more"] if len(fields) > NAMED else []
    raise BaselineRefused(
        f"the new baseline of {environment} differs from {baseline.former[:16]} in {len(fields)} fields, and nobody accepted that:"
        " the one before it stays",
        fields=(*fields[:NAMED], *more),
        fix="look at what differs; then say yes on a terminal, or give --yes",
    )


def reviewed(baseline: Baseline, known: Sequence[Baseline], *, state: str, parts: Mapping[str, str], environment: str) -> Baseline:
    """Return the baseline with what it was made of, and how it differs from the newest one of the same start state in `known`."""
    former = next((b for b in known if b.state == state and b.key != baseline.key), None)
    made = replace(baseline, state=state, parts=dict(parts))
    if former is not None:
        changed = sorted(name for name in {*former.parts, *parts} if former.parts.get(name) != parts.get(name))
        made = replace(made, former=former.digest, changed=tuple(changed), changes=tuple(changes(former.readings, made.readings)))
        log.warning(
            "the baseline changed: review the difference",
            extra={
                "event": "pool.baseline_changed",
                "environment": environment,
                "state": state,
                "because_of": ", ".join(changed),
                "fields": len(made.changes),
            },
        )
    for line in made.suspicions:
        log.warning("baseline is suspicious", extra={"event": "pool.baseline_suspicious", "environment": environment, "what": line})
    return made


def changes(before: Sequence[Reading], after: Sequence[Reading]) -> list[Mismatch]:
    """Compare two baselines field by field; None stands for absent."""
    old, new = _fields(before), _fields(after)
    return [
        Mismatch(
            probe=probe,
            field=field,
            expected=old.get((probe, field), (None, Depth.QUICK))[0],
            actual=new.get((probe, field), (None, Depth.QUICK))[0],
            depth=(new.get((probe, field)) or old[probe, field])[1],
        )
        for probe, field in sorted({*old, *new})
        if old.get((probe, field), (None,))[0] != new.get((probe, field), (None,))[0]
    ]


def _fields(readings: Sequence[Reading]) -> dict[tuple[str, str], tuple[str, Depth]]:
    return {(r.probe, name): (text, r.depth) for r in readings for name, text in r.fields.items()}
