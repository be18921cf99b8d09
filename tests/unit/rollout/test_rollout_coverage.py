"""docs/coverage.md names tests and fields that exist."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rollout.drive import Driven
from rollout.meters.events import EVENTS, Events
from rollout.summary import summarise
from sandbox.cli.output import jsonable

SCRIPT = Path(__file__).resolve().parents[2] / "coverage_rows.py"


def _checked(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), "--summary", str(path)], capture_output=True, text=True, check=False)


async def test_every_row_names_tests_and_fields_that_exist(rolled: Any) -> None:
    rolled.meters = Events(rolled.clock, rolled.home / EVENTS)
    await rolled.run()
    path = rolled.home / "summary.json"
    path.write_text(json.dumps(jsonable(summarise(rolled.loop, Driven(), in_force={}))))
    done = await asyncio.to_thread(_checked, path)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_named_test_that_was_skipped_has_not_passed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.unit.test_a" name="test_one[x]"/>
        <testcase classname="tests.unit.test_a" name="test_one[y]"><skipped message="no torch"/></testcase>
        <testcase classname="tests.unit.test_a" name="test_two"><skipped message="no torch"/></testcase>
        <testcase classname="tests.unit.test_b.TestMachine" name="runTest"/>
        <testcase classname="tests.unit.test_c" name="test_three"><failure message="wrong"/></testcase>
        </testsuite></testsuites>"""
    )
    spec = importlib.util.spec_from_file_location("coverage_rows", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    names = [f"tests/unit/test_{n}" for n in ("a.py::test_one", "a.py::test_two", "b.py", "c.py::test_three", "d.py")]

    assert script.not_passed(names, report) == [names[1], *names[3:]]
