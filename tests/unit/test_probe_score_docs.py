"""docs/probe-score.md: its examples are right, and it has a word for everything that a score says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from envs.planting import ProbeScore
from envs.spec import DestructiveTable
from probes.leaks import Catalogue
from probes.leaks.catalogue import faults

PAGE = (Path(__file__).parents[2] / "docs" / "probe-score.md").read_text("utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_of_an_own_leak_is_right() -> None:
    (table,) = tomllib.loads(block("toml"))["destructive"]

    assert DestructiveTable.model_validate(table).repaired_by == "clean"
    assert {"what", "seen", "repaired_by"} <= set(table)


def test_the_example_of_a_package_is_right() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)

    assert isinstance(names["CATALOGUE"], Catalogue)
    assert [fault for leak in names["CATALOGUE"].leaks for fault in faults(leak)] == []


def test_every_word_of_a_score_is_explained() -> None:
    words = {"missed": "not seen", "only_seen_by": "seen by this probe alone", "inapplicable": "cannot be planted"}
    plain = {"method", "caught", "repaired", "share", "sample", "leaks", "refused", "false_alarms"}
    rows = {line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")}

    assert {words.get(key, key) for key in ProbeScore().as_json()} - plain <= rows
    assert "*false alarms*" in PAGE
