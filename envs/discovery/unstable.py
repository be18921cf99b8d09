"""Which fields differ between readings that should be alike, and the patterns that would declare them volatile. Pure."""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from probes.canonical import LISTING, lines_of
from probes.compare import compare, is_volatile
from sandbox.model import Depth, VolatileField

Fields = Mapping[str, Mapping[str, str]]  # probe -> field -> text
_CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|(?<![0-9A-Za-z])(?=[0-9a-f]*\d)[0-9a-f]{6,}(?![0-9A-Za-z])"  # a number in hexadecimal
    r"|\d+"
)
_SHOWN = 60


class Kind(StrEnum):
    """What was different about a reading."""

    FRESH = "between fresh instances"
    LATER = "by itself, on an instance that nobody used"
    RESTORED = "after a restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All fields of one look at an instance."""

    kind: Kind
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstable:
    """A field that is not the same everywhere. `renamed`: it is absent somewhere, so that its name may be another each time."""

    probe: str
    field: str
    kinds: tuple[Kind, ...]
    differed: int  # readings that were not like the first
    of: int
    example: tuple[str | None, str | None]
    renamed: bool

    @property
    def name(self) -> str:
        return f"{self.probe}/{self.field}"

    @property
    def once(self) -> bool:
        """True where one reading alone had it."""
        before, after = self.example
        return self.of > 1 and ((before is None and self.differed == 1) or (after is None and self.differed == self.of))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A pattern for `[[volatile]]`. `covers` are the unstable fields that it is for, `also` the stable ones that it takes along.
    `once`: it is for one field that one reading alone had, which may be called otherwise each time."""

    pattern: str
    reason: str
    covers: tuple[str, ...]
    also: int = 0
    once: bool = False

    @property
    def volatile(self) -> VolatileField:
        return VolatileField(pattern=self.pattern, reason=self.reason)


def unstable(readings: Sequence[Reading]) -> list[Unstable]:
    """Return every field in which some reading differs from the first."""
    first, *others = readings
    found: dict[tuple[str, str], list[tuple[Kind, str | None, str | None]]] = defaultdict(list)
    for reading in others:
        for probe in sorted(first.fields.keys() | reading.fields.keys()):
            left, right = first.fields.get(probe, {}), reading.fields.get(probe, {})
            for m in compare(probe, left, right, depth_of=lambda _: Depth.DEEP):
                found[probe, m.field].append((reading.kind, m.expected, m.actual))
    return [
        Unstable(
            probe=probe,
            field=field,
            kinds=tuple(kind for kind in Kind if any(seen is kind for seen, _, _ in seen_in)),
            differed=len(seen_in),
            of=len(others),
            example=seen_in[0][1:],
            renamed=any(None in pair for _, *pair in seen_in),
        )
        for (probe, field), seen_in in sorted(found.items())
    ]


def proposals(readings: Sequence[Reading]) -> list[Proposal]:
    """Return patterns that cover everything unstable, as narrow as the readings allow."""
    found = unstable(readings)
    stable = _stable(readings[0], found)
    groups: dict[str, list[Unstable]] = defaultdict(list)
    for each in found:
        groups[_pattern(each)].append(each)
    made: list[Proposal] = []
    for pattern, covered in sorted(groups.items()):
        also = _taken(pattern, stable)
        if also and len(covered) == 1 and not covered[0].renamed:
            pattern, also = glob.escape(covered[0].name), 0
        once = len(covered) == 1 and covered[0].once
        made.append(Proposal(pattern=pattern, reason=_reason(covered), covers=tuple(u.name for u in covered), also=also, once=once))
    return made


def covering(readings: Sequence[Reading], volatile: Sequence[VolatileField]) -> list[Proposal]:
    """Return patterns that are known beforehand as proposals: no number of readings shows everything that they are for."""
    found = unstable(readings)
    stable = _stable(readings[0], found)
    return [
        Proposal(
            pattern=each.pattern,
            reason=each.reason,
            covers=tuple(u.name for u in found if fnmatchcase(u.name, each.pattern)),
            also=_taken(each.pattern, stable),
        )
        for each in volatile
    ]


def left_over(readings: Sequence[Reading], volatile: Sequence[VolatileField]) -> list[Unstable]:
    """Return what these patterns would not cover."""
    return [u for u in unstable(readings) if not is_volatile(u.probe, u.field, volatile)]


def _stable(first: Reading, found: Sequence[Unstable]) -> list[tuple[str, ...]]:
    """The names of what did not differ: of an entry of a listing its own, and that of the listing, which can be declared whole."""
    names = {u.name for u in found}
    stable: list[tuple[str, ...]] = []
    for probe, fields in first.fields.items():
        for field, text in fields.items():
            whole = f"{probe}/{field}"
            lines = [whole + line for line in lines_of(text)] if field.endswith(LISTING) else []
            if whole not in names:
                stable += [(line, whole) for line in lines if line not in names] if lines else [(whole,)]
    return stable


def _taken(pattern: str, stable: Sequence[tuple[str, ...]]) -> int:
    return sum(any(fnmatchcase(name, pattern) for name in names) for names in stable)


def _pattern(each: Unstable) -> str:
    """The name itself; where names differ as well, with a star for what looks drawn or counted."""
    if not each.renamed:
        return glob.escape(each.name)
    parts = _CHANGING.split(each.field)
    return f"{glob.escape(each.probe)}/" + "*".join(glob.escape(part) for part in parts)


def _reason(covered: Sequence[Unstable]) -> str:
    kinds = [kind for kind in Kind if any(kind in u.kinds for u in covered)]
    most = max(covered, key=lambda u: u.differed)
    left, right = (_short(text) for text in most.example)
    return f"differs {' and '.join(kinds)} ({most.differed} of {most.of} readings), for instance {left} and {right}"


def _short(text: str | None) -> str:
    if text is None:
        return "absent"
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _SHOWN else flat[:_SHOWN] + "...")
