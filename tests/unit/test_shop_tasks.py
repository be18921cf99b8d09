"""The shop's task file as it is shipped: how much of what, and that it belongs to the sources beside it."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections import Counter
from typing import Any

import pytest

from envs.shop.draft import World, among, holds, lit
from envs.shop.families import COUNTS, FAMILIES
from envs.shop.generate import HERE, sources_digest
from envs.spec import TaskTable
from envs.success import SqlCheck, parse


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    return _rows("tasks.jsonl")


def test_there_are_enough_tasks_of_every_family_and_difficulty(tasks: list[dict[str, Any]]) -> None:
    assert len(tasks) >= 240
    assert len(FAMILIES) >= 6
    counted = Counter((t["family"], t["difficulty"]) for t in tasks)
    assert counted == {(family, difficulty): count for family in FAMILIES for difficulty, count in COUNTS.items()}


def test_a_fifth_of_every_family_and_difficulty_is_held_out(tasks: list[dict[str, Any]]) -> None:
    held = Counter((t["family"], t["difficulty"]) for t in tasks if t["split"] == "held-out")
    assert held == {(family, difficulty): round(count * 0.2) for family in FAMILIES for difficulty, count in COUNTS.items()}
    assert {t["split"] for t in tasks} == {"train", "held-out"}


def test_no_two_tasks_ask_the_same(tasks: list[dict[str, Any]]) -> None:
    assert len({t["id"] for t in tasks}) == len(tasks)
    assert len({t["prompt"] for t in tasks}) == len(tasks)
    assert len({json.dumps(t["success"]) for t in tasks}) == len(tasks)


def test_every_task_has_the_shape_that_the_reader_takes(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        TaskTable.model_validate(task)
        check = parse(task["success"])
        assert isinstance(check, SqlCheck)
        names = [query.name for query in check.normalized()]
        assert len(names) >= 4
        assert any(name.endswith("as it was") for name in names), task["id"]


def test_prompts_give_nothing_of_the_solution_away(tasks: list[dict[str, Any]]) -> None:
    solutions = {row["id"]: row for row in _rows("solutions.jsonl")}
    assert set(solutions) == {t["id"] for t in tasks}
    for task in tasks:
        for statement in solutions[task["id"]]["solution"]:
            assert statement not in task["prompt"]
        assert solutions[task["id"]]["solution"] != solutions[task["id"]]["wrong"]


def test_the_file_was_made_from_the_sources_beside_it() -> None:
    for name in ("tasks.jsonl", "solutions.jsonl"):
        first = (HERE / name).read_text("utf-8").split("\n", 1)[0]
        assert sources_digest() in first, "run python -m envs.shop.generate"


def test_what_the_agent_may_read_holds_neither_tasks_nor_solutions() -> None:
    description = tomllib.loads((HERE / "environment.toml").read_text("utf-8"))
    for item in description["shared"]:
        files = {path.suffix for path in (HERE / item["path"]).rglob("*") if path.is_file()}
        assert files <= {".sql", ".sh"}


def test_seed_files_read_no_clock_and_throw_no_dice() -> None:
    text = (HERE / "db" / "seed.sql").read_text("utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    assert not re.search(r"\b(random|now|clock_timestamp|current_timestamp|current_date|gen_random_uuid)\b", code)


def test_destructive_actions_cover_every_role_and_their_scripts_parse() -> None:
    actions = tomllib.loads((HERE / "environment.toml").read_text("utf-8"))["destructive"]
    assert len(actions) >= 25
    assert {a["role"] for a in actions if "sql" in a} == {"agent", "shop_owner", "postgres"}
    for action in actions:
        if "run" in action:
            subprocess.run(["/bin/sh", "-n", "-c", action["run"]], check=True, timeout=10)


def test_literals_are_quoted() -> None:
    assert lit("O'Hara") == "'O''Hara'"
    assert lit(None) == "null"
    assert lit(True) == "true"
    assert among(["a'b", 2]) == "('a''b', 2)"


def test_choices_follow_from_the_seed_alone() -> None:
    values = [{"id": i} for i in range(50)]

    def order(seed: int, rows: list[dict[str, int]]) -> list[int]:
        return [r["id"] for r in World(lambda sql: [], seed).order("x", rows, key=lambda r: r["id"])]

    assert order(1, values) == order(1, values[::-1])
    assert order(1, values) != order(2, values)


def test_the_scope_is_subtracted_from_the_whole() -> None:
    asked: list[str] = []

    def query(sql: str) -> list[dict[str, int]]:
        asked.append(sql)
        return [{"count": 2, "sum": 30}] if "id = 7" in sql else [{"count": 10, "sum": 100}]

    claim = World(query, 1).unchanged("shop.orders", but="id = 7")
    assert claim.name == "shop.orders otherwise as it was"
    assert "= (8, 70)" in claim.sql
    assert "not (id = 7)" in claim.sql
    assert holds("x", "true").sql == "select true"
