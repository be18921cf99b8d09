"""What a holder does on a page of the browser, one action at a time, so that the same can be done again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_SHOWN = 60  # characters of a text


class PageDo(StrEnum):
    """What can be done on a page."""

    GOTO = "goto"
    LOOK = "look"
    CLICK = "click"
    FILL = "fill"
    SELECT = "select"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    """`at` is an address (goto) or a Playwright selector; `text` is what is typed, the option that is chosen, or the name of the
    file whose content is `data`. `resource` names the browser, where there are several."""

    do: PageDo
    at: str = ""
    text: str = ""
    data: bytes = b""
    resource: str = ""

    @property
    def line(self) -> str:
        """What it is, on one line."""
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        return " ".join(f"{self.do} {self.at}{f': {text}' if text else ''}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class PageResult:
    """What the page shows afterwards, or why it could not be done (`ok` False, which is no error)."""

    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStep:
    """One of several actions that are written down; with `may_fail` the next follows also where the page says no."""

    action: PageAction
    may_fail: bool = False
