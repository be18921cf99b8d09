"""Where the leases, checks and windows of a namespace are drawn: plain geometry, that a template turns into SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.model import NamespaceId
from sandbox.report.contents import AuditReport, CheckEntry, LeaseEntry, QuarantineEntry

STEP = 46  # from one lease to the next
BOX = 28
LEFT = 12
LANE = 84
BAND = 16  # height of a window's label strip
PER_LANE = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A lease."""

    x: float
    y: float
    lease: LeaseEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Diamond:
    """A check, after the lease it followed; several after one lease stand above one another."""

    x: float
    y: float
    check: CheckEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The part of a window that lies on one lane. `first` where its label goes."""

    x: float
    y: float
    width: float
    height: float
    first: bool
    quarantine: QuarantineEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One namespace's drawing."""

    namespace: NamespaceId
    environment: str
    width: float
    height: float
    boxes: tuple[Box, ...]
    diamonds: tuple[Diamond, ...]
    bands: tuple[Band, ...]


def timelines(report: AuditReport) -> list[Timeline]:
    """Draw every namespace that was leased, checked or quarantined; those with quarantines first."""
    names: dict[NamespaceId, str] = {}
    for quarantine in report.quarantines:
        names.setdefault(quarantine.namespace, quarantine.environment)
    for check in report.checks:
        names.setdefault(check.namespace, check.environment)
    for lease in report.leases:
        names.setdefault(lease.namespace, "")
    held = {q.namespace for q in report.quarantines}
    ordered = sorted(names, key=lambda n: (n not in held, names[n], n))
    return [_draw(report, namespace, names[namespace]) for namespace in ordered]


def _draw(report: AuditReport, namespace: NamespaceId, environment: str) -> Timeline:
    leases = sorted((x for x in report.leases if x.namespace == namespace), key=lambda x: x.sequence)
    checks = [c for c in report.checks if c.namespace == namespace]
    windows = [q for q in report.quarantines if q.namespace == namespace]
    numbers = [*(x.sequence for x in leases), *(c.after for c in checks), *(n for q in windows for n in (q.first, q.last))]
    low, high = min(numbers, default=1), max(numbers, default=1)
    slots = high - low + 1
    lanes = -(-slots // PER_LANE)

    def place(sequence: int) -> tuple[int, int]:
        return (sequence - low) // PER_LANE, (sequence - low) % PER_LANE

    boxes = tuple(Box(x=LEFT + column * STEP, y=lane * LANE + 34, lease=x) for x in leases for lane, column in [place(x.sequence)])
    seen: dict[int, int] = {}
    diamonds = []
    for check in sorted(checks, key=lambda c: c.when):
        lane, column = place(check.after)
        above = seen.get(check.after, 0)
        seen[check.after] = above + 1
        x = LEFT + column * STEP + BOX + (STEP - BOX) / 2
        diamonds.append(Diamond(x=x, y=lane * LANE + 48 - above * 15, check=check))
    return Timeline(
        namespace=namespace,
        environment=environment,
        width=2 * LEFT + min(slots, PER_LANE) * STEP,
        height=lanes * LANE,
        boxes=boxes,
        diamonds=tuple(diamonds),
        bands=tuple(band for q in windows for band in _bands(q, low, lanes)),
    )


def _bands(quarantine: QuarantineEntry, low: int, lanes: int) -> Sequence[Band]:
    found: list[Band] = []
    for lane in range(lanes):
        first = max(quarantine.first, low + lane * PER_LANE)
        last = min(quarantine.last, low + (lane + 1) * PER_LANE - 1)
        if first > last:
            continue
        column = first - low - lane * PER_LANE
        found.append(
            Band(
                x=LEFT + column * STEP - 6,
                y=lane * LANE + 8,
                width=(last - first) * STEP + BOX + 12,
                height=LANE - 14,
                first=not found,
                quarantine=quarantine,
            )
        )
    return found
