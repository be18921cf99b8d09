"""The audit of references: done in a clean world, judged by the task's check, and listed where they are not right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollout.batches import SyncRule
from rollout.command import app
from rollout.engines.scripts import call
from rollout.groups import GroupRule
from rollout.meters.shown import table
from rollout.references.audit import findings
from rollout.references.reference import of_environment, of_file, replay
from sandbox.cli.output import show
from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResetMethod, ResetPolicy, TaskSpec
from sandbox.testing import memory_environment


def do(command: str) -> str:
    return call("do", command=command)


async def test_each_reference_is_done_and_judged_and_what_is_not_right_is_listed(rolled: Any) -> None:
    """One is right, one wrong, one leaves something behind that its author's reset misses, and one task has none."""
    rolled.leaks[ResetMethod.HOOK] = ["file/sticky"]
    rolled.environment = memory_environment(tasks=rolled.tasks, reset=ResetPolicy(method=ResetMethod.HOOK, hook=("reset",)))
    references = {
        "task-0": (do("get orders"), do("set orders paid")),
        "task-1": (do("set orders open"),),
        "task-2": (do("set sticky left"), do("set orders paid")),
        "task-3": (),
    }
    tasks, rolled.tasks = rolled.tasks, rolled.tasks[:3]
    rolled.script = lambda _: replay(references)
    rolled.change(
        groups=3, sync=SyncRule(groups=1), group_rule=GroupRule(size=1, min_survivors=1, keep_flat=True, refill=False), alarm=1.0
    )
    rolled.size = 1
    await rolled.run()
    found = findings(references, tasks, rolled.journal())

    assert found["counts"] == {"right": 1, "wrong": 1, "unavailable": 1, "undecided": 1}
    assert {row["task"]: row["finding"] for row in found["to_look_at"]} == {
        "task-1": "wrong",
        "task-2": "undecided",
        "task-3": "unavailable",
    }
    assert {row["task"]: row["why"] for row in found["to_look_at"]}[
        "task-1"
    ] == "orders"  # what the check says is not as it should be
    assert found["by_family"] == {"f": found["counts"]}
    assert found["tasks"] == 4


def test_a_file_of_references_is_read_and_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    tasks = [TaskSpec(id=name, family="f", difficulty="easy", split="train", prompt="") for name in "ab"]
    path = tmp_path / "references.jsonl"
    row = {"id": "a", "calls": [{"tool": "sql", "arguments": {"query": "select 1"}}]}
    path.write_text(f"# by hand\n\n{json.dumps(row)}\n{json.dumps(row | {'id': 'of another split'})}\n")

    assert of_file(path, tasks) == {"a": (call("sql", query="select 1"),), "b": ()}
    path.write_text('{"id": "a", "calls": [{"name": "sql"}]}\n')
    with pytest.raises(EnvironmentInvalid, match="line 1 is no reference: KeyError 'tool'"):
        of_file(path, tasks)
    with pytest.raises(EnvironmentInvalid, match="cannot be read"):
        of_file(tmp_path / "nowhere", tasks)


def test_what_comes_with_the_shipped_environments_covers_their_tasks() -> None:
    from envs.repo import environment as repo
    from envs.shop import environment as shop

    for environment in (shop(), repo()):
        tasks = list(environment.tasks.values())
        known = of_environment(environment, tasks)
        assert len(known) == len(tasks) > 0
        assert all(known.values())


def test_what_a_check_said_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets are markup to the terminal's library, and those of a path an error."""
    show(table("to look at", ("why",), [("rows [/workspace] [red]",)]))

    assert "rows [/workspace] [red]" in capsys.readouterr().out


def test_an_environment_without_references_is_said_without_a_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    words = ["references", "repo", "--file", str(empty), "--home", str(tmp_path), "--json"]
    assert app(words, result_action="return_value") == 1
    found = json.loads(capsys.readouterr().out)

    assert found["counts"]["unavailable"] == found["tasks"] > 0
    assert found["run"] is None
    assert app(words[:-1], result_action="return_value") == 1
    assert "there is none" in capsys.readouterr().out
