"""docs/coverage.md names tests and fields that exist."""

from __future__ import annotations

import asyncio
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
