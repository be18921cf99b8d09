"""The difference view of the terminal: two columns where there is room, one above the other where there is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sandbox.model import Mismatch
from sandbox.report.text import Part, amount, compare, fold, visible

WIDE = 120  # columns from which both sides stand beside each other
_LONGEST = 100_000  # characters compared; the rest is announced, not shown
_KEEP = 60  # of an equal run, at either end
_CHANGED = 1_200  # of a changed run
_FIELDS = 60


class Differences:
    """Fields that differ, each with both sides and the changed part marked. What is left out is counted where it is missing."""

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        self._mismatches = mismatches

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for mismatch in self._mismatches[:_FIELDS]:
            yield Text.assemble(
                f"{visible(mismatch.probe)} / {visible(mismatch.field)}", (f"  {mismatch.depth.value}", "dim"), overflow="fold"
            )
            yield Padding(_sides(mismatch, wide=options.max_width >= WIDE), (0, 0, 0, 2))
        if len(self._mismatches) > _FIELDS:
            yield Text(
                f"and {amount(len(self._mismatches) - _FIELDS, 'more field')} (--json and the HTML report show all)", style="dim"
            )


def _sides(mismatch: Mismatch, *, wide: bool) -> Table:
    expected, actual = mismatch.expected, mismatch.actual
    if expected is None or actual is None:
        left, right = _whole(expected, "red"), _whole(actual, "green")
    else:
        old, new = compare(expected[:_LONGEST], actual[:_LONGEST])
        left, right = _marked(old, "red", expected), _marked(new, "green", actual)
    if wide:
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(style="red", width=1)
        table.add_column(ratio=1, overflow="fold")
        table.add_column(style="green", width=1)
        table.add_column(ratio=1, overflow="fold")
        table.add_row("-", left, "+", right)
        return table
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_row(Text("-", style="red"), left)
    table.add_row(Text("+", style="green"), right)
    return table


def _whole(value: str | None, colour: str) -> Text:
    if value is None:
        return Text("absent", style="dim italic")
    return _marked((Part(text=visible(value[:_LONGEST]), changed=True),), colour, value)


def _marked(parts: Sequence[Part], colour: str, value: str) -> Text:
    shown = Text(overflow="fold")
    if not value:
        return shown.append("empty text", style="dim italic")
    for number, part in enumerate(parts):
        style = f"bold {colour} underline" if part.changed else ""
        for text, left_out in _pieces(part, first=number == 0, last=number == len(parts) - 1):
            shown.append(text, style="dim italic" if left_out else style)
    if len(value) > _LONGEST:
        shown.append(f" [{len(value) - _LONGEST:,} more characters not compared here]", style="dim italic")
    return shown


def _pieces(part: Part, *, first: bool, last: bool) -> Iterator[tuple[str, bool]]:
    """Yield what is shown of a run, and in place of the rest how much there is of it."""
    head, tail = (_CHANGED, 0) if part.changed else (0 if first else _KEEP, 0 if last else _KEEP)
    hidden = len(part.text) - head - tail
    if hidden <= 2 * _KEEP:
        yield part.text, False
        return
    before, between, after = fold(part.text, head, tail)
    yield before, False
    yield f"[{len(between):,} {'more' if part.changed else 'equal'} characters]{newline(between)}", True
    yield after, False


def newline(hidden: str) -> str:
    return "\n" if hidden.endswith("\n") else ""
