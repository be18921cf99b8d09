"""Reading and writing sizes, durations and counts as people write them."""

from __future__ import annotations

import re

_DURATION = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_PIECE = re.compile(r"(\d+)\s*([wdhms])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def parse_duration(text: str) -> int:
    """Return seconds: `90`, `1h30m`, `2d 4h`. Units must go from large to small, each once."""
    stripped = text.strip().lower()
    if stripped.isdigit():
        return int(stripped)
    seconds, position, last = 0, 0, _DURATION["w"] + 1
    for match in _PIECE.finditer(stripped):
        if stripped[position : match.start()].strip():
            raise ValueError(f"not a duration: {text!r}")
        unit = _DURATION[match[2]]
        if unit >= last:
            raise ValueError(f"units out of order: {text!r}")
        seconds += int(match[1]) * unit
        position, last = match.end(), unit
    if position == 0 or stripped[position:].strip():
        raise ValueError(f"not a duration: {text!r}")
    return seconds


def format_duration(seconds: int, parts: int = 2) -> str:
    """Write seconds with at most `parts` units, the largest first."""
    if seconds < 0:
        return "-" + format_duration(-seconds, parts)
    out: list[str] = []
    for unit, size in _DURATION.items():
        count, seconds = divmod(seconds, size)
        if count and len(out) < parts:
            out.append(f"{count}{unit}")
    return "".join(out) or "0s"


def parse_size(text: str) -> int:
    """Return bytes: `512`, `10k` and `10kb` are thousands, `10KiB` is binary."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"not a size: {text!r}")
    number, prefix, binary = match.groups()
    power = "_kmgt".index(prefix.lower()) if prefix else 0
    base = 1024 if binary else 1000
    return round(float(number) * base**power)


def format_size(size: int) -> str:
    """Write bytes in the largest binary unit that keeps the number at one or more."""
    value = float(size)
    for unit in _SIZES:
        if value < 1024 or unit == _SIZES[-1]:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit returns")


def ordinal(number: int) -> str:
    """Write 1st, 2nd, 3rd, 4th, 11th, 21st."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write `1 file`, `2 files`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def parse_range(text: str) -> list[int]:
    """Read page lists: `1-3,7` gives 1, 2, 3, 7; order stays, doubles go."""
    out: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"not a range: {piece.strip()!r}")
        numbers = range(int(first), int(last if dash else first) + 1)
        if not numbers:
            raise ValueError(f"backwards range: {piece.strip()!r}")
        out.extend(number for number in numbers if number not in out)
    return out
