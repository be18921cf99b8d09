"""Data as the text of a TOML file, for descriptions that are written for people to go on with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def value(given: Any) -> str:
    """A value as TOML."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, int | float):
        return str(given)
    if isinstance(given, Mapping):
        return "{ " + ", ".join(f"{key(k)} = {value(v)}" for k, v in given.items()) + " }"
    if isinstance(given, list | tuple | set | frozenset):
        return f"[{', '.join(value(item) for item in given)}]"
    text = str(given)
    if "\n" in text and "'''" not in text and not text.endswith("'") and not _CONTROL.search(text):
        return f"'''\n{text}'''"
    return _quoted(text)


def key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
