"""What a command prints: one JSON object on stdout and nothing else with `--json`; tables for people otherwise; progress on
stderr, a moving line on a terminal and one plain line an event elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def jsonable(value: Any) -> Any:
    """Return `value` as JSON types: dataclasses become objects, datetimes ISO 8601, enums their value."""
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def console(*, stderr: bool = False) -> Console:
    """Return a console that respects NO_COLOR and the terminal's width."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def show(*renderables: RenderableType) -> None:
    """Print for a person, on stdout."""
    out = console()
    for renderable in renderables:
        out.print(renderable)


def tell(*renderables: RenderableType) -> None:
    """Show a person something on stderr, beside what a command prints."""
    err = console(stderr=True)
    for renderable in renderables:
        err.print(renderable)


def show_text(text: str) -> None:
    """Print text that is made to be copied, on stdout: as it is, with no markup and no wrapping."""
    print(text)


class Progress:
    """Says on stderr what is going on."""

    def __init__(self) -> None:
        self._console = console(stderr=True)

    def say(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show `text` while the block runs: a spinner on a terminal, one line elsewhere."""
        if self._console.is_terminal:
            with self._console.status(text):
                yield
        else:
            self.say(text)
            yield


def fail(message: str, *, fix: str = "", kind: str = "", as_json: bool = False) -> None:
    """Report an error: on stderr for people, as the one JSON object otherwise."""
    if as_json:
        print_json({"error": {"type": kind, "message": message, "fix": fix}})
        return
    err = console(stderr=True)
    err.print("error: ", style="bold red", end="")
    err.print(message, markup=False, soft_wrap=True)
    if fix:
        err.print(f"  fix: {fix}", markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """One line on stderr."""
    print(f"warning: {message}", file=sys.stderr)
