"""What a draft of an image asks a PostgreSQL in it: whatever its databases and tables are called, and whatever lies in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from envs import scratch
from envs.discovery.servers import SERVERS
from probes.command import output_fields

pytestmark = pytest.mark.postgres
SERVER = SERVERS["postgres"]
ODD = 'it\'s a \\ "b"=c'
Answers = Callable[[str], dict[str, str]]


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with scratch.server() as address:
        yield address


@pytest.fixture
def database(conninfo: str) -> Iterator[psycopg.Connection]:
    """A database of this test, with one table."""
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute("create database work")
        try:
            with psycopg.connect(conninfo, dbname="work", autocommit=True) as connection:
                connection.execute("create table note (id serial primary key, t text); insert into note (t) values ('1'), ('2')")
                connection.execute("create sequence unused; create table plain as select 1 as a")
                yield connection
        finally:
            server.execute("drop database work with (force)")


@pytest.fixture
def told(conninfo: str) -> Answers:
    """What one of the commands says now, as fields."""
    environ = {
        "PATH": f"{scratch.binaries()}:{os.environ['PATH']}",
        "PGHOST": str(conninfo_to_dict(conninfo)["host"]),
        "LANG": "C.UTF-8",
    }

    def ask(name: str) -> dict[str, str]:
        done = subprocess.run(SERVER.inside[name], env=environ, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return output_fields(done.stdout, "pairs" if name in SERVER.pairs else "text")

    return ask


LEFT = {
    "a value in a table with a column that is called as the query calls its tables": (
        "rows",
        "truncate note; insert into note values (7, 'one'), (8, 'two')",
    ),
    "a sequence that begins elsewhere, of which nothing was taken": ("rows", "alter sequence unused restart with 100"),
    "a large object without a byte": ("rows", "select lo_create(0)"),
    "the owner of a large object": ("rows", "alter large object 4711 owner to note_owner"),
    "a setting of a database that every server has": ("server", "alter database postgres set work_mem = '64kB'"),
    "a setting of a role in it": ("server", "alter role note_owner in database postgres set work_mem = '64kB'"),
    "a right on it": ("server", "revoke connect on database postgres from public"),
    "a database that nobody may enter": ("server", "create database closed allow_connections false"),
    "a replication origin": ("server", "select pg_replication_origin_create('left')"),
    "a role": ("definitions", "create role left_behind login password 'x'"),
    "a function": ("definitions", "create function f() returns int language sql as 'select 1'"),
}
UNDONE = (
    "alter database postgres reset work_mem",
    "alter role note_owner in database postgres reset work_mem",
    "grant connect on database postgres to public",
    "drop database if exists closed",
    "select pg_replication_origin_drop(roname) from pg_replication_origin",
    "drop role if exists left_behind",
)


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_in_a_server_is_told(what: str, database: psycopg.Connection, told: Answers) -> None:
    database.execute("create role note_owner")
    database.execute("select lo_create(4711)")
    command, statement = LEFT[what]
    try:
        before = told(command)
        database.execute(statement.encode())
        assert told(command) != before
    finally:
        for undone in UNDONE:
            database.execute(undone.encode())
        database.execute("drop owned by note_owner cascade; drop role note_owner")


def test_sessions_of_its_own_are_none_of_the_servers(database: psycopg.Connection, told: Answers) -> None:
    """One that has just ended is still there for a moment."""
    alone = told("server")["value/sessions"]
    for _ in range(5):
        told("rows")
        assert told("server")["value/sessions"] == alone


def test_a_cast_of_a_tables_owner_is_neither_asked_nor_believed(database: psycopg.Connection, told: Answers) -> None:
    """It would run with the rights of a superuser, and say the same whatever the rows hold."""
    database.execute(
        "create table seen (a int); "
        "create function hides(plain) returns text language plpgsql as 'begin insert into seen values (1); return ''x''; end'; "
        "create cast (plain as text) with function hides(plain)"
    )
    before = told("rows")
    database.execute("truncate plain; insert into plain values (2)")

    assert told("rows")["value/work.public.plain"] != before["value/work.public.plain"]
    assert database.execute("select count(*) from seen").fetchone() == (0,)


def test_names_may_hold_anything_but_line_breaks(conninfo: str, database: psycopg.Connection, told: Answers) -> None:
    quoted = '"' + ODD.replace('"', '""') + '"'
    database.execute(f"create database {quoted}".encode())
    try:
        with psycopg.connect(conninfo, dbname=ODD, autocommit=True) as odd:
            odd.execute(f"create schema {quoted}; create table {quoted}.{quoted} as select 1 as {quoted}".encode())
            before = told("rows")
            odd.execute(f"update {quoted}.{quoted} set {quoted} = 2".encode())
        assert told("rows") != before
    finally:
        database.execute(f"drop database {quoted}".encode())


def test_a_database_of_another_encoding_is_told_whole(database: psycopg.Connection, told: Answers) -> None:
    database.execute("create database old encoding 'LATIN1' template template0 locale 'C'")
    try:
        with psycopg.connect(database.info.dsn, dbname="old", autocommit=True) as old:
            old.execute("create table a (b int); comment on table a is 'é'")
            before = told("definitions")
            old.execute("comment on table a is 'è'")
        assert told("definitions") != before
    finally:
        database.execute("drop database old with (force)")


def test_its_directory_is_told(told: Answers, conninfo: str) -> None:
    environ = {"PATH": f"{scratch.binaries()}:{os.environ['PATH']}", "PGHOST": str(conninfo_to_dict(conninfo)["host"])}
    said = subprocess.run(SERVER.directory, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
    assert Path(said.strip(), "PG_VERSION").exists()


def test_it_is_ready_once_it_answers(conninfo: str, tmp_path: Path) -> None:
    def code(place: str) -> int:
        environ = {"PATH": f"{scratch.binaries()}:{os.environ['PATH']}", "PGHOST": place}
        return subprocess.run(["sh", "-c", SERVER.ready], env=environ, capture_output=True, timeout=60, check=False).returncode

    assert code(str(conninfo_to_dict(conninfo)["host"])) == 0
    assert code(str(tmp_path)) == 2
