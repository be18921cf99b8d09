"""Commands that end early, late, or with part of what they were asked: one JSON object, no traceback, the rest is done."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from envs import views
from envs.registry import Registry
from sandbox.cli import audit, pool
from sandbox.cli.running import run
from sandbox.errors import EnvironmentInvalid, LimitReached
from sandbox.settings import load

BOX = 'name = "{name}"\nversion = "1"\n[resources.box]\nkind = "files"\nfiles = {{ a = "1" }}\ntarget = "/workspace"\n'


def box(place: Path, name: str) -> Path:
    directory = place / name
    directory.mkdir()
    (directory / "environment.toml").write_text(BOX.format(name=name))
    return directory


@pytest.mark.parametrize("argv", [["doctor"], ["doctor", "--json"]])
def test_an_interruption_while_the_program_loads_is_worded(argv: list[str]) -> None:
    code = (
        "import sys, sandbox.cli.main as main\n"
        "def stopped(): raise KeyboardInterrupt\n"
        f"main.build, sys.argv = stopped, ['autoclave', *{argv!r}]\n"
        "main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    if "--json" in argv:
        assert json.loads(done.stdout)["error"]["type"] == "Interrupted"
    else:
        assert (done.stdout, done.stderr) == ("", "error: interrupted before anything was started\n")


def test_an_error_after_the_pool_was_up_is_not_a_second_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def closes_badly(*names: Any, **options: Any) -> AsyncIterator[Any]:
        async def status() -> Any:
            return {"environments": {}}

        yield SimpleNamespace(status=status)
        raise LimitReached("the disk that holds the ledger is full")

    @asynccontextmanager
    async def server(*parts: Any, **more: Any) -> AsyncIterator[Any]:
        async def at_once() -> None:
            return None

        yield SimpleNamespace(path=tmp_path / "socket", ended=SimpleNamespace(wait=at_once))

    monkeypatch.setattr("sandbox.wiring.open_pool", closes_badly)
    monkeypatch.setattr("sandbox.service.Server", server)
    assert pool.up("box", home=tmp_path, json=True) == LimitReached.exit_code
    out = capsys.readouterr()
    assert json.loads(out.out)["environments"] == ["box"]
    assert "the ledger is full" in out.err


def test_an_audit_leaves_out_what_cannot_be_opened_and_says_so(tmp_path: Path) -> None:
    registry = Registry(settings := load({}, home=tmp_path / "home"))
    for name in ("here", "gone"):
        registry.add(box(tmp_path, name))
    (tmp_path / "gone" / "environment.toml").unlink()
    found, problems = audit._opened(["gone", "here"], settings)
    assert [e.spec.name for e in found] == ["here"]
    assert [p.startswith("environment gone was not audited") for p in problems] == [True]
    with pytest.raises(EnvironmentInvalid):
        audit._opened(["gone"], settings)


def test_a_registered_directory_can_be_removed_also_when_it_is_gone(tmp_path: Path) -> None:
    registry = Registry(load({}, home=tmp_path / "home"))
    directory = box(tmp_path, "box")
    registry.add(directory)
    (directory / "environment.toml").unlink()
    directory.rmdir()
    assert registry.remove("box") == directory
    assert [entry.origin for entry in registry.entries() if entry.name == "box"] == []
    with pytest.raises(EnvironmentInvalid, match="no registered directory is called 'box'"):
        registry.remove("box")


def rendered(rows: Sequence[dict[str, Any]], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        for part in views.environments(rows):
            console.print(part)
    return captured.get().splitlines()


def test_the_list_breaks_no_word_at_80_columns() -> None:
    row = {
        "version": "1",
        "resources": ["postgres", "browser", "files"],
        "tasks": 240,
        "reset": "restore",
        "error": None,
        "score": None,
    }
    lines = rendered([row | {"name": "shop", "origin": "autoclave (envs.shop:environment)"}], 80)
    assert any("shop" in line and line.rstrip().endswith("autoclave") for line in lines), lines


def test_a_signal_while_the_loop_closes_is_taken_in_silence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loop's own handlers write to is closed before they are taken away."""
    close: Any = asyncio.SelectorEventLoop._close_self_pipe  # type: ignore[attr-defined]

    def closed_and_signalled(loop: asyncio.AbstractEventLoop) -> None:
        close(loop)
        os.kill(os.getpid(), signal.SIGINT)

    async def work() -> int:
        return 5

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "_close_self_pipe", closed_and_signalled)

    assert run(work()) == 5
    assert capfd.readouterr().err == ""
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
