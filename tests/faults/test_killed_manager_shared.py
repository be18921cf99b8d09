"""A manager killed while namespaces share an instance: nothing of the instance is trusted after a restart (P9, P10)."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.settings import Settings

MANAGER = Path(__file__).with_name("manager.py")
ENVIRONMENT = """
name = "small"
version = "1"
isolation = "directory"
namespaces_per_instance = 2

[resources.box]
kind = "files"
files = { "a.txt" = "one", "b.txt" = "two" }
"""
POINTS = [
    ("create_namespace:after", 2),
    ("lease:after", 2),
    ("end_lease:after", 1),
    ("end_reset:before", 2),
    ("record_check:after", 4),
    ("record_instance_check:before", 2),
    ("record_instance_check:after", 2),
    ("record_instance_check:after", 3),  # it found the leak: the instance is about to be rebuilt
    ("begin_reset:after", 6),
]

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(900)]


def manage(settings: Settings, directory: Path, boundary: str, nth: int) -> subprocess.CompletedProcess[str]:
    users = {"agent": settings.users.agent, "server": settings.users.server}
    places = {name: str(getattr(settings, name)) for name in ("home", "store", "scratch", "run")}
    (directory / "settings.json").write_text(json.dumps({**places, "users": users}))
    environment = directory / "small"
    environment.mkdir(exist_ok=True)
    (environment / "environment.toml").write_text(ENVIRONMENT)
    named = (directory / "settings.json", environment, boundary, nth, directory / "journal")
    return subprocess.run([sys.executable, MANAGER, *map(str, named)], capture_output=True, text=True, timeout=400, check=False)


def rows(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{settings.ledger}?mode=ro", uri=True) as connection:
        return connection.execute(query).fetchall()


def start_checks(settings: Settings) -> list[tuple[Any, ...]]:
    """What vouched for the state that each lease was given: its check's status, and whether that check read this very namespace in
    this generation before the lease was granted."""
    return rows(
        settings,
        "select l.trajectory, c.status, c.namespace = l.namespace, c.generation = l.generation, c.at <= l.granted"
        " from leases l left join checks c on c.id = l.start_check order by l.rowid",
    )


def kill_and_restart(settings: Settings, directory: Path, boundary: str, nth: int) -> None:
    killed = manage(settings, directory, boundary, nth)
    assert killed.returncode == -signal.SIGKILL, f"{boundary} was not reached {nth} times: {killed.stderr[-3000:]}"
    before = len(start_checks(settings))
    again = manage(settings, directory, "never", 1)
    assert again.returncode == 0, again.stderr[-3000:]
    told = [json.loads(line) for line in (directory / "journal").read_text().splitlines()]
    assert told[-1]["what"] == "done"
    states = dict(rows(settings, "select trajectory, state from leases"))
    for line in told:
        if line["what"] == "leased":
            assert states.get(line["trajectory"], "pending") != "pending", f"{line['trajectory']} was lost, or never judged"
        if line["what"] == "judged":
            assert all(states[t] == "quarantined" for t in line["quarantined"]), "P10: a quarantine was lost"
            assert line["quarantined"], "the leak was not found"
    assert rows(settings, "select id from leases where ended is null") == []
    assert rows(settings, "select id, state from namespaces where state <> 'retired'") == []
    assert len(start_checks(settings)) > before, "the restarted manager granted leases"
    wrong = [row for row in start_checks(settings) if row[1:] != ("clean", 1, 1, 1)]
    assert wrong == [], "P10: a namespace was leased whose state no clean check of it vouched for"
    twice = rows(
        settings,
        "select a.id, b.id from leases a join leases b on a.namespace = b.namespace and a.sequence < b.sequence"
        " where a.ended is null or a.ended > b.granted",
    )
    assert twice == [], "P9: one namespace, two holders"


@pytest.mark.parametrize(("boundary", "nth"), [POINTS[1], POINTS[7]])
def test_restart_keeps_the_promises_of_shared_instances(
    settings: Settings, passable_dir: Path, nothing_left: None, boundary: str, nth: int
) -> None:
    kill_and_restart(settings, passable_dir, boundary, nth)


@pytest.mark.acceptance
@pytest.mark.parametrize(("boundary", "nth"), POINTS)
def test_every_point_of_shared_instances(
    settings: Settings, passable_dir: Path, nothing_left: None, boundary: str, nth: int
) -> None:
    kill_and_restart(settings, passable_dir, boundary, nth)
