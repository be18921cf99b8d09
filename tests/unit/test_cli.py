"""The command line from outside: help, JSON, exit codes, and errors that say what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = ["demo", "doctor", "env", "pool", "session", "audit", "why", "quarantine", "recall", "gc"]


def autoclave(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")} | {
        "AUTOCLAVE_HOME": str(home),
        "NO_COLOR": "1",
    }
    argv = (sys.executable, "-m", "sandbox.cli.main", *argv)
    return subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=60, check=False, stdin=subprocess.DEVNULL)


def test_help_names_every_command(tmp_path: Path) -> None:
    done = autoclave("--help", home=tmp_path)

    assert done.returncode == 0
    assert [c for c in COMMANDS if c not in done.stdout] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [*COMMANDS, "pool up", "pool status", "quarantine list", "quarantine release", "env check", "env new"]
)
def test_help_of_each_command_has_an_example(tmp_path: Path, command: str) -> None:
    done = autoclave(*command.split(), "--help", home=tmp_path)

    assert done.returncode == 0
    assert "Example" in done.stdout or command in ("env", "pool", "quarantine")


@pytest.mark.parametrize("option", [("--task", "refund-17"), ("--rebuild",), ("--yes",)])
def test_discovery_does_not_pretend_to_have_looked_at_a_tasks_state(tmp_path: Path, option: tuple[str, ...]) -> None:
    done = autoclave("env", "baseline", "shop", "--discover", *option, home=tmp_path)

    assert done.returncode == 2
    assert f"{option[0]} means nothing with --discover" in done.stderr


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from sandbox.cli.main import build; build()\n"
        "print([m for m in ('psycopg', 'jinja2', 'pydantic', 'sqlite3', 'envs.demo.story') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.strip() == "[]"


def test_version(tmp_path: Path) -> None:
    done = autoclave("--version", home=tmp_path)

    assert (done.returncode, done.stdout.strip()) == (0, "0.1.0")


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["nonsense"], 2, "nonsense"),
        (["audit", "--nonsense"], 2, "--nonsense"),
        (["audit"], 2, "nothing to audit"),
        (["audit", "shopp"], 2, "shop"),
        (["session", "shop"], 2, "no command given"),
        (["session", "shop", "--score", "--", "true"], 2, "--task"),
        (["env", "check", "shop", "--fail-under", "90"], 2, "--score"),
        (["env", "check", "shop", "--score", "--fail-under", "101"], 2, "from 0 to 100"),
        (["env", "check", "shop", "--score", "--fail-under", "most"], 2, "most"),
        (["why", "t-none"], 2, "no ledger"),
        (["quarantine", "list"], 2, "no ledger"),
        (["quarantine", "release", "t-1"], 2, "--by"),
        (["quarantine", "release", "--by", "a", "--reason", "b"], 2, "no trajectory named"),
        (["recall", "q-9"], 2, "no ledger"),
        (["pool", "status"], 3, "autoclave pool up"),
        (["pool", "drain"], 3, "autoclave pool up"),
    ],
)
def test_bad_use_is_refused_with_what_to_do(tmp_path: Path, argv: list[str], code: int, says: str) -> None:
    done = autoclave(*argv, home=tmp_path)

    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("argv", [["why", "t-none"], ["audit"], ["audit", "nowhere"], ["pool", "status"], ["recall"]])
def test_json_is_one_object_also_for_an_error(tmp_path: Path, argv: list[str]) -> None:
    done = autoclave(*argv, "--json", home=tmp_path)

    found = json.loads(done.stdout)
    assert set(found) == {"error"}
    assert found["error"]["message"]
    assert done.returncode in (2, 3)


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    home = tmp_path / "home"

    autoclave("quarantine", "list", home=home)
    autoclave("env", "list", home=home)

    assert not home.exists()


@pytest.mark.namespaces
@pytest.mark.postgres
def test_doctor_looks_at_everything(tmp_path: Path) -> None:
    done = autoclave("doctor", "--json", home=tmp_path)

    found = json.loads(done.stdout)
    names = {finding["name"] for finding in found["findings"]}
    assert {"linux", "python", "package sandbox", "bubblewrap", "postgres", "git", "storage copy", "disk", "home"} <= names
    assert found["ok"] is True, found
    assert done.returncode == 0


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    environ = os.environ | {"AUTOCLAVE_HOME": str(tmp_path), "AUTOCLAVE_PG_BIN": "/nowhere", "AUTOCLAVE_BWRAP": "/nowhere/bwrap"}
    argv = [sys.executable, "-m", "sandbox.cli.main", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=60, check=False)

    broken = [f for f in json.loads(done.stdout)["findings"] if not f["ok"] and f["needed"]]
    assert done.returncode == 3
    assert all(f["fix"] for f in broken)
    assert {"AUTOCLAVE_PG_BIN", "AUTOCLAVE_BWRAP"} <= {word.strip(",.") for f in broken for word in f["fix"].split()}


def test_what_is_rolled_is_a_name_or_the_place_as_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.cli.pool import named

    monkeypatch.chdir(tmp_path)
    assert [named(given) for given in ("shop", ".", "./desk", "desk/v2", "environment.toml")] == [
        "shop",
        *(str(tmp_path / place) for place in ("", "desk", "desk/v2", "environment.toml")),
    ]
