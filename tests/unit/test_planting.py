"""What a candidate for planting must show to count as seen."""

from __future__ import annotations

import os
import subprocess
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from envs import define, destructive
from envs.planting import Candidate, ProbeScore, survey
from envs.planting.candidates import own
from envs.planting.plant import filled, plant
from envs.planting.score import declared
from probes.leaks import ShellLeak, catalogue
from probes.leaks.browser import BrowserLeak
from sandbox.aio import in_thread
from sandbox.model import Depth, DestructiveAction, ExecResult, Problem, ResetMethod, Verdict, VerdictStatus


def test_a_browsers_leak_is_told_by_its_own_field_and_not_by_what_the_visit_changes() -> None:
    leak = BrowserLeak(name="cookie", what="a cookie", shows="cookie/{domain} / planted")
    found = Candidate(
        name="web/cookie", kind="browser", what="", leak=leak, names={"domain": "shop.test", "origin": "http://shop.test"}
    )
    assert found.shows == "cookie/shop.test / planted"


def test_a_name_in_a_pattern_stands_for_itself() -> None:
    leak = ShellLeak(name="mode", what="a mode", shows="*{FILE}", shell='chmod +x "$FILE"')
    found = Candidate(name="code/mode", kind="repo", what="", leak=leak, names={"FILE": "app/[id].tsx"})
    assert fnmatchcase("app/[id].tsx", found.shows)
    assert not fnmatchcase("app/i.tsx", found.shows)


@pytest.mark.parametrize("name", ["ignored-file", "hidden-mode", "assume-unchanged", "skip-worktree"])
def test_what_hides_a_change_does_not_stand_for_the_change(name: str) -> None:
    (leak,) = (leak for leak in catalogue()["repo"] if leak.name == name)
    found = Candidate(name=name, kind="repo", what="", leak=leak, names={"FILE": "src/one.py"})
    for field in ("./.gitignore", "git config/core.filemode", ".git/config", f"git index/{name}", ".git/index"):
        assert not fnmatchcase(field, found.shows), field
    assert fnmatchcase("./planted.cache" if name == "ignored-file" else "src/one.py", found.shows)


def test_any_field_tells_of_another_leak() -> None:
    leak = ShellLeak(name="edit", what="an edit", shell="echo planted")
    assert Candidate(name="home/edit", kind="files", what="", leak=leak).shows == "*"


def test_an_own_leak_says_what_its_author_said_of_it() -> None:
    action = DestructiveAction(name="note", what="a note", argv=("touch", "note"), seen=Depth.QUICK, repaired_by=ResetMethod.CLEAN)
    (found,) = own([action])
    told = declared(found)

    assert (told.name, told.what, told.declared, told.repaired_by, told.blind) == ("note", "a note", "quick", "clean", "")


def test_an_own_leak_that_no_probe_can_see_is_not_counted() -> None:
    (found,) = own([DestructiveAction(name="note", argv=("touch", "/tmp/note"), blind="/tmp ends with the sandbox")])
    told = declared(found)
    score = ProbeScore(outcomes=(told,))

    assert (told.declared, told.blind) == (None, "/tmp ends with the sandbox")
    assert (score.planted, score.missed) == (0, ())


def test_a_directory_without_a_target_of_its_own_gets_something_destructive(tmp_path: Path) -> None:
    spec = define({"name": "desk", "version": "1", "resources": {"data": {"kind": "files", "files": {"a": "1"}}}}, tmp_path).spec

    assert "file-left-in/workspace/data" in {action.name for action in destructive.defaults(spec)}


def test_braces_that_name_nothing_are_the_leaks_own() -> None:
    names = {"table": 'public."{key}"', "key": "id"}
    assert filled("insert into {table} values ('{}', '{1,2}', '{\"a\": {key}}')", names) == (
        "insert into public.\"{key}\" values ('{}', '{1,2}', '{\"a\": id}')"
    )


class Shell:
    """An instance that really runs what it is told, in a directory."""

    async def run(self, argv: list[str], *, env: dict[str, str], limit_s: float) -> ExecResult:
        done = await in_thread(subprocess.run, argv, env={**os.environ, **env}, capture_output=True, timeout=limit_s)
        return ExecResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.mark.parametrize(
    ("shell", "left"),
    [
        ("true", set[str]()),
        ("echo x > planted", {"place/planted"}),
        ('echo x > "$OUTSIDE/planted"', {"outside", "outside/planted"}),
        ("echo x > .git/hooks/planted", {"place/.git", "place/.git/hooks", "place/.git/hooks/planted"}),
    ],
)
async def test_planting_leaves_the_leak_and_nothing_else(shell: str, left: set[str], tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    names = {"PLACE": str(tmp_path / "place"), "OUTSIDE": str(tmp_path / "outside")}
    leak = ShellLeak(name="leak", what="a leak", shell=shell)
    instance: Any = Shell()

    async with AsyncExitStack() as held:
        assert await plant(instance, Candidate(name="leak", kind="files", what="", leak=leak, names=names), held) is None

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} - {"place"} == left


LATE = Verdict(status=VerdictStatus.INCONCLUSIVE, depth=Depth.QUICK, problems=(Problem(probe="web", reason="no answer"),))
CLEAN = Verdict(status=VerdictStatus.CLEAN, depth=Depth.QUICK)


class Looked:
    """A trial in which a leak is really planted, and whose checks after that say what is given; whatever else they say is clean."""

    method = ResetMethod.RESTORE

    def __init__(self, *said: Verdict) -> None:
        self._said = [CLEAN, *said]  # one look before anything is planted
        self.instance: Any = Shell()

    async def read(self, depth: Depth) -> Verdict:
        return self._said.pop(0) if self._said else CLEAN

    async def look(self, *, quiesce: bool = True) -> Verdict:
        return CLEAN

    async def renew(self) -> None: ...

    async def reset(self) -> None: ...


@pytest.mark.parametrize(("said", "missed"), [((LATE,), ("leak",)), ((LATE, LATE), ())])
async def test_a_probe_that_did_not_answer_once_has_not_seen_a_leak(
    said: tuple[Verdict, ...], missed: tuple[str, ...], tmp_path: Path
) -> None:
    """On a loaded machine that happens without one; what a leak keeps from being read stays so."""
    names = {"PLACE": str(tmp_path), "OUTSIDE": str(tmp_path)}
    leak = Candidate(name="leak", kind="files", what="", leak=ShellLeak(name="leak", what="", shell="true"), names=names)
    trial: Any = Looked(*said)

    assert (await survey(trial, [leak], inapplicable={})).missed == missed
