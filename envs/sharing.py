"""What an environment must be like for its namespaces to share an instance."""

from __future__ import annotations

from collections.abc import Sequence

from envs.problems import Problems
from envs.spec import EnvironmentFile, TaskTable

# What is divided, by isolation; None: a tree of directories, which takes no server.
DIVIDED = {"database": "postgres", "schema": "postgres", "context": "browser", "directory": None}
AT_REST = ("files", "repo")  # every namespace has its own of these


def check(file: EnvironmentFile, rows: Sequence[tuple[str, int, TaskTable]], problems: Problems) -> None:
    """Add what does not go with a shared instance."""
    if file.isolation == "instance":
        return
    _resources(file, problems)
    why = f'under isolation "{file.isolation}", where several namespaces share an instance'
    if file.reset.method not in ("restore", "rebuild"):
        problems.add(("reset", "method"), f'"{file.reset.method}" works on a whole instance; use "restore" {why}')
    if file.check.window != "strict":
        problems.add(("check", "window"), f'must be "strict" {why}: what one holder did can reach every other')
    for name, line, task in rows:
        if task.start:
            problems.at(name, line, f"task {task.id}: start", f"a start state of its own is a whole instance; there is none {why}")


def _resources(file: EnvironmentFile, problems: Problems) -> None:
    wanted = DIVIDED[file.isolation]
    kinds = {name: table.kind for name, table in file.resources.items()}
    divided = [name for name, kind in kinds.items() if kind == wanted]
    if wanted is not None and len(divided) != 1:
        problems.add(("isolation",), f'"{file.isolation}" divides one {wanted} resource, and there are {len(divided)}')
    for name, kind in kinds.items():
        if kind != wanted and kind not in AT_REST:
            among = " or ".join(filter(None, (wanted, *AT_REST)))
            problems.add(("resources", name, "kind"), f'isolation "{file.isolation}" goes with {among} only, and this is {kind}')
    for name in divided:
        if file.resources[name].options.get("superuser"):
            problems.add(("resources", name, "superuser"), "the agent of a shared server cannot be superuser")
