"""Where a key stands in a TOML file: `tomllib` gives values without lines, and a message without a line is hard to use."""

from __future__ import annotations

import re
from collections.abc import Iterator

Path = tuple[str | int, ...]
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)


class Places:
    """Lines of the keys of one TOML text that `tomllib` accepts."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        counts: dict[Path, int] = {}
        table: Path = ()
        for number, line in _statements(text):
            if header := _HEADER.fullmatch(line.split("\n", 1)[0]):
                path = _resolved(_parts(header[2]), counts)
                if header[1] == "[[":
                    counts[path] = counts.get(path, -1) + 1
                    path = (*path, counts[path])
                table = path
                self._add(table, number)
            elif key := _KEY.match(line):
                self._add((*table, *_parts(key[1])), number)

    def _add(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], line)

    def line(self, path: Path) -> int:
        """Return the line of that key, or of the nearest table around it that has one; 1 when nothing is known."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 1


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement's first line with its number; what a value over several lines holds belongs to that statement."""
    inside: set[int] = set()  # lines that begin within a string
    for match in _STRING.finditer(text):
        first = text.count("\n", 0, match.start()) + 1
        inside.update(range(first + 1, first + match[0].count("\n") + 1))
    blanked = _STRING.sub(lambda m: re.sub(r"[^\n]", "_", m[0]) if m[0][0] != "#" else "", text).split("\n")
    depth = 0
    for number, (line, original) in enumerate(zip(blanked, text.split("\n"), strict=True), start=1):
        begins = depth == 0 and number not in inside
        if begins and line.strip():
            yield number, original
        if not (begins and line.lstrip().startswith("[")):
            depth = max(0, depth + line.count("[") + line.count("{") - line.count("]") - line.count("}"))


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _resolved(path: Path, counts: dict[Path, int]) -> Path:
    """`[[tasks]]` followed by `[tasks.success]` means the newest element."""
    out: Path = ()
    for index, part in enumerate(path):
        out = (*out, part)
        if out in counts and index < len(path) - 1:
            out = (*out, counts[out])
    return out
