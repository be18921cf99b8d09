"""Scripted agents for the shipped environments: some solve their task, some fail it, some write calls that cannot be read, some
turn in circles. Which of them a group member is depends on seed, task and member only, so that every group has several kinds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from rollout.engines.engine import Request
from rollout.engines.scripted import Reply, Script
from sandbox.model import TaskSpec

KINDS = ("solve", "wrong", "look, then solve", "malformed, then solve", "loop", "give up", "solve", "malformed")
DONE = "The task is done."
_BROKEN = '<tool_call>{"name": "sql", "arguments": {"query": "select 1"</tool_call>'


def call(tool: str, **arguments: str) -> str:
    """Return a tool call in the JSON style."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


class Work:
    """What there is to do on one task: answers that look, that solve, and that fail."""

    def __init__(self, *, look: str, solve: Sequence[str], wrong: Sequence[str]) -> None:
        self.look = look
        self.solve = tuple(solve)
        self.wrong = tuple(wrong)

    def answers(self, kind: str) -> tuple[str, ...]:
        """Return the answers of one kind of agent, turn by turn; after the last one, the last one again."""
        match kind:
            case "solve":
                return (*self.solve, DONE)
            case "look, then solve":
                return (self.look, *self.solve, DONE)
            case "wrong":
                return (self.look, *self.wrong, DONE)
            case "malformed, then solve":
                return (_BROKEN, *self.solve, DONE)
            case "malformed":
                return (_BROKEN,)
            case "loop":
                return (self.look,)
        return (self.look, "I cannot do this.")


def works(environment: str) -> Callable[[TaskSpec], Work]:
    """Return what makes the work of a task: `shop` and `repo` have real solutions, any other one is looked at and left."""
    return {"shop": _shop(), "repo": _repo}.get(environment, _other)


def play(environment: Any, *, seed: int = 0, wait_s: float = 0.0) -> Script:
    """Return the script for one environment."""
    known: dict[str, Work] = {}
    make = works(environment.spec.name)

    def script(request: Request, _: str) -> Reply:
        task = request.labels["task"]
        if task not in known:
            known[task] = make(environment.tasks[task])
        answers = known[task].answers(kind_of(task, int(request.labels["member"]), seed))
        return Reply(text=answers[min(int(request.labels["turn"]), len(answers) - 1)], wait_s=wait_s)

    return script


def kind_of(task: str, member: int, seed: int) -> str:
    """Return which kind of agent a member is: neighbours in a group are of different kinds."""
    start = int.from_bytes(hashlib.blake2b(f"{seed}/{task}".encode(), digest_size=2).digest(), "big")
    return KINDS[(start + member) % len(KINDS)]


def _shop() -> Callable[[TaskSpec], Work]:
    held: dict[str, Mapping[str, Any]] = {}

    def work(task: TaskSpec) -> Work:
        if not held:
            lines = files("envs.shop").joinpath("solutions.jsonl").read_text("utf-8").splitlines()
            held.update((row["id"], row) for row in map(json.loads, (line for line in lines if not line.startswith("#"))))
        row = held.get(task.id, {})
        return Work(
            look=call("sql", query="select id, status from shop.orders order by id desc limit 5"),
            solve=[call("sql", query=";\n".join(row["solution"]) + ";")] if row.get("solution") else [],
            wrong=[call("sql", query=";\n".join(row["wrong"]) + ";")] if row.get("wrong") else [],
        )

    return work


def _repo(task: TaskSpec) -> Work:
    changes = task.start["code"]["replace"]
    library = files("envs.repo").joinpath("library")
    return Work(
        look=call("shell", command="git -C /workspace status --short; ls /workspace/ledgerline"),
        solve=[
            call("write_file", path=f"/workspace/{name}", text=library.joinpath(name).read_text("utf-8"))
            for name in dict.fromkeys(change["file"] for change in changes)
        ],
        wrong=[call("shell", command="echo '# tried' >> /workspace/README.md")],
    )


def _other(task: TaskSpec) -> Work:
    return Work(look=call("shell", command="pwd; ls"), solve=[], wrong=[])
