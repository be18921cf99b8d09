"""Plain-text tables: columns, alignment, totals, markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEFT, RIGHT, CENTER = "left", "right", "center"


@dataclass(frozen=True)
class Column:
    """How one column looks. `width` 0 means as wide as needed."""

    title: str
    align: str = LEFT
    width: int = 0


def pad(text: str, width: int, align: str = LEFT) -> str:
    """Fill up with spaces; the odd space of a centered text goes to the right."""
    if align == RIGHT:
        return text.rjust(width)
    if align == CENTER:
        left = (width - len(text)) // 2
        return " " * max(0, left) + text + " " * max(0, width - len(text) - left)
    return text.ljust(width)


def widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return each column's width: its own, or that of its longest cell."""
    out = []
    for index, column in enumerate(columns):
        cells = [len(row[index]) for row in rows]
        out.append(column.width or max([len(column.title), *cells]))
    return out


def cut(text: str, width: int) -> str:
    """Shorten a cell that is too long; the last character says so."""
    return text if len(text) <= width else text[: width - 1] + "~"


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """Draw the table with a rule under its titles."""
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise ValueError(f"row {number} has {len(row)} cells, not {len(columns)}")
    sizes = widths(columns, rows)
    lines = [gap.join(pad(cut(c.title, w), w, c.align) for c, w in zip(columns, sizes))]
    lines.append(gap.join("-" * w for w in sizes))
    for row in rows:
        lines.append(gap.join(pad(cut(cell, w), w, c.align) for cell, c, w in zip(row, columns, sizes)))
    return "\n".join(line.rstrip() for line in lines)


def markdown(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Draw the table as markdown; a bar within a cell is escaped."""
    marks = {LEFT: "---", RIGHT: "--:", CENTER: ":-:"}
    lines = ["| " + " | ".join(c.title for c in columns) + " |", "|" + "|".join(marks[c.align] for c in columns) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def group_rows(rows: Sequence[Sequence[str]], key: int) -> dict[str, list[Sequence[str]]]:
    """Gather rows by the value of one cell, in order of first appearance."""
    out: dict[str, list[Sequence[str]]] = {}
    for row in rows:
        out.setdefault(row[key], []).append(row)
    return out


def add_totals(rows: Sequence[Sequence[str]], label: str = "total") -> list[list[str]]:
    """Append a row that sums each column of whole numbers; other columns stay empty, the first holds the label."""
    if not rows:
        return []
    sums = [label]
    for index in range(1, len(rows[0])):
        cells = [row[index] for row in rows]
        numeric = all(cell.lstrip("-").isdigit() for cell in cells)
        sums.append(str(sum(int(cell) for cell in cells)) if numeric else "")
    return [*(list(row) for row in rows), sums]


def transpose(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Turn rows into columns; short rows are filled up with empty cells."""
    longest = max((len(row) for row in rows), default=0)
    return [[row[index] if index < len(row) else "" for row in rows] for index in range(longest)]
