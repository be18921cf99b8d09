"""Small text templates: `{{ name|filter }}`, `{% if %}`, `{% for %}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(r"(\{\{.*?\}\}|\{%.*?%\})", re.DOTALL)
FILTERS: dict[str, Callable[[Any], str]] = {
    "upper": lambda v: str(v).upper(),
    "lower": lambda v: str(v).lower(),
    "title": lambda v: str(v).title(),
    "length": lambda v: str(len(v)),
    "money": lambda v: f"{v / 100:,.2f}",
    "escape": lambda v: str(v).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
}


class TemplateError(ValueError):
    """The template is wrong: an unknown name or filter, a block that is not closed."""


def lookup(path: str, values: Mapping[str, Any]) -> Any:
    """Follow `order.lines.0.price` through mappings, sequences and attributes."""
    current: Any = values
    for part in path.split("."):
        if isinstance(current, Mapping):
            if part not in current:
                raise TemplateError(f"no value for {path!r}")
            current = current[part]
        elif isinstance(current, (list, tuple)) and part.isdigit():
            if int(part) >= len(current):
                raise TemplateError(f"no value for {path!r}")
            current = current[int(part)]
        elif not part.startswith("_") and hasattr(current, part):
            current = getattr(current, part)
        else:
            raise TemplateError(f"no value for {path!r}")
    return current


def _expression(text: str, values: Mapping[str, Any]) -> str:
    path, *filters = (piece.strip() for piece in text.split("|"))
    value = lookup(path, values)
    for name in filters:
        if name not in FILTERS:
            raise TemplateError(f"unknown filter {name!r}")
        value = FILTERS[name](value)
    return "" if value is None else str(value)


def _condition(text: str, values: Mapping[str, Any]) -> bool:
    if text.startswith("not "):
        return not _condition(text[4:].strip(), values)
    try:
        return bool(lookup(text, values))
    except TemplateError:
        return False


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template in."""
    out, rest = _block(_TOKEN.split(template), 0, values, True, ())
    if rest is not None:
        raise TemplateError(f"{rest!r} without a beginning")
    return "".join(out)


def _block(
    tokens: list[str], start: int, values: Mapping[str, Any], live: bool, ends: tuple[str, ...]
) -> tuple[list[str], str | None]:
    """Render tokens up to one of `ends`; dead branches are walked but give nothing."""
    out: list[str] = []
    while start < len(tokens):
        token = tokens.pop(start)
        if token.startswith("{{"):
            if live:
                out.append(_expression(token[2:-2].strip(), values))
        elif token.startswith("{%"):
            word, _, rest = token[2:-2].strip().partition(" ")
            if word in ends:
                return out, word
            if word == "if":
                out += _branch(tokens, start, values, live and _condition(rest.strip(), values), live)
            elif word == "for":
                out += _loop(tokens, start, values, live, rest)
            else:
                return out, word
        elif live:
            out.append(token)
    if ends:
        raise TemplateError(f"missing {ends[-1]}")
    return out, None


def _branch(tokens: list[str], start: int, values: Mapping[str, Any], yes: bool, live: bool) -> list[str]:
    out, end = _block(tokens, start, values, yes, ("else", "endif"))
    if end == "else":
        other, end = _block(tokens, start, values, live and not yes, ("endif",))
        out += other
    if end != "endif":
        raise TemplateError("missing endif")
    return out


def _loop(tokens: list[str], start: int, values: Mapping[str, Any], live: bool, rest: str) -> list[str]:
    name, _, path = (piece.strip() for piece in rest.partition(" in "))
    if not name.isidentifier() or not path:
        raise TemplateError(f"not a loop: {rest!r}")
    items = list(lookup(path, values)) if live else []
    body = tokens[start:]
    out: list[str] = []
    for number, item in enumerate(items):
        tokens[start:] = body
        inner = {**values, name: item, "index": number + 1, "last": number == len(items) - 1}
        piece, end = _block(tokens, start, inner, live, ("endfor",))
        out += piece
    if not items:
        _, end = _block(tokens, start, values, False, ("endfor",))
    if end != "endfor":
        raise TemplateError("missing endfor")
    return out
