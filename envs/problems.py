"""Collecting everything that is wrong with an environment's description, so that it is said all at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from envs import places
from sandbox.errors import EnvironmentInvalid


class Problems:
    """The problems found so far; each names file, line and key."""

    def __init__(self, file: Path, text: str = "") -> None:
        self.file = file
        self.found: list[str] = []
        self._places = places.Places(text)

    def add(self, path: places.Path, message: str) -> None:
        """Record a problem of the key at `path`, () for the file as a whole."""
        self.at(self.file.name, self._places.line(path), dotted(path), message)

    def line(self, path: places.Path) -> int:
        return self._places.line(path)

    def at(self, file: str, line: int, key: str, message: str) -> None:
        text = f"{file}:{line}: {key}: {message}" if key else f"{file}:{line}: {message}"
        if text not in self.found:
            self.found.append(text)

    def refuse(self) -> None:
        """Raise EnvironmentInvalid when anything was found."""
        if self.found:
            count = "a problem" if len(self.found) == 1 else f"{len(self.found)} problems"
            raise EnvironmentInvalid(f"{self.file}: {count}", problems=tuple(sorted(self.found, key=_by_line)))


def dotted(path: Sequence[str | int]) -> str:
    """Write a path as people do: `probes[0].depth`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?`, or the whole choice when nothing is near."""
    choice = sorted(known)
    near = difflib.get_close_matches(word, choice, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f" (known: {', '.join(choice)})" if choice else ""


def _by_line(text: str) -> tuple[str, int]:
    file, line, _ = text.split(":", 2)
    return file, int(line)
