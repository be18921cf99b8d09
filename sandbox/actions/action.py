"""One recorded action, and the line of JSON that it is kept as.

What is kept is what an agent sent, since that is all that doing it again takes. What a manager passed in is not the agent's: the
value of an environment variable that is called like a secret is never written, wherever it appears. Large contents are left out.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandbox.model import NOTHING, PageAction, PageDo

LARGEST = 1_000_000  # bytes of one content: a command's input, a file
MASK = "********"
END = "end"  # the kind of the line that says how many there were
_SECRET = re.compile(
    r"pass(word|wd|phrase)|sshpass|secret|credential|authorization|tokens?(_|$)|(^|_)(auth|pass|pat|keys?)(_|$)|_pwd(_|$)"
    r"|(api|access|private|signing)key",
    re.IGNORECASE,
)
_SHOWN = 300  # characters
_SHORTEST = 6  # a shorter value occurs by chance


class ActionKind(StrEnum):
    """What a session can be asked for that may change its world."""

    RUN = "run"
    WRITE_FILE = "write_file"
    BROWSE = "browse"
    SCORE = "score"
    SNAPSHOT = "snapshot"
    ENDPOINT = "endpoint"  # an address was given out: what is done there is not seen
    PAGE = "page"  # and so is what is done with Playwright itself


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """`number` counts a session's actions from 0 in the order in which they began. `withheld` says what is not in the record, and
    `error` what ended it instead of a result."""

    number: int
    kind: ActionKind
    argv: tuple[str, ...] = ()
    stdin: bytes = b""
    env: Mapping[str, str] = NOTHING
    cwd: str | None = None
    limit_s: float | None = None
    path: str = ""
    data: bytes = b""
    mode: int = 0o644
    page: PageAction | None = None  # its own data is `data`
    resource: str = ""
    withheld: tuple[str, ...] = ()
    exit_code: int | None = None
    timed_out: bool = False
    error: str = ""

    @property
    def obstacle(self) -> str:
        """Why it cannot be done again as it was, empty where it can."""
        match self.kind:
            case ActionKind.ENDPOINT:
                return f"the holder was given the address of {self.resource}: what it did there is not recorded"
            case ActionKind.PAGE:
                return "the holder was given a page of the browser: what it did there is not recorded"
            case ActionKind.SNAPSHOT:
                return "a snapshot was taken, which starts the resources anew"
        return "; ".join(self.withheld)

    @property
    def text(self) -> str:
        """What it was, on one line that may be cut."""
        match self.kind:
            case ActionKind.RUN:
                shown = self.argv[2] if len(self.argv) == 3 and self.argv[0].endswith("sh") and self.argv[1] == "-c" else ""
                line = shown or " ".join(self.argv)
                fed = f" <<< {self.stdin[:_SHOWN].decode('utf-8', 'replace')}" if self.stdin else ""
                whole = " ".join(f"{line}{fed}".split())
                return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}..."
            case ActionKind.WRITE_FILE:
                return f"write {len(self.data)} bytes to {self.path}"
            case ActionKind.BROWSE if self.page is not None:
                return self.page.line
            case ActionKind.ENDPOINT | ActionKind.PAGE:
                return f"{self.kind} {self.resource}".strip()
        return str(self.kind)


_TEXTS = ("cwd", "path", "resource")


def encode(trajectory: str, action: RecordedAction) -> bytes:
    """Return its line. The trajectory comes first, so that a reader can pass over the lines of others without parsing them."""
    secrets = _secrets(action.env)
    withheld = [f"the value of {name}" for name in secrets]
    line: dict[str, Any] = {"t": trajectory, "n": action.number, "k": action.kind.value}
    if action.argv:
        line["argv"] = [_hidden(os.fsdecode(word), secrets.values()) for word in action.argv]
    if action.env:
        line["env"] = {k: MASK if k in secrets else _hidden(v, secrets.values()) for k, v in action.env.items()}
    for name in _TEXTS:
        if value := getattr(action, name):
            line[name] = _hidden(os.fsdecode(value), secrets.values())
    for name in ("stdin", "data"):
        if content := getattr(action, name):
            if len(content) > LARGEST:
                withheld.append(f"{name} of {len(content)} bytes")
            else:
                line[name] = _content(bytes(content), secrets.values())
    if action.kind is ActionKind.WRITE_FILE:
        line["mode"] = action.mode
    if action.page is not None:
        texts = {"the address or selector": action.page.at, "the text": action.page.text}
        withheld += [f"{name} of {len(text)} characters" for name, text in texts.items() if len(text) > LARGEST]
        line["page"] = [action.page.do, *("" if len(text) > LARGEST else text for text in texts.values())]
    ended = {
        "limit_s": action.limit_s,
        "exit": action.exit_code,
        "timed_out": action.timed_out or None,
        "error": action.error or None,
    }
    line |= {name: value for name, value in ended.items() if value is not None}
    if withheld:
        line["withheld"] = withheld
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def encode_end(trajectory: str, count: int) -> bytes:
    """Return the line after a session's last action."""
    return json.dumps({"t": trajectory, "k": END, "n": count}, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: Mapping[str, Any]) -> RecordedAction:
    """Raise KeyError, TypeError or ValueError for a line that is none of ours."""
    return RecordedAction(
        number=int(line["n"]),
        kind=ActionKind(line["k"]),
        argv=tuple(line.get("argv", ())),
        stdin=_bytes(line.get("stdin", "")),
        env=dict(line.get("env", {})),
        cwd=line.get("cwd"),
        limit_s=line.get("limit_s"),
        path=line.get("path", ""),
        data=_bytes(line.get("data", "")),
        mode=line.get("mode", 0o644),
        page=_page(line),
        resource=line.get("resource", ""),
        withheld=tuple(line.get("withheld", ())),
        exit_code=line.get("exit"),
        timed_out=line.get("timed_out", False),
        error=line.get("error", ""),
    )


def _page(line: Mapping[str, Any]) -> PageAction | None:
    if "page" not in line:
        return None
    do, at, text = line["page"]
    return PageAction(do=PageDo(do), at=at, text=text, resource=line.get("resource", ""))


def is_secret(name: str) -> bool:
    """True for a variable that is called like a secret, whose value is written nowhere."""
    return _SECRET.search(name) is not None


def _secrets(env: Mapping[str, str]) -> dict[str, str]:
    """The longest first: one may begin with another, of which it would be the rest that is kept."""
    return {name: env[name] for name in sorted(filter(is_secret, env), key=lambda name: -len(env[name]))}


def _hidden(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text


def _content(content: bytes, secrets: Iterable[str]) -> str | dict[str, str]:
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            content = content.replace(secret.encode("utf-8", "surrogateescape"), MASK.encode())
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def _bytes(held: str | Mapping[str, str]) -> bytes:
    return held.encode("utf-8") if isinstance(held, str) else base64.b64decode(held["base64"])
