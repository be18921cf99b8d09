"""`env new`: a small environment that works, with a comment on every part."""

from __future__ import annotations

import re
from pathlib import Path

from sandbox.errors import EnvironmentInvalid

_TEMPLATES = Path(__file__).parent / "templates"
KINDS = ("files", "repo", "postgres")


def write(name: str, *, kind: str, directory: Path) -> list[Path]:
    """Write the skeleton of that kind; return its files, `environment.toml` first. Nothing that exists is overwritten."""
    refuse_name(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise EnvironmentInvalid(f"{directory} exists and is not empty", fix="choose another with --into")
    source = _TEMPLATES / kind
    written: list[Path] = []
    for path in sorted(source.rglob("*")):
        target = directory / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text("utf-8").replace("@NAME@", name).replace("@IDENTIFIER@", name.replace("-", "_"))
        target.write_text(text, "utf-8")
        if path.suffix == ".sh":
            target.chmod(0o755)
        written.append(target)
    return sorted(written, key=lambda p: (p.name != "environment.toml", p))


def refuse_name(name: str) -> None:
    """Raise EnvironmentInvalid for what no environment can be called."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name):
        raise EnvironmentInvalid(
            f"{name!r} is no name for an environment", fix="lower case letters, digits, - and _; a letter first"
        )
