"""Stores of homes that are gone: found, told, and deleted when asked, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import settings as places
from sandbox.cleaning import orphans
from sandbox.storage import open_storage

pytestmark = [pytest.mark.namespaces, pytest.mark.root]


def gc(*argv: str, home: Path) -> Any:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")} | {"AUTOCLAVE_HOME": str(home)}
    command = [sys.executable, "-m", "sandbox.cli.main", "gc", "--json", *argv]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_a_home_that_is_gone_leaves_nothing_for_ever(passable_dir: Path) -> None:
    alive, gone = (places.load({}, home=passable_dir / name) for name in ("alive", "gone"))
    try:
        for each in (alive, gone):
            each.home.mkdir()
            await (await open_storage(each)).close()
        (gone.store / "snapshots" / "left").mkdir()
        (gone.store / "snapshots" / "left" / "file").write_text("x")
        assert {o.directory for o in orphans()} & {alive.store, gone.store, alive.scratch, gone.scratch} == set()
        gone.home.rmdir()
        mine = {gone.store, gone.scratch}
        assert mine <= {o.directory for o in orphans()}

        listed = gc("--gone-homes", "--dry-run", home=alive.home)
        assert {str(path) for path in mine} <= {entry["directory"] for entry in listed["gone_homes"]}
        assert listed["gone_homes_deleted"] == []
        assert gc(home=alive.home)["gone_homes_deleted"] == []
        assert (gone.store / "snapshots" / "left" / "file").exists()
        # Only this one, since other tests' homes come and go beside it.
        from sandbox.cleaning import remove_orphans

        removed, kept = await remove_orphans([o for o in orphans() if o.home == gone.home])
        assert ({o.directory for o in removed}, kept) == (mine, [])
        assert [path for path in (*mine, gone.run) if path.exists()] == []
        assert alive.store.exists()
    finally:
        for each in (alive, gone):
            for path in (each.store, each.scratch, each.run):
                shutil.rmtree(path, ignore_errors=True)


def test_a_note_that_does_not_fit_its_directory_is_not_believed(tmp_path: Path) -> None:
    for name, text in (("a", "/nowhere/at/all\n"), ("b", "relative"), ("c", str(tmp_path))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "home").write_text(text)
    assert orphans([tmp_path]) == []
