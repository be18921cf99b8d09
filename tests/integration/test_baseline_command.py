"""`autoclave env baseline`: a new one that differs is shown, and asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]
DESK = 'name = "desk"\nversion = "1"\n[resources.data]\nkind = "files"\nfiles = { "a.txt" = "TEXT" }\n'


def baseline(
    directory: Path, settings: Settings, *more: str, stdin: Any = subprocess.DEVNULL, asked: Callable[[], Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command; `asked` is called when it has asked."""
    places = {"HOME": settings.home, "STORE": settings.store, "SCRATCH": settings.scratch, "RUN": settings.run}
    environ = {"PATH": os.environ["PATH"], "HOME": str(settings.home), **{f"AUTOCLAVE_{k}": str(v) for k, v in places.items()}}
    argv = [sys.executable, "-m", "sandbox.cli.main", "env", "baseline", str(directory), "--json", *more]
    with subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as running:
        assert running.stderr is not None
        said = b""
        while asked is not None and b"[y/N]" not in said and (more_said := running.stderr.read(1)):
            said += more_said
        if asked is not None:
            asked()
        out, rest = running.communicate(timeout=240)
    return subprocess.CompletedProcess(argv, running.returncode, out.decode(), (said + rest).decode())


def test_a_baseline_that_differs_is_recorded_with_a_yes_only(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    file = tmp_path / "environment.toml"
    file.write_text(DESK)
    first = baseline(tmp_path, settings)
    file.write_text(DESK.replace("TEXT", "another"))
    refused = baseline(tmp_path, settings)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")  # before the question: no answer to it
        agreed = baseline(tmp_path, settings, stdin=theirs, asked=lambda: os.write(ours, b"y\n"))
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
