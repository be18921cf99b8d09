"""A history that leaves something, as an entry of the environment's own catalogue: a `[[destructive]]` table of `environment.toml`.

An entry is one act with one reset after it. What several trajectories did is joined into one act, which may or may not leave the
same; whoever writes it down tries it first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs import lower
from envs.spec import DestructiveTable
from envs.toml_text import value
from sandbox.actions import ActionKind, RecordedAction
from sandbox.errors import EnvironmentInvalid
from sandbox.model import DestructiveAction, PageDo

SHELL = ("/bin/sh", "sh", "/usr/bin/sh")
LONGEST = 100_000  # bytes: one argument of a command has at most 128 KiB
_LONGEST_S = 20.0  # of a command that was cut short: an entry is, too (`envs.destructive`)
_NAMELESS = "file"  # a step's file has a name
_WORDS = 24  # of 40 characters that a name may have
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry that could be written down, as its table and as what `env check` does with it."""

    table: Mapping[str, Any]
    comment: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.table["name"])

    @property
    def action(self) -> DestructiveAction:
        return lower.action(DestructiveTable.model_validate(dict(self.table)))

    @property
    def toml(self) -> str:
        """Its text, ready for the end of an `environment.toml`."""
        lines = [f"# {' '.join(_CONTROL.sub(' ', line).split())}" for line in self.comment]
        keys = [f"{key} = {value(item)}" for key, item in self.table.items()]
        return "\n".join((*lines, "[[destructive]]", *keys)) + "\n"


def entry(
    actions: Sequence[RecordedAction],
    *,
    fields: Iterable[str],
    about: Mapping[str, str],
    comment: Sequence[str],
    lenient: bool = False,
) -> Entry | None:
    """Join the actions into one act; None where that is longer than a command may be, or no text, or nothing at all, or where
    commands and a page both have a part in it. `about` are further keys. With `lenient`, nobody asks how a command of it ends: what
    was left out may have made it end well."""
    ended = [replace(action, exit_code=1) for action in actions] if lenient else actions
    acts = [action for action in ended if action.kind in (ActionKind.RUN, ActionKind.WRITE_FILE, ActionKind.BROWSE)]
    browsed = [action for action in acts if action.page is not None]
    try:
        done = _steps(browsed) if browsed else _run(ended)
        longest = max(len(str(value).encode()) for value in done.values())
    except UnicodeError:
        return None
    if (
        done.get("steps") == []
        or len(browsed) not in (0, len(acts))
        or len({action.resource for action in browsed}) > 1
        or longest > LONGEST
        or any("\0" in word for value in done.values() for word in value)
    ):
        return None
    table = {"name": _name(fields, done), **about, **done}
    return Entry(table=table, comment=tuple(comment))


def require_place(path: Path) -> None:
    """Raise EnvironmentInvalid where nothing can be appended: before a search, which may take long."""
    if not path.absolute().parent.is_dir():
        raise EnvironmentInvalid(f"--write {path}: there is no directory {path.absolute().parent}", fix="make it first")
    if path.is_dir():
        raise EnvironmentInvalid(f"--write {path} is a directory", fix=f"name its file: {path / 'environment.toml'}")
    try:
        tomllib.loads(path.read_text("utf-8") if path.exists() else "")
    except (OSError, ValueError) as error:
        raise EnvironmentInvalid(f"--write {path}: {error}", fix="--write names a TOML file, or a new one") from error


def append(made: Entry, path: Path) -> None:
    """Write it at the end of a file: an environment's own, or one that is made. Raises EnvironmentInvalid when its name is taken
    there, or when the file would not be valid afterwards."""
    before = path.read_bytes() if path.exists() else b""
    try:
        text = before.decode()
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        tables = tomllib.loads(f"{text}{gap}{made.toml}").get("destructive", [])
        left = memoryview(f"{gap}{made.toml}".encode())
    except ValueError as error:
        raise EnvironmentInvalid(f"{path} would not be valid with it: {error}", fix="--write names a TOML file") from error
    if sum(table.get("name") == made.name for table in tables) != 1:
        raise EnvironmentInvalid(f"{path} has an action called {made.name} already", fix="it is there; nothing was written")
    with path.open("ab", buffering=0) as file:
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:  # a full disk: what was there stays
            file.truncate(len(before))
            raise


def _run(actions: Sequence[RecordedAction]) -> dict[str, Any]:
    only = actions[0] if len(actions) == 1 else None
    plain = only is not None and not (only.stdin or only.env or only.cwd or only.exit_code or only.timed_out)
    if only is not None and plain and only.kind is ActionKind.RUN:
        if len(only.argv) == 3 and only.argv[0] in SHELL and only.argv[1] == "-c" and only.argv[2]:
            return {"run": only.argv[2]}
        if all(only.argv):
            return {"argv": list(only.argv)}
    return {"run": "".join(f"{_line(action)}\n" for action in actions if action.kind in (ActionKind.RUN, ActionKind.WRITE_FILE))}


def _steps(actions: Sequence[RecordedAction]) -> dict[str, Any]:
    """What was done on a page; raise UnicodeError for what is no text."""
    steps: list[dict[str, Any]] = []
    for action in actions:
        assert action.page is not None
        page, step = action.page, {action.page.do.value: action.page.at}
        if not page.at or page.do is PageDo.LOOK:  # there is nothing that it could be done to
            continue
        if page.do is PageDo.UPLOAD:
            step |= {"file": page.text or _NAMELESS, "text": action.data.decode()}
        elif page.text and page.do not in (PageDo.GOTO, PageDo.CLICK):  # which take no notice of it
            step["text"] = page.text
        for text in step.values():
            text.encode()
        steps.append({**step, "may_fail": True} if action.exit_code else step)
    return {"resource": actions[0].resource, "steps": steps}


def _line(action: RecordedAction) -> str:
    """One action as shell text. One that failed as recorded is no reason to stop: what it left may be what matters."""
    if action.kind is ActionKind.WRITE_FILE:
        path = shlex.quote(action.path)
        return f'mkdir -p "$(dirname {path})"\n{_printed(action.data)} > {path}\nchmod {action.mode:o} {path}'
    env = shlex.join(f"{name}={value}" for name, value in action.env.items())
    command = shlex.join(action.argv)
    if env:
        command = f"env {env} {command}"
    if action.timed_out:
        command = f"timeout -s KILL {min(action.limit_s or _LONGEST_S, _LONGEST_S):g} {command}"
    if action.stdin:
        command = f"{_printed(action.stdin)} | {command}"
    if action.cwd:
        command = f"(cd {shlex.quote(action.cwd)} && {command})"
    return f"{command} || :" if action.exit_code or action.timed_out else command


def _printed(data: bytes) -> str:
    """A command that prints these bytes and nothing else."""
    if b"\0" not in data:
        try:
            return f"printf %s {shlex.quote(data.decode('utf-8'))}"
        except UnicodeDecodeError:
            pass
    return f"printf %s {base64.b64encode(data).decode()} | base64 -d"


def _name(fields: Iterable[str], run: Mapping[str, Any]) -> str:
    """A name that says what it leaves, and is the same for the same act."""
    first = min(fields, default="state").partition("/")[2]
    words = re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")
    if len(words) > _WORDS:
        words = words[-_WORDS:].partition("-")[2] or words[-_WORDS:]
    mark = hashlib.blake2b(json.dumps(run, sort_keys=True).encode(), digest_size=3).hexdigest()
    return f"leaves-{words}-{mark}" if words else f"leaves-{mark}"
