"""`autoclave env baseline`: a new one that differs is shown, and asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]
DESK = 'name = "desk"\nversion = "1"\n[resources.data]\nkind = "files"\nfiles = { "a.txt" = "TEXT" }\n'


def baseline(directory: Path, settings: Settings, *more: str, stdin: Any = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
    places = {"HOME": settings.home, "STORE": settings.store, "SCRATCH": settings.scratch, "RUN": settings.run}
    return subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", "env", "baseline", str(directory), "--json", *more],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(settings.home), **{f"AUTOCLAVE_{k}": str(v) for k, v in places.items()}},
    )


def test_a_baseline_that_differs_is_recorded_with_a_yes_only(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    file = tmp_path / "environment.toml"
    file.write_text(DESK)
    first = baseline(tmp_path, settings)
    file.write_text(DESK.replace("TEXT", "another"))
    refused = baseline(tmp_path, settings)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"y\n")
        agreed = baseline(tmp_path, settings, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    file.write_text(DESK.replace("TEXT", "a third"))
    unasked = baseline(tmp_path, settings, "--yes")

    assert [done.returncode for done in (first, refused, agreed, unasked)] == [0, 1, 0, 0], (refused.stderr, agreed.stderr)
    told = json.loads(refused.stdout)["error"]
    assert (told["type"], "--yes" in told["fix"]) == ("BaselineRefused", True)
    assert "a.txt" in refused.stderr, "the difference is shown"
    assert "[y/N]" not in refused.stderr
    assert "[y/N]" in agreed.stderr
    digests = [json.loads(done.stdout)["baseline"]["digest"] for done in (first, agreed, unasked)]
    formers = [json.loads(done.stdout)["baseline"]["former"] for done in (first, agreed, unasked)]
    assert formers == [None, *digests[:2]]
    assert json.loads(first.stdout)["in_force"]["runtime"].startswith("namespaces")
