"""`autoclave demo`, as a user runs it: every leak caught, no false alarm, a report that can be opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.slow, pytest.mark.done_when, pytest.mark.timeout(900)]


def autoclave(*argv: str, home: Path) -> tuple[int, Any]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")}
    environ["AUTOCLAVE_HOME"] = str(home)
    argv = (sys.executable, "-m", "sandbox.cli.main", *argv, "--json")
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=800, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("runtime", ["namespaces", pytest.param("docker", marks=pytest.mark.docker)])
def test_the_demo_tells_the_story(passable_dir: Path, runtime: str) -> None:
    code, told = autoclave("demo", "--runtime", runtime, home=passable_dir / "home")

    assert told["leaks_planted"] >= 12
    assert [k["name"] for k in told["leaks"] if not k["caught"]] == []
    assert told["leaks_caught"] == told["leaks_planted"]
    assert told["false_alarms"] == 0, told
    assert code == 0, told
    assert told["quarantined"]
    assert told["cleared"]
    assert set(told["quarantined"]).isdisjoint(told["cleared"])
    assert told["runtime"] == told["in_force"]["runtime"] == runtime
    report = Path(told["report"]).read_text("utf-8")
    assert all(t in report for t in told["quarantined"])

    code, why = autoclave("why", told["quarantined"][0], home=passable_dir / "home" / "demo")
    assert code == 0
    assert why["clearance"]["reason"] == "contaminated"
    assert why["window"]["mismatches"]
