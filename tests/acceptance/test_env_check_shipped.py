"""`autoclave env check` of the shipped environments, as an author runs it: clean under restore; the hooks named field by field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(900)]


def autoclave(*argv: str, home: Path) -> tuple[int, Any]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")}
    environ["AUTOCLAVE_HOME"] = str(home)
    argv = (sys.executable, "-m", "sandbox.cli.main", *argv, "--json")
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=800, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", ["shop", "repo", pytest.param("portal", marks=pytest.mark.browser)])
@pytest.mark.parametrize("runtime", ["namespaces", pytest.param("docker", marks=pytest.mark.docker)])
def test_env_check_shipped(passable_dir: Path, name: str, runtime: str) -> None:
    code, clean = autoclave("env", "check", name, "--runtime", runtime, home=passable_dir / "home")
    assert (code, clean["verdict"], clean["differences"]) == (0, "clean", []), clean
    assert len(clean["steps"]) == 5
    assert all(step["ok"] for step in clean["steps"])
    assert clean["in_force"]["runtime"] == runtime

    code, dirty = autoclave("env", "check", name, "--method", "hook", "--runtime", runtime, home=passable_dir / "home")
    assert (code, dirty["verdict"]) == (1, "mismatch")
    assert all({"probe", "field", "expected", "actual"} <= set(difference) for difference in dirty["differences"])
    assert len(dirty["differences"]) >= 5
