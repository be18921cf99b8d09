"""docs/acceptance.md can be kept: each module that a line names has tests that `make acceptance` selects."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("acceptance_page", ROOT / "tests" / "acceptance" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_module_that_a_line_names_brings_a_result(page: Any) -> None:
    named = [module for _, _, modules in page.DONE_WHEN for module in modules]

    assert {module: page._unmatched(module, []) for module in named} == dict.fromkeys(named, "")


def test_a_module_that_is_not_there_or_never_selected_is_refused(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "DONE_WHEN", (("6", "kill -9", ("test_host_files",)),))
    with pytest.raises(pytest.UsageError, match="names test_host_files: 0 files of the suite are called so"):
        page.pytest_collection_modifyitems([])
    assert page._unmatched("test_lifecycle", []) == "none of its tests is marked acceptance or done_when"


def test_make_acceptance_selects_these_marks(page: Any) -> None:
    assert f"({' or '.join(page.MARKS)})" in (ROOT / "Makefile").read_text("utf-8")
