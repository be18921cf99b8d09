"""Building blocks of what a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sandbox.report.text import visible

STYLES = {
    "clean": "bold green", "cleared": "green", "pass": "green", "ready": "green",
    "mismatch": "bold red", "quarantined": "red", "fail": "red", "contaminated": "red",
    "inconclusive": "bold yellow", "unverified": "yellow", "released": "yellow", "error": "yellow",
    "pending": "cyan", "leased": "cyan", "discarded": "dim", "skip": "dim", "retired": "dim",
}  # fmt: skip


class Fitted:
    """Something that is drawn for the width there is."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(options.max_width)


def plain(value: object) -> Text:
    """Return any value as text that carries no markup and no control character."""
    return Text(visible(str(value)), overflow="fold")


def word(value: str) -> Text:
    """Return a word of the closed sets in its colour."""
    return Text(visible(value), style=STYLES.get(value, ""))


def table(*columns: str, title: str = "") -> Table:
    """Return a table; a column's name that begins with `>` is set to the right. Narrow terminals fold cells, never cut
    them."""
    shown = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim"
    )
    for name in columns:
        right = name.startswith(">")
        shown.add_column(name.removeprefix(">"), justify="right" if right else "left", overflow="fold", no_wrap=False)
    return shown


def labelled(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Return two columns, name and value; rows without a value are left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        if not isinstance(value, Text | str) or str(value):
            grid.add_row(name, plain(value) if isinstance(value, str) else value)
    return Padding(grid, (0, 0, 0, 2))
