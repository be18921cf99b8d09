"""Reads an environment's description, from `environment.toml` or from Python, and refuses a wrong one with every problem named."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from envs import digest, lower, rules, sharing, tasks
from envs.problems import Problems, suggestion
from envs.spec import (
    CheckTable,
    DestructiveTable,
    EnvironmentFile,
    LimitsTable,
    ProbeTable,
    ResetTable,
    ResourceTable,
    SharedTable,
    SplitTable,
    TaskTable,
    VolatileTable,
)
from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, TaskSpec

FILE_NAME = "environment.toml"
_SECTIONS: dict[str, type[BaseModel]] = {
    "limits": LimitsTable,
    "reset": ResetTable,
    "check": CheckTable,
    "split": SplitTable,
    "resources": ResourceTable,
    "probes": ProbeTable,
    "volatile": VolatileTable,
    "shared": SharedTable,
    "destructive": DestructiveTable,
    "tasks": TaskTable,
}
_ONLY = {
    "network": "an instance has no network; serve what it needs as a `service` resource",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """An environment as described: its specification, its tasks, the directory it came from, and the digests of those of its files
    that go on being used there when golden is built."""

    spec: EnvironmentSpec
    tasks: Mapping[str, TaskSpec]
    base: Path
    used: Mapping[str, str]


def read(path: Path) -> Definition:
    """Read a directory with an `environment.toml`, or such a file under any name. Raises EnvironmentInvalid."""
    path = path.expanduser().absolute()
    file = path / FILE_NAME if path.is_dir() else path
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise EnvironmentInvalid(f"{file} does not exist", fix="autoclave env new NAME writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentInvalid(f"{file} cannot be read: {error}") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentInvalid(f"{file} is not valid TOML", problems=(f"{file.name}: {error}",)) from error
    return _define(data, file.parent, Problems(file, text))


def define(data: Mapping[str, Any], base: Path) -> Definition:
    """The same from Python: `data` has the tables of `environment.toml`; relative paths start at `base`."""
    return _define(dict(data), base.absolute(), Problems(base.absolute() / "environment"))


def _define(data: dict[str, Any], base: Path, problems: Problems) -> Definition:
    file = _validated(data, problems)
    if file is None:
        problems.refuse()
        raise AssertionError("a description without problems has a model")
    rows = _task_rows(file, base, problems)
    listed = [table for _, _, table in rows]
    if not isinstance(file.tasks, str):
        file = file.model_copy(update={"tasks": listed})
    rules.check(file, base, problems)
    rules.check_tasks(file, base, rows, problems)
    sharing.check(file, rows, problems)
    problems.refuse()
    files = {text: digest.of_path(base / text) for text in lower.named(file, listed)}
    spec = lower.spec(file, base, listed, files=files, source=str(problems.file))
    rules.check_kinds(spec, problems)
    problems.refuse()
    used = {text: files[text] for text in sorted(lower.used_later(file, listed))}
    return Definition(spec=spec, tasks=MappingProxyType(lower.tasks(file, base, listed)), base=base, used=MappingProxyType(used))


def _validated(data: Mapping[str, Any], problems: Problems) -> EnvironmentFile | None:
    """Validate; `tasks = "file"` is set aside first, since a union's messages help nobody."""
    rest = dict(data)
    task_file = rest.pop("tasks") if isinstance(rest.get("tasks"), str) else None
    if not isinstance(rest.get("tasks", []), list):
        problems.add(("tasks",), "must be the name of a file, or [[tasks]]")
        rest.pop("tasks")
    listed = rest.pop("tasks", None)
    try:
        file = EnvironmentFile.model_validate(rest)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            path = tuple(part for part in item["loc"] if part != "[key]")
            problems.add(path, _worded(path, item))
        file = None
    if file is None:
        return None
    return file.model_copy(update={"tasks": task_file if task_file is not None else listed or []})


def _task_rows(file: EnvironmentFile, base: Path, problems: Problems) -> list[tuple[str, int, TaskTable]]:
    """Return the tasks that are well formed, each with where it stands; problems of the others are recorded."""
    if isinstance(file.tasks, str):
        found = rules.inside(base, file.tasks, ("tasks",), problems)
        raw = tasks.read_file(found, problems) if found else []
    else:
        raw = [(problems.file.name, problems.line(("tasks", i)), row) for i, row in enumerate(file.tasks)]  # type: ignore[misc]
    good: list[tuple[str, int, TaskTable]] = []
    for name, line, row in raw:
        try:
            good.append((name, line, TaskTable.model_validate(row)))
        except ValidationError as error:
            label = row.get("id", "?") if isinstance(row, dict) else "?"
            for item in error.errors(include_url=False):
                key = ".".join(map(str, item["loc"]))
                problems.at(name, line, f"task {label}: {key}", _worded(("tasks", 0, *item["loc"]), item))
    return good


def _worded(path: tuple[str | int, ...], item: Any) -> str:
    kind, key = item["type"], str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        return "unknown key" + suggestion(key, _known(path))
    if kind == "missing":
        return "missing" + _stray(item["input"], key, _known(path))
    if kind == "literal_error":
        expected = item["ctx"]["expected"]
        why = f" ({_ONLY[key]})" if key in _ONLY else ""
        words = [w.strip("' ") for w in expected.replace(" or ", ",").split(",")]
        return f"is {item['input']!r}, must be {expected}{why}{suggestion(str(item['input']), words) if len(words) > 1 else ''}"
    if kind == "string_pattern_mismatch":
        return f"is {item['input']!r}, which does not match {item['ctx']['pattern']}"
    return f"{item['msg'][0].lower()}{item['msg'][1:]} (found {_short(item['input'])})"


def _stray(table: Any, wanted: str, known: set[str]) -> str:
    """In an open table a misspelt key passes as an option, so look for it there."""
    if not isinstance(table, Mapping):
        return ""
    near = suggestion(wanted, set(table) - known)
    return near.replace("did you mean", "is it the key").replace('"?', f'" misspelt, for "{wanted}"?') if "did you" in near else ""


def _known(path: tuple[str | int, ...]) -> set[str]:
    model = EnvironmentFile if len(path) < 2 else _SECTIONS.get(str(path[0]), EnvironmentFile)
    return set(model.model_fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
