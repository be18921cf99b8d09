"""The audit, and the check of one environment, as one self-contained HTML file: no script, no request, readable on paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sandbox.model import Mismatch, VerdictStatus
from sandbox.report.as_json import plain
from sandbox.report.contents import AuditReport, CheckEntry, CheckPage
from sandbox.report.openenv import results
from sandbox.report.scores import tables
from sandbox.report.text import Part, amount, compare, fold, visible
from sandbox.report.timeline import timelines

LONGEST = 2_000_000  # characters of one value; what is cut is said beside it, and the ledger keeps the whole
_FOLD = 480  # an unchanged run is folded from this length on; a changed one from ten times that
_ENDS = 160
OPEN_DIFFERENCES = 25  # of one check; the others lie in a fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a value as it is shown. `fold` is the summary under which it lies, empty where it lies open."""

    text: str
    changed: bool
    fold: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a difference: None where the value is absent."""

    segments: tuple[Segment, ...] | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field that differs, ready to show."""

    mismatch: Mismatch
    expected: Side
    actual: Side


def render(report: AuditReport) -> str:
    """Return the whole file."""
    template = _templates().get_template("report.html.j2")
    shown = [c for c in report.checks if c.mismatches or c.problems]
    return template.render(
        report=report,
        verdict=report.verdict.value,
        counts=_counts(report),
        listed_checks=[c for c in report.checks if c.status is not VerdictStatus.CLEAN],
        clean_checks=[c for c in report.checks if c.status is VerdictStatus.CLEAN],
        checks=[(c, [difference(m) for m in c.mismatches]) for c in shown],
        drift=[(e, [difference(m) for m in e.drift]) for e in report.environments if e.drift],
        timelines=timelines(report),
        openenv=results(report),
        scores=tables(report.scores),
        in_force=flat(report.in_force),
        open_differences=OPEN_DIFFERENCES,
    )


def render_check(page: CheckPage) -> str:
    """Return the whole file of one environment's check."""
    found = tables(page.scores)
    return (
        _templates()
        .get_template("check.html.j2")
        .render(
            page=page,
            differences=[difference(m) for m in page.differences],
            scores=found,
            current=[m for table in found for m in table.methods if m.name == page.method.value and not m.stale],
            in_force=flat(page.in_force),
            open_differences=OPEN_DIFFERENCES,
        )
    )


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("sandbox.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {"visible": lambda value: visible(str(value)), "amount": amount, "moment": _moment, "flat": flat}
    templates.globals["by_probe"] = _by_probe
    return templates


def difference(mismatch: Mismatch) -> Difference:
    """Compare both sides and cut them into segments."""
    expected, actual = mismatch.expected, mismatch.actual
    if expected is None or actual is None:
        left, right = _alone(expected), _alone(actual)
    else:
        left, right = compare(expected[:LONGEST], actual[:LONGEST])
    return Difference(mismatch=mismatch, expected=_side(expected, left), actual=_side(actual, right))


def _alone(value: str | None) -> tuple[Part, ...]:
    return (Part(text=visible(value[:LONGEST]), changed=True),) if value else ()


def _side(value: str | None, parts: Sequence[Part]) -> Side:
    if value is None:
        return Side(segments=None, note="")
    cut = f"; the first {LONGEST:,} are shown, the ledger keeps the rest" if len(value) > LONGEST else ""
    note = f"{amount(len(value), 'character')}{cut}" if len(value) > _FOLD else ""
    return Side(
        segments=tuple(s for i, p in enumerate(parts) for s in _segments(p, first=i == 0, last=i == len(parts) - 1)), note=note
    )


def _segments(part: Part, *, first: bool, last: bool) -> list[Segment]:
    limit = 10 * _FOLD if part.changed else _FOLD
    if len(part.text) <= limit:
        return [Segment(text=part.text, changed=part.changed)]
    head = 0 if first and not part.changed else 10 * _ENDS if part.changed else _ENDS
    tail = 0 if last and not part.changed else _ENDS
    before, hidden, after = fold(part.text, head, tail)
    kind = "changed" if part.changed else "equal"
    pieces = [
        Segment(text=before, changed=part.changed),
        Segment(text=hidden, changed=part.changed, fold=f"{len(hidden):,} {kind} characters"),
        Segment(text=after, changed=part.changed),
    ]
    return [piece for piece in pieces if piece.text]


def _counts(report: AuditReport) -> dict[str, Any]:
    statuses = {status: sum(c.status is status for c in report.checks) for status in VerdictStatus}
    return {
        "namespaces": len({c.namespace for c in report.checks}),
        "fields": sum(c.fields for c in report.checks),
        "clean": statuses[VerdictStatus.CLEAN],
        "mismatch": statuses[VerdictStatus.MISMATCH],
        "inconclusive": statuses[VerdictStatus.INCONCLUSIVE],
        "differences": len(report.mismatches),
        "leaks": len(report.leaks),
        "caught": sum(leak.caught for leak in report.leaks),
    }


def flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return nested values as `a.b` and text, in their order."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found += [(f"{key}.{inner}", text) for inner, text in flat(value)]
        else:
            found.append((str(key), value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)))
    return found


def _moment(value: Any) -> str:
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def _by_probe(check: CheckEntry) -> list[tuple[str, int]]:
    """Return the probes that found something, with how many fields each."""
    counted: dict[str, int] = {}
    for mismatch in check.mismatches:
        counted[mismatch.probe] = counted.get(mismatch.probe, 0) + 1
    return sorted(counted.items())
