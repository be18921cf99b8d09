"""Which function answers which path."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .http import Problem, Request, Response

Handler = Callable[..., Response]
_ROUTES: list[tuple[str, re.Pattern[str], Handler, bool]] = []


def route(method: str, pattern: str, *, public: bool = False) -> Callable[[Handler], Handler]:
    """Let a function answer a path: `{name}` in the pattern is one part of it and becomes an argument."""
    compiled = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9._-]+)", pattern))

    def add(handler: Handler) -> Handler:
        _ROUTES.append((method, compiled, handler, public))
        return handler

    return add


def find(request: Request) -> tuple[Handler, dict[str, Any], bool]:
    """Return the function, its arguments, and whether visitors may call it."""
    methods = set()
    for method, pattern, handler, public in _ROUTES:
        if found := pattern.fullmatch(request.path):
            if method == request.method:
                return handler, found.groupdict(), public
            methods.add(method)
    raise Problem(405, "This page cannot be used in that way.") if methods else Problem(404, "There is no such page.")
