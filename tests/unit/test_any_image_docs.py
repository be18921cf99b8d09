"""docs/any-image.md: its description is right, and names no option that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from envs import load
from sandbox.resources.container import ContainerOptions

PAGE = (Path(__file__).parents[2] / "docs" / "any-image.md").read_text("utf-8")


def test_the_description_is_right(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found
    (tmp_path / "environment.toml").write_text(found[1])
    assert load(tmp_path).spec.resource("cache").kind == "container"


def test_every_option_is_named() -> None:
    names = {field.alias or name for name, field in ContainerOptions.model_fields.items()}
    missing = {name for name in names if not re.search(rf"`{name}\b|^{name} =", PAGE, re.MULTILINE)}
    assert not missing
