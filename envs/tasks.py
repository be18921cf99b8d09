"""Task files, and the division of tasks into train and held-out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blake3 import blake3

from envs.places import Places
from envs.problems import Problems
from envs.spec import SplitTable, TaskTable

Row = tuple[str, int, dict[str, Any]]  # file name, line, the task as written


def read_file(path: Path, problems: Problems) -> list[Row]:
    """Read `.jsonl` (a task a line; blank lines and lines that begin with # are skipped) or `.toml` ([[tasks]])."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems.add(("tasks",), f"{path.name} cannot be read: {error}")
        return []
    if path.suffix == ".toml":
        return _toml(path, text, problems)
    if path.suffix == ".jsonl":
        return _jsonl(path, text, problems)
    problems.add(("tasks",), f'"{path.name}" must end in .jsonl or .toml')
    return []


def _toml(path: Path, text: str, problems: Problems) -> list[Row]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.at(path.name, 1, "", f"not valid TOML: {error}")
        return []
    extra = sorted(set(data) - {"tasks"})
    if extra or not isinstance(data.get("tasks"), list):
        problems.at(path.name, 1, "", f"a task file holds [[tasks]] and nothing else (found: {', '.join(data) or 'nothing'})")
        return []
    lines = Places(text)
    return [(path.name, lines.line(("tasks", i)), row) for i, row in enumerate(data["tasks"])]


def _jsonl(path: Path, text: str, problems: Problems) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            problems.at(path.name, number, "", f"not valid JSON: {error.msg} at column {error.colno}")
            continue
        if isinstance(row, dict):
            rows.append((path.name, number, row))
        else:
            problems.at(path.name, number, "", "a task is a JSON object")
    return rows


def split(tasks: Sequence[TaskTable], rule: SplitTable) -> dict[str, str]:
    """Return each task's split. Those that name none are ordered within their family by a keyed hash of their id, and the first
    `held_out` share (rounded) is held out: every family is in both parts, and order in the file plays no role."""
    out = {task.id: task.split for task in tasks if task.split is not None}
    families: dict[str, list[str]] = {}
    for task in tasks:
        if task.split is None:
            families.setdefault(task.family, []).append(task.id)
    result: dict[str, str] = dict(out)
    for ids in families.values():
        ranked = sorted(set(ids), key=lambda i: blake3(f"{rule.seed}:{i}".encode()).digest())
        held = round(len(ranked) * rule.held_out)
        result.update({i: "held-out" if rank < held else "train" for rank, i in enumerate(ranked)})
    return result
