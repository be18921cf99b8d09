"""The page about the pool says what the table says."""

from __future__ import annotations

from pathlib import Path

import sandbox
from sandbox.lifecycle import as_mermaid


def test_the_diagram_is_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pool.md").read_text()
    assert f"```mermaid\n{as_mermaid()}\n```" in page


def test_every_public_name_is_there() -> None:
    assert sorted(sandbox.__all__) == sandbox.__all__ == dir(sandbox)
    for name in sandbox.__all__:
        assert getattr(sandbox, name) is not None
