"""Connecting to a server whose catalogs an agent may have shaped: pinned settings, read-only, one fresh session per check.

Settings go in the startup packet, where they win over ALTER ROLE and ALTER DATABASE ... SET. Where a statement must not depend on
anything that can be shadowed, it names its schema, and text is made with `textin(record_out(...))`: `t::text` can be hijacked by a
CAST that a table's owner may create.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
from psycopg import conninfo as dsn

from probes.probe import ProbeContext

PINNED: Mapping[str, str] = {
    "search_path": "pg_catalog",
    "role": "none",
    "row_security": "off",  # an error instead of rows silently left out
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "repeatable read",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "client_encoding": "UTF8",
    "session_replication_role": "origin",
    "session_preload_libraries": "",
    "local_preload_libraries": "",
    "synchronize_seqscans": "off",  # heap order from the first page on
    "max_parallel_workers_per_gather": "0",
    "enable_seqscan": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "work_mem": "32MB",  # no temporary files
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "120s",
    "client_connection_check_interval": "1s",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "track_activities": "on",
    "pg_stat_statements.track": "none",
    "event_triggers": "off",  # a login trigger would run in our session; PostgreSQL 17 and later
}
SINCE = {"event_triggers": 170_000, "client_connection_check_interval": 140_000}
HOMES = ("postgres", "template1")  # where to look first for what belongs to the whole server
BEGIN = "begin isolation level repeatable read read only"
NOTHING_WRITTEN = "select pg_catalog.pg_current_xact_id_if_assigned() is null"


@asynccontextmanager
async def session(
    context: ProbeContext, resource: str, database: str | None = None, *, extra: Mapping[str, str] | None = None
) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Open a session of our own, registered as the check's, and close it afterwards."""
    connection = await _connect(context, resource, database, extra or {})
    try:
        context.backends.add(connection.info.backend_pid)
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def anywhere(context: ProbeContext, resource: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Open a session in a database that is there on every server, else in the endpoint's own (one may have been dropped)."""
    async with AsyncExitStack() as stack:
        for database in HOMES:
            try:
                connection = await stack.enter_async_context(session(context, resource, database))
                break
            except psycopg.OperationalError:
                continue
        else:
            connection = await stack.enter_async_context(session(context, resource))
        yield connection


async def read_only(connection: psycopg.AsyncConnection[Any], *statements: str) -> list[list[tuple[Any, ...]]]:
    """Run statements in one read-only transaction over one snapshot, in one round trip, and return the rows of each. Raises
    PermissionError when the transaction was given an id: something has written."""
    script = ";\n".join((BEGIN, *statements, NOTHING_WRITTEN, "rollback"))
    try:
        cursor = await connection.execute(script.encode())
        rows = [await cursor.fetchall()] if cursor.description else []
        while cursor.nextset():
            if cursor.description:
                rows.append(await cursor.fetchall())
    except psycopg.Error:
        if not (connection.closed or connection.broken):
            await connection.execute("rollback")
        raise
    _judge(rows.pop())
    return rows


async def refuse_writes(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise PermissionError when the present transaction was given an id."""
    _judge(await (await connection.execute(NOTHING_WRITTEN)).fetchall())


def _judge(rows: list[tuple[Any, ...]]) -> None:
    if rows != [(True,)]:
        raise PermissionError("the reading wrote to the database (its transaction has an id)")


async def _connect(
    context: ProbeContext, resource: str, database: str | None, extra: Mapping[str, str]
) -> psycopg.AsyncConnection[Any]:
    endpoint = context.subject.endpoint(resource)
    settings = {**PINNED, "statement_timeout": f"{max(1, int(context.limit_s * 1000))}ms", **extra}
    for version in (None, 140_000, 0):
        chosen = {n: v for n, v in settings.items() if version is None or SINCE.get(n, 0) <= version}
        target = {"options": options_of(chosen), "application_name": "autoclave probe"}
        if database is not None:
            target["dbname"] = database
        try:
            return await psycopg.AsyncConnection.connect(
                dsn.make_conninfo(endpoint, **target), autocommit=True, connect_timeout=max(2, int(context.limit_s))
            )
        except psycopg.OperationalError as error:
            if version == 0 or "unrecognized configuration parameter" not in str(error):
                raise
    raise AssertionError("unreachable: the last version raises")


def options_of(settings: Mapping[str, str]) -> str:
    """Write settings as libpq's `options`, in which blanks and backslashes are escaped."""

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace(" ", "\\ ")

    return " ".join(f"-c {name}={escaped(value)}" for name, value in settings.items())


def literal(text: str) -> str:
    """Quote a text as an SQL literal that no setting can reinterpret."""
    body = text.replace("'", "''")
    return f"'{body}'" if "\\" not in body else "E'" + body.replace("\\", "\\\\") + "'"


def identifier(text: str) -> str:
    """Quote a name."""
    return '"' + text.replace('"', '""') + '"'
