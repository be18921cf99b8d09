"""Scripted solutions of `errands`: what a careful agent does, and what careless ones do instead. A warm start is fitted on them."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

from rollout.recipes.errands.generate import AMOUNTS, LISTS
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec

DONE = "Done."
NO_OUTPUT = "(no output)"
# How often each is written, of 100: the first is right. The model learns to do them as often.
SHARES = {"right": 30, "another list": 20, "another amount": 20, "overwritten": 15, "nothing": 15}
_PROMPT = re.compile(r"Add (\d+) (\w+) to the (\w+) list\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a task asks for."""

    where: str
    thing: str
    amount: int


def errand(task: TaskSpec) -> Errand:
    """Read a task's prompt, as an agent has to."""
    found = _PROMPT.fullmatch(task.prompt)
    if found is None:
        raise EnvironmentInvalid(
            f"task {task.id} is none of errands: {task.prompt!r}", fix="use the environment rollout/recipes/errands"
        )
    return Errand(amount=int(found[1]), thing=found[2], where=found[3])


def command(asked: Errand, kind: str, chance: random.Random) -> str | None:
    """Return the shell command of one way to do the errand, None for doing nothing."""
    where, amount, arrow = asked.where, asked.amount, ">>"
    if kind == "nothing":
        return None
    if kind == "another list":
        where = chance.choice([name for name in LISTS if name != where])
    elif kind == "another amount":
        amount = chance.choice([number for number in AMOUNTS if number != amount])
    elif kind == "overwritten":
        arrow = ">"
    return f"echo {amount} {asked.thing} {arrow} {where}"


def call(shell: str) -> str:
    """Return the answer that runs a command, in the JSON style."""
    return f"<tool_call>{json.dumps({'name': 'shell', 'arguments': {'command': shell}})}</tool_call>"


def answers(task: TaskSpec, chance: random.Random) -> list[str]:
    """Return the answers of one scripted solution, turn by turn; its kind is drawn by SHARES."""
    kind = chance.choices(list(SHARES), weights=list(SHARES.values()))[0]
    shell = command(errand(task), kind, chance)
    return [DONE] if shell is None else [call(shell), DONE]
