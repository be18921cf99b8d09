"""The house is in order: our packages are ours, importing does nothing, public names exist, modules stay small."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sandbox", "probes", "envs", "rollout")
CONTENT = (ROOT / "envs/repo/library", ROOT / "envs/templates")  # what environments hold, not our code
FILES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))
MODULES = [p for p in FILES if not any(p.is_relative_to(c) for c in CONTENT)]


@pytest.mark.parametrize("name", PACKAGES)
def test_package_is_ours(name: str) -> None:
    module = importlib.import_module(name)

    assert Path(str(module.__file__)).is_relative_to(ROOT)


def test_packages_are_ours_from_an_unrelated_directory(tmp_path: Path) -> None:
    code = "import sandbox, probes, envs, rollout; print(*(m.__file__ for m in (sandbox, probes, envs, rollout)), sep='\\n')"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert all(Path(path).is_relative_to(ROOT) for path in found), found


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_exist(name: str) -> None:
    module = importlib.import_module(name)

    missing = [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)]

    assert missing == []


def test_import_does_nothing(tmp_path: Path) -> None:
    """No output, no file, no thread and no heavy package at import."""
    code = (
        "import sys, threading, sandbox, probes, envs, rollout\n"
        "heavy = [m for m in ('rich', 'docker', 'fastapi', 'torch', 'vllm', 'playwright', 'ray') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "assert threading.active_count() == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_modules_stay_small_and_named() -> None:
    long = {str(p.relative_to(ROOT)): n for p in MODULES if (n := len(p.read_text().splitlines())) > 400}
    vague = [str(p.relative_to(ROOT)) for p in MODULES if p.stem in {"utils", "util", "helpers", "common", "misc"}]

    assert (long, vague) == ({}, [])


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(p.relative_to(ROOT)) for p in MODULES if p.stat().st_size and not ast.get_docstring(ast.parse(p.read_text()))]

    assert silent == []


@pytest.mark.parametrize("group", ["environments", "resources", "probes", "runtimes", "commands"])
def test_entry_points_load(group: str) -> None:
    points = entry_points(group=f"autoclave.{group}")

    assert len(points) > 0
    for point in points:
        assert point.load() is not None
