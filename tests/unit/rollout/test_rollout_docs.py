"""docs/rollout.md says what the code does."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import rollout
from rollout.engines.engine import Engine
from rollout.setup import ENGINES
from rollout.terms import Failure, Late, State

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "rollout.md").read_text()


def test_every_closed_set_of_names_is_there() -> None:
    for name in (*State, *Late, Failure.OK, Failure.VALID_HARD, Failure.POLICY, Failure.INFRA, Failure.DATA, *ENGINES):
        assert f"`{name}`" in TEXT, name


def test_the_example_of_a_trainer_names_what_exists() -> None:
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0]
    compile(code, "docs/rollout.md", "exec")
    names = re.findall(r"from rollout import (.*)", code)[0].split(", ")

    assert all(hasattr(rollout, name) for name in names)
    assert all(hasattr(import_module("rollout.loop").RolloutLoop, name) for name in ("batches", "publish", "settle"))
    assert Engine.__doc__


def test_public_names_are_those_that_are_exported() -> None:
    assert set(rollout.__all__) == {name for name in dir(rollout) if not name.startswith("_")}
    assert all(getattr(rollout, name) is not None for name in rollout.__all__)
