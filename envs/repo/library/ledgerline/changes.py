"""What changed between two versions: of line lists, of mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Edit = tuple[str, str]


def common(left: Sequence[str], right: Sequence[str]) -> list[list[int]]:
    """Return the table of lengths of the longest common subsequence of every pair of ends."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        for j in range(len(right) - 1, -1, -1):
            if left[i] == right[j]:
                table[i][j] = table[i + 1][j + 1] + 1
            else:
                table[i][j] = max(table[i + 1][j], table[i][j + 1])
    return table


def edits(left: Sequence[str], right: Sequence[str]) -> list[Edit]:
    """Return the shortest list of kept (" "), removed ("-") and added ("+") lines; removals come first."""
    table = common(left, right)
    out: list[Edit] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            out.append((" ", left[i]))
            i += 1
            j += 1
        elif table[i + 1][j] >= table[i][j + 1]:
            out.append(("-", left[i]))
            i += 1
        else:
            out.append(("+", right[j]))
            j += 1
    out += [("-", line) for line in left[i:]]
    out += [("+", line) for line in right[j:]]
    return out


def apply(left: Sequence[str], script: Sequence[Edit]) -> list[str]:
    """Apply an edit list; refuse one that was made for other lines."""
    out: list[str] = []
    place = 0
    for mark, line in script:
        if mark == "+":
            out.append(line)
            continue
        if place >= len(left) or left[place] != line:
            raise ValueError(f"line {place + 1} is not {line!r}")
        if mark == " ":
            out.append(line)
        place += 1
    if place != len(left):
        raise ValueError("lines are left over")
    return out


def summary(script: Sequence[Edit]) -> str:
    """Write `+2 -1`."""
    added = sum(1 for mark, _ in script if mark == "+")
    removed = sum(1 for mark, _ in script if mark == "-")
    return f"+{added} -{removed}"


def similarity(left: Sequence[str], right: Sequence[str]) -> float:
    """Return the share of lines that both have, from 0.0 to 1.0."""
    if not left and not right:
        return 1.0
    return 2 * common(left, right)[0][0] / (len(left) + len(right))


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings and lists as one mapping by path: `a.b[0]`."""
    if isinstance(value, Mapping) and value:
        out: dict[str, Any] = {}
        for key, inner in value.items():
            out.update(flatten(inner, f"{prefix}.{key}" if prefix else str(key)))
        return out
    if isinstance(value, list) and value:
        out = {}
        for index, inner in enumerate(value):
            out.update(flatten(inner, f"{prefix}[{index}]"))
        return out
    return {prefix: value}


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return every path whose value differs, with both values; None stands for absent."""
    old, new = flatten(before), flatten(after)
    paths = sorted(set(old) | set(new))
    return {path: (old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)}
