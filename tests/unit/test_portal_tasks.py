"""The portal's task file as it is shipped: how much of what, and that it belongs to the sources beside it."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from typing import Any

import pytest

from envs.portal import people
from envs.portal.app.portal import security
from envs.portal.draft import ORIGIN
from envs.portal.driver import Driver
from envs.portal.families import COUNTS, FAMILIES
from envs.portal.families.office import WORKSPACE
from envs.portal.generate import HELD_OUT, HERE, sources_digest
from envs.spec import TaskTable
from envs.success import AllCheck, BrowserCheck, SqlCheck, parse

ON_THE_DEVICE = {"display", "draft", "offline"}


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    return _rows("tasks.jsonl")


def test_there_are_enough_tasks_of_every_family_and_difficulty(tasks: list[dict[str, Any]]) -> None:
    assert len(tasks) >= 60
    assert len(FAMILIES) >= 6
    counted = Counter((t["family"], t["difficulty"]) for t in tasks)
    assert counted == {(family, difficulty): count for family in FAMILIES for difficulty, count in COUNTS.items()}


def test_one_of_each_family_and_difficulty_is_held_out(tasks: list[dict[str, Any]]) -> None:
    held = Counter((t["family"], t["difficulty"]) for t in tasks if t["split"] == "held-out")
    assert held == {(family, difficulty): round(count * HELD_OUT) for family in FAMILIES for difficulty, count in COUNTS.items()}
    assert set(held.values()) == {1}


def test_no_two_tasks_ask_the_same(tasks: list[dict[str, Any]]) -> None:
    assert len({t["id"] for t in tasks}) == len(tasks)
    assert len({t["prompt"] for t in tasks}) == len(tasks)


def test_every_task_has_the_shape_that_the_reader_takes(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        TaskTable.model_validate(task)
        check = parse(task["success"])
        assert isinstance(check, AllCheck)
        database, *device = check.checks
        assert isinstance(database, SqlCheck)
        assert any(query.name.endswith("as it was") for query in database.normalized()), task["id"]
        assert bool(device) == (task["family"] in ON_THE_DEVICE), task["id"]
        assert all(isinstance(part, BrowserCheck) and part.origin == ORIGIN for part in device)


def test_every_prompt_says_who_signs_in_with_a_password_that_is_right(tasks: list[dict[str, Any]]) -> None:
    stored = {
        login: text for text, login in re.findall(r"'(scrypt[^']+)' where login = '([a-z.]+)'", people.FILE.read_text("utf-8"))
    }
    assert len(stored) == 48
    for task in tasks:
        found = re.match(rf"Sign in at {ORIGIN} as ([a-z.]+) with the password ([a-z0-9-]+)\. ", task["prompt"])
        assert found is not None, task["prompt"]
        assert people.password(found[1]) == found[2]
        assert found[1] in stored
    for login in list(stored)[::16]:  # hashing is slow on purpose
        assert security.matches(people.password(login), stored[login])
        assert not security.matches("another-word-11", stored[login])


def test_every_step_of_a_solution_is_one_that_the_driver_knows(tasks: list[dict[str, Any]]) -> None:
    solutions = {row["id"]: row for row in _rows("solutions.jsonl")}
    assert set(solutions) == {t["id"] for t in tasks}
    for row in solutions.values():
        assert row["solution"] != row["wrong"]
        for verb, *_ in (*row["solution"], *row["wrong"]):
            assert callable(getattr(Driver, verb))


def test_files_that_a_prompt_names_are_there(tasks: list[dict[str, Any]]) -> None:
    named = {name for t in tasks for name in re.findall(rf"{WORKSPACE}/([a-z/-]+(?:\.txt)?)", t["prompt"])}
    assert len(named) >= 5
    for name in named:
        assert (HERE / "documents" / name).exists()


def test_the_file_was_made_from_the_sources_beside_it() -> None:
    for name in ("tasks.jsonl", "solutions.jsonl"):
        first = (HERE / name).read_text("utf-8").split("\n", 1)[0]
        assert sources_digest() in first, "run python -m envs.portal.generate"


def test_what_the_agent_may_read_holds_neither_tasks_nor_solutions_nor_passwords() -> None:
    description = tomllib.loads((HERE / "environment.toml").read_text("utf-8"))
    (shared,) = description["shared"]
    for path in (HERE / shared["path"]).iterdir():
        assert path.suffix == ".sql"
        assert people.password("ada.ahlgren") not in path.read_text("utf-8")
