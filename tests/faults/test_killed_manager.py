"""kill -9 of the manager at the ledger's boundaries: one holder (P9), nothing lost and nothing unverified ready (P10)."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.ledger.writer import BOUNDARIES
from sandbox.settings import Settings

MANAGER = Path(__file__).with_name("manager.py")
ENVIRONMENT = """
name = "small"
version = "1"

[reset]
method = "restore"
hook = ["sh", "-c", "exit 0"]

[check]
deep_every = 4

[resources.box]
kind = "files"
files = { "a.txt" = "one", "b.txt" = "two" }
"""
# Each boundary at its first passing, and the busy ones again later, when others are under way. Those of shared instances have tests
# of their own.
FIRST = [(boundary, 1) for boundary in BOUNDARIES if "instance" not in boundary]
LATER = [
    (f"{operation}:{side}", nth)
    for operation in ("transition", "record_check", "end_reset", "lease")
    for side in ("before", "after")
    for nth in (4, 7)
]
POINTS = FIRST + LATER
SAMPLE = [
    ("create_namespace:after", 1),
    ("lease:after", 1),
    ("end_lease:before", 1),
    ("begin_reset:after", 1),
    ("end_reset:before", 4),
    ("record_check:before", 4),
    ("record_check:after", 4),
    ("ship:after", 1),
    ("fork_check:after", 1),
    ("abandon:before", 1),
]

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


def describe(settings: Settings) -> str:
    users = {"agent": settings.users.agent, "server": settings.users.server}
    return json.dumps(
        {
            "home": str(settings.home),
            "store": str(settings.store),
            "scratch": str(settings.scratch),
            "run": str(settings.run),
            "users": users,
        }
    )


def manage(settings: Settings, directory: Path, boundary: str, nth: int) -> subprocess.CompletedProcess[str]:
    (directory / "settings.json").write_text(describe(settings))
    environment = directory / "small"
    environment.mkdir(exist_ok=True)
    (environment / "environment.toml").write_text(ENVIRONMENT)
    argv = [
        sys.executable,
        str(MANAGER),
        str(directory / "settings.json"),
        str(environment),
        boundary,
        str(nth),
        str(directory / "journal"),
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)


def journal(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "journal").read_text().splitlines()]


def rows(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{settings.ledger}?mode=ro", uri=True) as connection:
        return connection.execute(query).fetchall()


def start_checks(settings: Settings) -> list[tuple[Any, ...]]:
    """What vouched for the state that each lease was given, in the order of granting: its check's status, and whether that check
    read this very namespace in this generation, after every lease before this one and before this one was granted."""
    return rows(
        settings,
        "select l.trajectory, c.status, c.namespace = l.namespace, c.generation = l.generation, c.sequence = l.sequence - 1,"
        " c.at <= l.granted from leases l left join checks c on c.id = l.start_check order by l.rowid",
    )


def nothing_unverified_was_given(given: list[tuple[Any, ...]], before: int) -> None:
    """P10: after the restart, what became ready was checked by then. `before`: how many leases the killed manager had granted."""
    assert len(given) > before, "the restarted manager granted leases"
    wrong = [row for row in given if row[1:] != ("clean", 1, 1, 1, 1)]
    assert wrong == [], "P10: a namespace was leased whose state no clean check of it vouched for"


def promises_hold(settings: Settings, acknowledged: list[dict[str, Any]]) -> None:
    """P9 and P10 as they stand in the ledger after a restart that ran to its end."""
    overlapping = rows(
        settings,
        "select a.id, b.id from leases a join leases b on a.namespace = b.namespace and a.sequence < b.sequence"
        " where a.ended is null or a.ended > b.granted",
    )
    assert overlapping == [], "P9: one namespace, two holders"
    assert rows(settings, "select id from leases where ended is null") == [], "every lease has ended"
    assert rows(settings, "select id, state from namespaces where state not in ('retired')") == [], (
        "nothing stayed behind in service"
    )
    states = dict(rows(settings, "select trajectory, state from leases"))
    for line in acknowledged:
        if line["what"] == "leased":
            assert line["trajectory"] in states, "P10: an acknowledged lease was lost"
            assert states[line["trajectory"]] != "pending", f"{line['trajectory']} was never judged"
        if line["what"] == "judged":
            assert all(states[t] in ("cleared", "quarantined") for t in line["cleared"]), "P10: a clearance was lost"
            assert all(states[t] in ("quarantined", "released") for t in line["quarantined"]), "P10: a quarantine was lost"
        if line["what"] == "shipped":
            held = {t for (t,) in rows(settings, f"select trajectory from batch_members where batch = '{line['batch']}'")}
            assert held == set(line["trajectories"]), "P10: a batch was lost"


def kill_and_restart(settings: Settings, directory: Path, boundary: str, nth: int) -> bool:
    """Return whether the boundary was reached."""
    if boundary.startswith("abandon"):  # comes while a former run is settled: one that was killed with a lease open
        assert manage(settings, directory, "lease:after", 4).returncode == -signal.SIGKILL
    killed = manage(settings, directory, boundary, nth)
    reached = killed.returncode == -signal.SIGKILL
    assert reached or killed.returncode == 0, killed.stderr[-3000:]
    before = len(start_checks(settings))
    again = manage(settings, directory, "never", 1)
    assert again.returncode == 0, again.stderr[-3000:]
    acknowledged = journal(directory)
    assert acknowledged[-1]["what"] == "done", "the restarted manager did its work"
    promises_hold(settings, acknowledged)
    nothing_unverified_was_given(start_checks(settings), before)
    return reached


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("boundary", "nth"), SAMPLE)
def test_restart_keeps_the_promises(settings: Settings, passable_dir: Path, nothing_left: None, boundary: str, nth: int) -> None:
    assert kill_and_restart(settings, passable_dir, boundary, nth), f"{boundary} was not reached {nth} times: choose another point"


@pytest.mark.acceptance
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("boundary", "nth"), POINTS)
def test_every_boundary(settings: Settings, passable_dir: Path, nothing_left: None, boundary: str, nth: int) -> None:
    assert kill_and_restart(settings, passable_dir, boundary, nth), f"{boundary} was not reached {nth} times"
