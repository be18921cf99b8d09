"""What is known as a right way to do each task: an environment's own, or a file's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollout.engines.engine import Request
from rollout.engines.scripted import Reply, Script
from rollout.engines.scripts import DONE, call, works
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec

References = Mapping[str, Sequence[str]]  # by task, the answers that do it, turn by turn; empty where there is none


def of_environment(environment: Any, tasks: Sequence[TaskSpec]) -> References:
    """Return the references that come with `shop` and `repo`; other environments bring none."""
    make = works(environment.spec.name)
    return {task.id: make(task).solve for task in tasks}


def of_file(path: Path, tasks: Sequence[TaskSpec]) -> References:
    """Read a file of JSON lines `{"id": TASK, "calls": [{"tool": NAME, "arguments": {...}}, ...]}`; those of other tasks are passed
    over. EnvironmentInvalid for a line that is none."""
    found: dict[str, Sequence[str]] = {task.id: () for task in tasks}
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise EnvironmentInvalid(
            f"the references {path} cannot be read: {error.strerror}", fix="name a file of JSON lines"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            row = json.loads(line)
            answers = tuple(call(each["tool"], **each["arguments"]) for each in row["calls"])
            known = row["id"] in found
        except (ValueError, TypeError, KeyError) as error:
            raise EnvironmentInvalid(
                f"{path}, line {number} is no reference: {type(error).__name__} {error}",
                fix='write {"id": TASK, "calls": [{"tool": NAME, "arguments": {...}}]}',
            ) from error
        if known:
            found[row["id"]] = answers
    return found


def replay(references: References) -> Script:
    """Return the script of an agent that does exactly what each task's reference says."""

    def script(request: Request, _: str) -> Reply:
        answers = (*references[request.labels["task"]], DONE)
        return Reply(text=answers[min(int(request.labels["turn"]), len(answers) - 1)])

    return script
