"""Comparing readings with a baseline: every difference, in a fixed order, and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from probes.canonical import LISTING, bytes_digest, lines_of, listing
from sandbox.model import Depth, Mismatch, VolatileField

DepthOf = Callable[[str], Depth | None]
_NAMED = 10  # entries of a listing that came or went as a whole


def compare(
    probe: str,
    expected: Mapping[str, str],
    actual: Mapping[str, str],
    *,
    depth_of: DepthOf,
    partial: bool = False,
    shared: Callable[[str], bool] = lambda _: False,
) -> list[Mismatch]:
    """Return one mismatch for each field that differs; None stands for absent. `partial`: the reading broke off, so what is
    absent from it says nothing. `shared` says which fields belong to a shared instance. A listing gives one mismatch for each
    line that differs."""
    found: list[Mismatch] = []
    for name in sorted(actual if partial else expected.keys() | actual.keys()):
        before, after = expected.get(name), actual.get(name)
        if before == after:
            continue
        depth = depth_of(name) or Depth.QUICK
        for field, left, right in _differences(name, before, after):
            found.append(Mismatch(probe=probe, field=field, expected=left, actual=right, depth=depth, shared=shared(name)))
    return found


def _differences(name: str, before: str | None, after: str | None) -> Iterable[tuple[str, str | None, str | None]]:
    if not name.endswith(LISTING):
        yield name, before, after
        return
    if before is None or after is None:  # a whole directory came or went: one difference says so, and what is in it
        yield name, _summary(before), _summary(after)
        return
    left, right = lines_of(before), lines_of(after)
    lines = [n for n in sorted(left.keys() | right.keys()) if left.get(n) != right.get(n)]
    for line in lines:
        yield name + line, left.get(line), right.get(line)
    if not lines:  # not canonical, and still not equal
        yield name, _summary(before), _summary(after)


def _summary(text: str | None) -> str | None:
    if text is None:
        return None
    names = sorted(lines_of(text))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    named = f" ({', '.join(names[:_NAMED])}{more})" if names else ""
    return f"{len(names)} entries{named}, {bytes_digest(text.encode('utf-8', 'surrogateescape'))}"


def is_volatile(probe: str, field: str, volatile: Iterable[VolatileField]) -> bool:
    """True where the author declared `probe/field` volatile."""
    full = f"{probe}/{field}"
    return any(fnmatchcase(full, v.pattern) for v in volatile)


def strip(probe: str, fields: Mapping[str, str], volatile: tuple[VolatileField, ...]) -> dict[str, str]:
    """Leave out what is declared volatile, lines of listings included."""
    if not volatile:
        return dict(fields)
    kept: dict[str, str] = {}
    for name, text in fields.items():
        if is_volatile(probe, name, volatile):
            continue
        if name.endswith(LISTING):
            lines = lines_of(text)
            left = {line: value for line, value in lines.items() if not is_volatile(probe, name + line, volatile)}
            kept[name] = text if len(left) == len(lines) else listing(left)
        else:
            kept[name] = text
    return kept
