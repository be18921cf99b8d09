"""A reproduction is an action of environment.toml that does what was recorded, whatever its texts hold."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.bisect import reproduction
from envs.bisect.reproduction import Entry
from envs.environment import load
from sandbox.actions import ActionKind, RecordedAction
from sandbox.errors import EnvironmentInvalid
from sandbox.model import PageAction, PageDo, PageStep

TELL = "import json,os,sys;print(json.dumps([sys.argv[1:],os.environ.get('V'),os.getcwd(),sys.stdin.buffer.read().hex()]))"
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def run(*argv: str, **more: Any) -> RecordedAction:
    return RecordedAction(number=0, kind=ActionKind.RUN, argv=argv, **{"exit_code": 0, **more})


def write(path: str, data: bytes, mode: int = 0o644) -> RecordedAction:
    return RecordedAction(number=1, kind=ActionKind.WRITE_FILE, path=path, data=data, mode=mode)


def browse(do: PageDo, at: str, text: str = "", data: bytes = b"", *, ok: bool = True, resource: str = "web") -> RecordedAction:
    page = PageAction(do=do, at=at, text=text, resource=resource)
    code = 0 if ok else 1
    return RecordedAction(number=2, kind=ActionKind.BROWSE, page=page, data=data, resource=resource, exit_code=code)


def entry(*actions: RecordedAction, field: str = "db/rows of Öl") -> Entry:
    made = reproduction.entry(actions, fields=[field], about={"what": "left"}, comment=["Found\nby", "x"])
    assert made is not None
    (table,) = tomllib.loads(made.toml)["destructive"]
    assert table == made.table
    return made


def test_one_command_stays_as_it_was() -> None:
    assert entry(run("/bin/sh", "-c", "echo a > b\necho c")).table["run"] == "echo a > b\necho c"
    assert entry(run("psql", "-c", "select 'a'")).table["argv"] == ["psql", "-c", "select 'a'"]
    assert entry(run("/bin/sh", "-c", "false", exit_code=1)).table["run"].endswith("|| :\n"), (
        "an entry that fails counts as not done"
    )
    assert entry(run("a", "")).action.argv == ("/bin/sh", "-c", "a ''\n")


def test_its_name_says_what_it_leaves_and_is_one_for_environment_toml() -> None:
    first, again = entry(run("a"), field="db/db shop/table public.orders/rows"), entry(run("b"))

    assert first.name.startswith("leaves-public-orders-rows-")
    assert first.name != again.name
    assert first.action.name == first.name


def test_what_is_too_long_for_a_command_is_no_entry() -> None:
    long = write("/w/a", b"x" * 200_000)

    assert reproduction.entry([long], fields=["a/b"], about={}, comment=[]) is None


@pytest.mark.parametrize("actions", [[run("sh", "-c", "a\0b")], [run("a", "b\0"), run("c")]])
def test_what_no_command_can_hold_is_no_entry(actions: list[RecordedAction]) -> None:
    assert reproduction.entry(actions, fields=["a/b"], about={}, comment=[]) is None


def test_what_was_cut_short_is_cut_short_again(tmp_path: Path) -> None:
    endless = run("/bin/sh", "-c", f"echo a > {tmp_path}/a; sleep 1000", timed_out=True, exit_code=137, limit_s=0.5)

    for actions in ([endless], [run("true"), endless]):
        subprocess.run(entry(*actions).action.argv, check=True, timeout=60, stdout=subprocess.DEVNULL)
        assert (tmp_path / "a").read_text() == "a\n"
        (tmp_path / "a").unlink()


@given(at=words.filter(bool), text=st.text(max_size=20), data=words, ok=st.booleans())
def test_what_was_done_on_a_page_becomes_steps(at: str, text: str, data: str, ok: bool) -> None:
    done = [
        browse(PageDo.GOTO, "http://portal/"),
        browse(PageDo.FILL, at, text, ok=ok),
        browse(PageDo.CLICK, at),
        browse(PageDo.UPLOAD, at, "a b.txt", data.encode()),
    ]

    action = entry(*done).action

    assert action.resource == "web"
    assert action.browser is not None
    assert action.browser.steps == tuple(
        PageStep(action=PageAction(do=a.page.do, at=a.page.at, text=a.page.text, data=a.data), may_fail=not ok and n == 1)
        for n, a in enumerate(done)
        if a.page is not None
    )


def test_what_a_page_took_no_notice_of_leaves_an_environment_that_can_be_read(tmp_path: Path) -> None:
    odd = [
        browse(PageDo.GOTO, "http://portal/", "a text"),
        browse(PageDo.CLICK, "", ok=False),
        browse(PageDo.CLICK, "a", "a text"),
        browse(PageDo.UPLOAD, "#f", "", b"content"),
    ]

    made = entry(*odd)

    (tmp_path / "environment.toml").write_text(
        f'name = "x"\nversion = "1"\n[resources.web]\nkind = "browser"\n{made.toml}', "utf-8"
    )
    (action,) = load(tmp_path).spec.destructive
    assert action == made.action
    assert action.browser is not None
    assert [step.action.line for step in action.browser.steps] == ["goto http://portal/", "click a", "upload #f: file"]


@pytest.mark.parametrize(
    "actions",
    [
        [browse(PageDo.CLICK, "", ok=False)],
        [run("a"), browse(PageDo.CLICK, "b")],
        [browse(PageDo.CLICK, "b"), browse(PageDo.CLICK, "b", resource="other")],
        [browse(PageDo.UPLOAD, "b", "c", b"\xff")],
        [browse(PageDo.FILL, "b", "\udc80")],
    ],
)
def test_commands_with_a_page_two_browsers_nothing_or_what_is_no_text_are_no_entry(actions: list[RecordedAction]) -> None:
    assert reproduction.entry(actions, fields=["a/b"], about={}, comment=[]) is None


@settings(max_examples=25, deadline=None)
@given(arguments=st.lists(words, max_size=3), stdin=st.binary(max_size=40), value=words, failed=st.booleans())
def test_the_text_does_what_was_recorded(arguments: list[str], stdin: bytes, value: str, failed: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a b", "it's")
        first = run(sys.executable, "-c", TELL, *arguments, stdin=stdin, env={"V": value}, cwd=place, exit_code=int(failed))

        done = subprocess.run(entry(first, write(str(path), stdin, 0o640)).action.argv, capture_output=True, check=True, cwd="/")

        assert json.loads(done.stdout) == [arguments, value, os.path.realpath(place), stdin.hex()]
        assert path.read_bytes() == stdin
        assert path.stat().st_mode & 0o777 == 0o640


@given(text=words)
def test_any_text_is_toml(text: str) -> None:
    if text:
        assert entry(run("/bin/sh", "-c", text)).table["run"] == text
    assert entry(run("x", text, "'''\n")).action.argv[-1]


def test_a_place_that_cannot_be_written_is_refused_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[[")
    reproduction.require_place(tmp_path / "new.toml")
    for path, said in (
        (tmp_path / "none" / "a.toml", "no directory"),
        (tmp_path, "is a directory"),
        (tmp_path / "broken.toml", "TOML"),
    ):
        with pytest.raises(EnvironmentInvalid, match=said):
            reproduction.require_place(path)


def test_the_name_of_a_variable_is_text(tmp_path: Path) -> None:
    odd = run("true", env={f"A; touch {tmp_path}/made;": "x"})
    subprocess.run(entry(odd).action.argv, capture_output=True, check=False, cwd="/")
    assert not (tmp_path / "made").exists()


def test_it_is_added_to_a_file_once(tmp_path: Path) -> None:
    file = tmp_path / "environment.toml"
    file.write_text('name = "desk"\n\n[[destructive]]\nname = "own"\nrun = "a"\n\n[resources.x]\nkind = "files"')
    made = entry(run("psql", "-c", "x"))

    reproduction.append(made, file)
    reproduction.append(made, tmp_path / "new.toml")

    assert [t["name"] for t in tomllib.loads(file.read_text())["destructive"]] == ["own", made.name]
    assert tomllib.loads((tmp_path / "new.toml").read_text())["destructive"] == [dict(made.table)]
    before = file.read_text()
    with pytest.raises(EnvironmentInvalid, match="already"):
        reproduction.append(made, file)
    file.write_text("destructive = []\n")
    with pytest.raises(EnvironmentInvalid, match="would not be valid"):
        reproduction.append(made, file)
    assert (file.read_text(), "own" in before) == ("destructive = []\n", True)


def test_a_full_disk_costs_the_file_nothing(tmp_path: Path) -> None:
    file = tmp_path / "environment.toml"
    before = b'name = "desk"\r\n' + b"# " + b"x" * 5000 + b"\r\n"
    file.write_bytes(before)
    made, limits = entry(run("psql", "-c", "y" * 2000)), resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            reproduction.append(made, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert file.read_bytes() == before
    reproduction.append(made, file)
    assert file.read_bytes().startswith(before)
    assert [table["name"] for table in tomllib.loads(file.read_bytes().decode())["destructive"]] == [made.name]
