"""docs/environments.md: its example names every key there is and is right, and its Python runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from envs import spec
from envs.reader import read

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_is_right(tmp_path: Path) -> None:
    for name in ("seed", "reference", "hooks"):
        (tmp_path / name).mkdir()
    (tmp_path / "hooks" / "reset.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tasks.jsonl").write_text("")
    (tmp_path / "environment.toml").write_text(block("toml"))

    assert read(tmp_path).spec.name == "helpdesk"


@pytest.mark.parametrize(
    ("table", "model", "left_out"),
    [
        ("", spec.EnvironmentFile, set()),
        ("limits", spec.LimitsTable, set()),
        ("reset", spec.ResetTable, {"hook"}),
        ("check", spec.CheckTable, set()),
        ("split", spec.SplitTable, set()),
        ("volatile", spec.VolatileTable, set()),
        ("shared", spec.SharedTable, set()),
    ],
)
def test_the_example_names_every_key_with_its_default(table: str, model: type[BaseModel], left_out: set[str]) -> None:
    data = tomllib.loads(block("toml"))
    shown = data if not table else data[table][0] if isinstance(data[table], list) else data[table]

    assert set(shown) == set(model.model_fields) - left_out
    if table in ("limits", "check", "split"):
        assert shown == model().model_dump()


def test_the_python_runs() -> None:
    exec(compile(block("python"), "docs/environments.md", "exec"), {})
