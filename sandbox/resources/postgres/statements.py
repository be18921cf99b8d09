"""Splits a seed file into statements, each with its line, so that a failure can be named.

Understands what psql does of SQL: quotes, dollar quotes, comments (nested), `BEGIN ATOMIC` bodies, and the data that follows `COPY
... FROM STDIN`. Of psql's own commands only the two guard lines that pg_dump writes are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<skip> [^;'"$\-/\\(){}a-zA-Z_\n]+ | \n )
  | (?P<line_comment> --[^\n]* )
  | (?P<comment> /\* )
  | (?P<escaped> (?<![A-Za-z0-9_$]) [eE] ' (?: [^'\\] | \\. | '' )* ' )
  | (?P<quoted> ' (?: [^'] | '' )* ' )
  | (?P<identifier> " (?: [^"] | "" )* " )
  | (?P<dollar> \$ (?: [A-Za-z_\x80-\U0010ffff] [A-Za-z0-9_\x80-\U0010ffff]* )? \$ )
  | (?P<word> [A-Za-z_] [A-Za-z0-9_$]* )
  | (?P<end> ; )
  | (?P<command> \\ )
  | (?P<open> \( ) | (?P<close> \) )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COPY_DATA = re.compile(r"\s*copy\b.*\bfrom\s+stdin\b", re.IGNORECASE | re.DOTALL)
_GUARDS = ("restrict", "unrestrict")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """`line` is that of its first word. `data` is set for a COPY from standard input."""

    text: str
    line: int
    data: str | None = None


class SyntaxFault(Exception):
    """The file cannot be split."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


def split(text: str) -> Iterator[Statement]:
    """Yield the statements of a file; raise SyntaxFault."""
    return _Splitter(text).statements()


class _Splitter:
    """Where the scan of one file stands. `start` is -1 between statements."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, _Lines(text)
        self._begin()

    def _begin(self) -> None:
        self._start, self._parentheses, self._blocks = -1, 0, 0
        self._words: list[str] = []

    def statements(self) -> Iterator[Statement]:
        text = self._text
        while self._at < len(text):
            match = _TOKEN.match(text, self._at)
            assert match is not None
            kind, here, self._at = str(match.lastgroup), match.start(), match.end()
            if kind == "end" and self._parentheses <= 0 and self._blocks == 0:
                if self._start >= 0:
                    yield self._finish(here)
                self._begin()
            elif kind == "comment":
                self._at = _comment_end(text, here, self._line)
            elif kind == "command":
                self._at = _command(text, here, started=self._start >= 0, line=self._line)
            elif kind not in ("skip", "line_comment"):
                self._take(kind, match[0], here)
        if self._start >= 0 and (rest := text[self._start :].rstrip()):
            yield Statement(text=rest, line=self._line.of(self._start))

    def _finish(self, end: int) -> Statement:
        statement, line = self._text[self._start : end], self._line.of(self._start)
        data = None
        if self._words[:1] == ["copy"] and _COPY_DATA.match(_without_quotes(statement)):
            data, self._at = _copy_data(self._text, self._at, line)
        return Statement(text=statement, line=line, data=data)

    def _take(self, kind: str, token: str, here: int) -> None:
        if self._start < 0:
            self._start = here
        if kind == "dollar":
            self._at = _after(self._text, token, self._at, self._line.of(here))
        elif kind == "other" and token in "'\"":
            raise SyntaxFault(self._line.of(here), f"a {token} that is never closed")
        elif kind in ("open", "close"):
            self._parentheses += 1 if kind == "open" else -1
        elif kind == "word":
            self._word(token.lower())

    def _word(self, word: str) -> None:
        if len(self._words) < 4:
            self._words.append(word)
        # As psql does it: only in a function's body do BEGIN, CASE and END nest.
        if self._words[0] == "create" and {"function", "procedure"} & set(self._words):
            if word == "begin" or (word == "case" and self._blocks):
                self._blocks += 1
            elif word == "end" and self._blocks:
                self._blocks -= 1


class _Lines:
    """Line numbers by position, asked for in ascending order mostly."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1

    def of(self, position: int) -> int:
        if position < self._at:
            return self._text.count("\n", 0, position) + 1
        self._line += self._text.count("\n", self._at, position)
        self._at = position
        return self._line


def _comment_end(text: str, start: int, line: _Lines) -> int:
    depth, at = 1, start + 2
    while depth:
        found = re.compile(r"/\*|\*/").search(text, at)
        if found is None:
            raise SyntaxFault(line.of(start), "a comment that is never closed")
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at


def _after(text: str, tag: str, at: int, line: int) -> int:
    end = text.find(tag, at)
    if end < 0:
        raise SyntaxFault(line, f"a {tag} that is never closed")
    return end + len(tag)


def _command(text: str, here: int, *, started: bool, line: _Lines) -> int:
    end = text.find("\n", here)
    end = len(text) if end < 0 else end
    words = text[here + 1 : end].split()
    if not started and words[:1] and words[0] in _GUARDS:
        return end
    raise SyntaxFault(line.of(here), f"\\{words[0] if words else ''} is a command of psql, not SQL: seed files hold SQL only")


def _copy_data(text: str, at: int, line: int) -> tuple[str, int]:
    begin = text.find("\n", at) + 1
    if begin == 0 or text[at : begin - 1].strip():
        raise SyntaxFault(line, "COPY ... FROM STDIN must be followed by its data on the next line")
    if text.startswith("\\.\n", begin):
        return "", begin + 3
    end = text.find("\n\\.", begin)
    if end < 0:
        raise SyntaxFault(line, "the data of COPY ... FROM STDIN must end with a line \\.")
    after = text.find("\n", end + 1)
    return text[begin : end + 1], len(text) if after < 0 else after + 1


def _without_quotes(statement: str) -> str:
    return re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "x", statement)
