"""Commands that are interrupted, killed, or called beside each other: nothing is left, and each says one thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces

ENVIRONMENT = """
name = "box"
version = "1"

[reset]
method = "restore"

[resources.box]
kind = "files"
files = { "a.txt" = "one" }
target = "/workspace"
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def box(passable_dir: Path) -> Path:
    directory = passable_dir / "box"
    directory.mkdir()
    (directory / "environment.toml").write_text(ENVIRONMENT)
    return directory


@pytest.fixture
def autoclave(settings: Settings, box: Path, passable_dir: Path, nothing_left: None) -> Iterator[Start]:
    """`autoclave("session", "box", ...)` starts a command in the settings' home; the environment `box` is there."""
    env = os.environ | {
        "AUTOCLAVE_HOME": str(settings.home),
        "AUTOCLAVE_STORE": str(settings.store),
        "AUTOCLAVE_SCRATCH": str(settings.scratch),
        "AUTOCLAVE_RUN": str(settings.run),
        "AUTOCLAVE_ENVIRONMENTS": str(box),
    }
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "sandbox.cli.main", *argv],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def agent_runs(settings: Settings) -> bool:
    """Return whether a sandbox over the settings' directories runs `sleep 71`."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cmdline").read_bytes() == b"sleep\x0071\x00":
                return str(settings.scratch) in (process / "mountinfo").read_text()
        except OSError:
            continue
    return False


def pool_listens(settings: Settings) -> bool:
    return (settings.run / "pool" / "pool.sock").exists()


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]], ids=str)
def test_an_interrupted_session_leaves_nothing(autoclave: Start, settings: Settings, signals: list[signal.Signals]) -> None:
    running = autoclave("session", "box", "--json", "--", "sleep", "71")
    until(lambda: agent_runs(settings), running)
    for number in signals:
        running.send_signal(number)
        time.sleep(0.05)

    code, out, err = ended(running)

    assert code == 130
    assert json.loads(out)["error"]["type"] == "Interrupted"
    assert "Traceback" not in err
    assert "Warning" not in err
    code, out, _ = ended(autoclave("audit", "--json"))
    assert code == 0, "the next command finds everything in order"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_an_interrupted_pool_drains_and_stdout_keeps_its_one_object(
    autoclave: Start, settings: Settings, number: signal.Signals
) -> None:
    pool = autoclave("pool", "up", "box", "--size", "1", "--json")
    until(lambda: pool_listens(settings), pool)
    code, out, _ = ended(autoclave("session", "box", "--json", "--", "cat", "/workspace/a.txt"))
    assert (code, json.loads(out)["stdout"]) == (0, "one")
    pool.send_signal(number)

    code, out, err = ended(pool)

    assert code == 130
    assert json.loads(out)["environments"] == ["box"]
    assert "Traceback" not in err


def test_of_two_commands_that_open_the_same_home_one_is_told_who_holds_it(autoclave: Start, settings: Settings) -> None:
    first = autoclave("session", "box", "--", "sleep", "71")
    until(lambda: agent_runs(settings), first)

    code, out, _ = ended(autoclave("session", "box", "--json", "--", "true"))

    assert code == 3
    assert f"in use by process {first.pid}" in json.loads(out)["error"]["message"]
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130


def test_after_a_killed_pool_every_command_works_at_once(autoclave: Start, settings: Settings) -> None:
    assert ended(autoclave("session", "box", "--", "true"))[0] == 0
    for command in (["audit", "--json"], ["session", "box", "--json", "--", "true"], ["gc", "--json"]):
        pool = autoclave("pool", "up", "box", "--size", "1")
        until(lambda: pool_listens(settings), pool)
        pool.kill()
        ended(pool)

        code, out, err = ended(autoclave(*command))

        assert code == 0, (command, out, err)
        assert "error" not in json.loads(out)


def test_an_environment_that_went_away_under_its_pool(autoclave: Start, settings: Settings, box: Path) -> None:
    pool = autoclave("pool", "up", "box", "--size", "1")
    until(lambda: pool_listens(settings), pool)
    box.rename(box.with_name("gone"))

    code, out, err = ended(autoclave("session", "box", "--json", "--", "cat", "/workspace/a.txt"))

    assert (code, json.loads(out)["clearance"]["state"]) == (0, "cleared"), err
    assert ended(autoclave("pool", "drain", "--json"))[0] == 0
    assert ended(pool)[0] == 0
    code, out, _ = ended(autoclave("gc", "--json"))
    assert (code, json.loads(out)["snapshots"]) == (0, []), "nothing is deleted for want of knowledge"
    assert json.loads(out)["kept"]
