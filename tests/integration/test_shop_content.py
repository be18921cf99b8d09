"""The shop on a real PostgreSQL: builds are equal, and every task's check tells right from wrong."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from envs.scratch import binaries, dump
from envs.scratch import server as scratch_server
from envs.shop import scratch
from envs.shop.generate import HERE, SEED, draft, render

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def _read(name: str) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with scratch_server() as conninfo:
        yield conninfo


def _state(conninfo: str) -> tuple[bytes, dict[str, Any]]:
    """Return the dump and the order in which each table's rows lie."""
    order = "select md5(string_agg(ctid::text || md5(t::text), '' order by ctid)) from {} t"
    tables = "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname in ('shop', 'work') order by 1"
    with psycopg.connect(conninfo) as connection:
        names = [row[0] for row in connection.execute(tables.encode())]
        return dump(conninfo), {name: connection.execute(order.format(name).encode()).fetchone() for name in names}


@pytest.fixture(scope="module")
def built(server: str) -> tuple[str, tuple[bytes, dict[str, Any]]]:
    """The shop and its state before any test ran: rolled-back work still moves sequences."""
    conninfo = scratch.seed(server, "shop")
    return conninfo, _state(conninfo)


@pytest.fixture(scope="module")
def shop(built: tuple[str, Any]) -> str:
    return built[0]


def _failing(connection: psycopg.Connection[Any], queries: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the names of the claims that do not hold, with the settings that the scorer pins."""
    connection.execute("set local search_path = pg_catalog")
    for claim in queries:
        if connection.execute(claim["query"].encode()).fetchall() != [(True,)]:
            yield claim["name"]


def test_two_builds_from_the_seed_are_equal(server: str, built: tuple[str, tuple[bytes, dict[str, Any]]]) -> None:
    text, rows = _state(scratch.seed(server, "second"))
    assert len(rows) > 25
    assert rows == built[1][1]
    assert text == built[1][0]


def test_seeding_makes_about_twenty_megabytes(shop: str) -> None:
    with psycopg.connect(shop) as connection:
        (size,) = connection.execute("select pg_database_size(current_database())").fetchone() or (0,)
    assert 15_000_000 < size < 30_000_000


def test_the_tasks_are_what_their_seed_makes(shop: str) -> None:
    tasks, solutions = render(draft(shop, SEED), SEED)
    assert tasks == (HERE / "tasks.jsonl").read_text("utf-8")
    assert solutions == (HERE / "solutions.jsonl").read_text("utf-8")


def test_every_check_refuses_the_start_accepts_the_solution_and_refuses_the_mistake(shop: str) -> None:
    tasks, solutions = _read("tasks.jsonl"), _read("solutions.jsonl")
    assert set(tasks) == set(solutions)
    faults: list[str] = []
    with psycopg.connect(shop) as connection:

        def after(statements: Sequence[str], queries: Sequence[Mapping[str, str]], *, first_only: bool) -> list[str]:
            connection.execute("set local role agent")
            connection.execute("set local search_path = shop, work, reporting")
            for statement in statements:
                connection.execute(statement.encode())
            connection.execute("reset role")
            failing = _failing(connection, queries)
            found = [name for name in (next(failing, None),) if name] if first_only else list(failing)
            connection.rollback()
            return found

        for key, task in tasks.items():
            queries = task["success"]["queries"]
            if not after((), queries, first_only=True):
                faults.append(f"{key}: holds before anything was done")
            try:
                faults += [
                    f"{key}: after the solution: {name}" for name in after(solutions[key]["solution"], queries, first_only=False)
                ]
                if not after(solutions[key]["wrong"], queries, first_only=True):
                    faults.append(f"{key}: holds after the mistake {solutions[key]['wrong']}")
            except psycopg.Error as error:
                connection.rollback()
                faults.append(f"{key}: {error}")
    assert not faults, "\n".join(faults)


@pytest.fixture
def spoiled() -> Iterator[str]:
    """A server of its own for what changes more than a database."""
    with scratch_server() as other:
        yield scratch.seed(other, "shop")


def _actions() -> list[dict[str, Any]]:
    actions: list[dict[str, Any]] = tomllib.loads((HERE / "environment.toml").read_text("utf-8"))["destructive"]
    return actions


def test_every_destructive_statement_runs_as_the_role_that_it_names(spoiled: str) -> None:
    done = 0
    for action in _actions():
        if "sql" not in action:
            continue
        with psycopg.connect(spoiled, user=action["role"], autocommit=True) as connection:
            for statement in action["sql"]:
                try:
                    connection.execute(statement.encode())
                except psycopg.Error as error:
                    pytest.fail(f"{action['name']}: {error}")
        done += 1
    assert done >= 25


def test_the_hand_written_reset_brings_the_rows_back_and_little_else(spoiled: str) -> None:
    rows = """select string_agg(n || ' ' || x, E'\n' order by n) from (values {}) v(n, x)"""
    with psycopg.connect(spoiled, autocommit=True) as connection:
        names = [
            row[0]
            for row in connection.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname in ('shop', 'work') order by 1"
            )
        ]
        one = "('{0}', (select count(*) || '/' || coalesce(sum(hashtextextended(record_out(t)::text, 0)), 0) from {0} t))"
        query = rows.format(", ".join(one.format(n) for n in names)).encode()
        golden = connection.execute(query).fetchone()
        for statement in (
            "delete from shop.ticket_messages",
            "update shop.customers set tier = 'gold'",
            "create table work.left_behind (a int)",
            "alter role agent set work_mem = '64kB'",
        ):
            connection.execute(statement.encode())
        assert connection.execute(query).fetchone() != golden
        environ = {
            **os.environ,
            "PATH": f"{binaries()}:/usr/bin:/bin",
            "PGHOST": connection.info.host,
            "PGDATABASE": "shop",
        }
        script = (HERE / "hooks" / "reset.sh").read_text("utf-8").replace("/opt/shop", str(HERE))
        subprocess.run(["/bin/sh", "-c", script], env=environ, check=True, timeout=60)
        assert connection.execute(query).fetchone() == golden
        assert connection.execute("select to_regclass('work.left_behind') is not null").fetchone() == (True,)
        settings = connection.execute(
            "select count(*) from pg_db_role_setting where array_to_string(setconfig, ' ') like '%work_mem%'"
        )
        assert settings.fetchone() == (1,)
