"""HTML from templates in which every value is escaped unless it is HTML already."""

from __future__ import annotations

import html
import string
from collections.abc import Iterable
from typing import Any


class Html(str):
    """Text that is markup."""

    __slots__ = ()


def safe(value: Any) -> Html:
    """Return a value as markup: None is nothing, a list is its items one after the other, a text is escaped."""
    if isinstance(value, Html):
        return value
    if value is None or value is False:
        return Html("")
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return Html("".join(safe(item) for item in value))
    return Html(html.escape(str(value)))


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return safe(format(value, format_spec) if format_spec else value)


_FORMATTER = _Formatter()


def h(template: str, /, **values: Any) -> Html:
    """Fill `{name}` places of a template with escaped values."""
    return Html(_FORMATTER.vformat(template, (), values))


def options(choices: Iterable[tuple[Any, str]], chosen: Any) -> Html:
    """Return the <option>s of a select."""
    return safe(
        h('<option value="{v}"{s}>{t}</option>', v=value, t=text, s=Html(" selected") if str(value) == str(chosen) else "")
        for value, text in choices
    )


def checked(state: bool) -> Html:
    return Html(" checked") if state else Html("")
