"""The tools over a session: what the policy is told, and what is a fault of the tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rollout.engines.engine import Request
from rollout.engines.scripts import KINDS, kind_of, play
from rollout.policies.calls import parse
from rollout.policies.policy import Calls, Final, Malformed
from rollout.tools import tools_for
from rollout.tools.browser import Click, Fill, Upload
from rollout.tools.files import EditFile, ReadFile, WriteFile
from rollout.tools.shell import Shell, Sql
from sandbox.model import EnvironmentSpec, ExecResult, PageAction, PageDo, PageResult, ResourceSpec


class Files:
    """Acts as a session would, over a dictionary."""

    def __init__(self, **files: str) -> None:
        self.files = {f"/{name}": text.encode() for name, text in files.items()}
        self.result = ExecResult(exit_code=0, stdout=b"", stderr=b"")
        self.asked: tuple[list[str], bytes] = ([], b"")
        self.done: list[PageAction] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        self.asked = (list(argv), stdin)
        return self.result

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self.files[path] = data

    async def browse(self, action: PageAction) -> PageResult:
        self.done.append(action)
        return PageResult(text=action.line, ok=action.do is not PageDo.CLICK)


@pytest.mark.parametrize(
    ("result", "text", "ok"),
    [
        (ExecResult(exit_code=0, stdout=b"rows\n", stderr=b""), "rows", True),
        (ExecResult(exit_code=0, stdout=b"", stderr=b""), "(no output)", True),
        (ExecResult(exit_code=3, stdout=b"a", stderr=b"b\n"), "a\nb\n(exit code 3)", False),
        (ExecResult(exit_code=-9, stdout=b"", stderr=b"", timed_out=True), "(timed out)", False),
        (ExecResult(exit_code=0, stdout=b"\xff", stderr=b"", truncated=True), "\ufffd\n(output cut)", True),
    ],
)
async def test_a_commands_result_is_told_whole(result: ExecResult, text: str, ok: bool) -> None:
    session = Files()
    session.result = result
    seen = await Shell().act(session, {"command": "echo 'x'; ls"})

    assert (seen.text, seen.ok) == (text, ok)
    assert session.asked == (["/bin/sh", "-c", "echo 'x'; ls"], b"")


async def test_sql_goes_in_by_stdin_in_one_transaction() -> None:
    session = Files()
    await Sql().act(session, {"query": "select 1; \\! rm -rf /"})

    argv, stdin = session.asked
    assert stdin == b"select 1; \\! rm -rf /"
    assert {"-1", "ON_ERROR_STOP=1"} <= set(argv)


async def test_files_are_read_written_and_edited() -> None:
    session = Files(a="one two one")

    assert (await ReadFile().act(session, {"path": "/a"})).text == "one two one"
    assert not (await ReadFile().act(session, {"path": "/b"})).ok
    assert (await EditFile().act(session, {"path": "/a", "old": "two", "new": "2"})).ok
    assert session.files["/a"] == b"one 2 one"
    for old, times in (("one", 2), ("three", 0), ("", 0)):
        seen = await EditFile().act(session, {"path": "/a", "old": old, "new": "x"})
        assert (seen.ok, f"{times} times" in seen.text) == (False, True)
    assert (await WriteFile().act(session, {"path": "/b", "text": "é"})).ok
    assert session.files["/b"] == "é".encode()


async def test_what_is_done_on_a_page_goes_through_the_session() -> None:
    session = Files(note="four")

    assert (await Fill().act(session, {"selector": "#q", "text": "tea"})).text == "fill #q: tea"
    assert not (await Click().act(session, {"selector": "#go"})).ok
    assert (await Upload().act(session, {"selector": "#f", "path": "/note"})).ok
    assert not (await Upload().act(session, {"selector": "#f", "path": "/none"})).ok
    assert session.done[-1] == PageAction(do=PageDo.UPLOAD, at="#f", text="note", data=b"four")
    assert len(session.done) == 3


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        (("postgres",), {"sql", "shell"}),
        (("repo", "files"), {"read_file", "write_file", "edit_file", "shell"}),
        (("browser", "postgres"), {"sql", "goto", "look", "click", "fill", "select", "upload", "shell"}),
        ((), {"shell"}),
    ],
)
def test_tools_come_with_the_kinds_of_resources(kinds: tuple[str, ...], names: set[str]) -> None:
    resources = tuple(ResourceSpec(name=kind, kind=kind) for kind in kinds)
    tools = tools_for(EnvironmentSpec(name="e", version="1", digest="d", resources=resources))

    assert {tool.spec.name for tool in tools} == names
    assert all(set(tool.spec.required) == set(tool.spec.parameters["properties"]) for tool in tools)


@pytest.mark.parametrize("name", ["shop", "repo"])
def test_scripted_agents_of_every_kind_speak_the_tools_language(name: str) -> None:
    """Whatever a scripted agent says is a call that its environment's tools take, or malformed on purpose, or its last word."""
    from importlib import import_module

    environment = import_module(f"envs.{name}").environment()
    specs = [tool.spec for tool in tools_for(environment.spec)]
    script = play(environment, seed=3)
    kinds = {}
    for task in list(environment.tasks)[:3]:
        for member in range(len(KINDS)):
            kind = kind_of(task, member, 3)
            said = [ask(script, task, member, turn) for turn in range(4)]
            kinds[kind] = [type(parse(text, specs)) for text in said]

    assert set(kinds) == set(KINDS)
    assert kinds["solve"][0] is Calls
    assert kinds["solve"][-1] is Final
    assert kinds["loop"] == [Calls] * 4
    assert kinds["malformed"] == [Malformed] * 4
    assert kinds["malformed, then solve"][:2] == [Malformed, Calls]
    assert kinds["give up"] == [Calls, Final, Final, Final]


def ask(script: Any, task: str, member: int, turn: int) -> str:
    labels = {"task": task, "member": str(member), "turn": str(turn), "attempt": "0"}
    text: str = script(Request(ids=(1,), session="s", max_tokens=9, labels=labels), "").text
    return text
