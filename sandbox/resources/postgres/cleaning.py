"""Undoing in place, as a careful author would: sessions ended, prepared transactions rolled back, the database made anew from its
copy. What belongs to the whole server is brought back where a name says that it was not there before. Checks judge the result."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg import sql

from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, ResetFailed
from sandbox.ports import LiveResource
from sandbox.resources.postgres import access
from sandbox.resources.postgres.options import PostgresOptions

_OTHERS = "select pid from pg_stat_activity where backend_type in ('client backend', 'walsender') and pid <> pg_backend_pid()"
_END_OTHERS = f"select pg_terminate_backend(pid) from ({_OTHERS}) o"
_GONE_S = 5.0
_SETTINGS = """select unnest(s.setconfig) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
where s.setrole = 0 and d.datname = %s"""

_LISTS = ("search_path", "local_preload_libraries", "session_preload_libraries", "shared_preload_libraries", "temp_tablespaces")


def template_of(options: PostgresOptions) -> str:
    return f"{options.database}_template"


async def check_database(connection: psycopg.AsyncConnection[Any], options: PostgresOptions) -> None:
    """Raise EnvironmentInvalid when the seed took away what the agent needs."""
    here = await _scalar(connection, "select count(*) from pg_database where datname = %s and datallowconn", options.database)
    if not here:
        raise EnvironmentInvalid(f"the seed leaves no database {options.database!r} that accepts connections")
    role = await _scalar(connection, "select rolcanlogin from pg_roles where rolname = %s", options.role)
    if not role:
        raise EnvironmentInvalid(f"the seed leaves no role {options.role!r} that may log in")


async def keep_template(connection: psycopg.AsyncConnection[Any], options: PostgresOptions) -> None:
    """Copy the database to a template that accepts no connection."""
    await _copy(connection, options.database, template_of(options))
    name = sql.Identifier(template_of(options))
    await connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE true ALLOW_CONNECTIONS false").format(name))


async def end_sessions(connection: psycopg.AsyncConnection[Any]) -> None:
    """End every other client's session and wait until they are gone: their locks go with them."""
    await connection.execute(_END_OTHERS)

    async def gone() -> bool:
        return not await (await connection.execute(_OTHERS)).fetchall()

    if not await poll(gone, timeout=_GONE_S):
        raise ResetFailed(f"sessions of the server were still there {_GONE_S:g} s after they were told to end")


async def clean(live: LiveResource, options: PostgresOptions) -> None:
    """Undo in place; raise ResetFailed."""
    try:
        async with asyncio.timeout(120), access.superuser(live) as connection:
            await connection.execute("set statement_timeout = '100s'")
            template = template_of(options)
            if not await _scalar(connection, "select count(*) from pg_database where datname = %s", template):
                raise ResetFailed(f"resource {live.spec.name}: there is no database {template} to make it anew from (`template`)")
            await end_sessions(connection)
            await _roll_back_prepared(connection, live)
            await _drop_slots(connection)
            await connection.execute("ALTER SYSTEM RESET ALL")
            await connection.execute("select pg_reload_conf()")
            keep = ["postgres", "template0", "template1", template]
            rows = await connection.execute("select datname from pg_database where datname <> all(%s)", [keep])
            for (name,) in await rows.fetchall():
                identifier = sql.Identifier(name)
                await connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(identifier))
                await connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))
            await _copy(connection, template, options.database)
    except (psycopg.Error, TimeoutError) as error:
        raise ResetFailed(f"resource {live.spec.name}: {str(error).strip() or 'not clean within 120 s'}") from error


async def _copy(connection: psycopg.AsyncConnection[Any], source: str, target: str) -> None:
    """Copy a database with its owner, connection limit and settings, which CREATE DATABASE ... TEMPLATE leaves out."""
    row = await (
        await connection.execute(
            "select r.rolname, d.datconnlimit from pg_database d join pg_roles r on r.oid = d.datdba where datname = %s", [source]
        )
    ).fetchone()
    if row is None:
        raise ResetFailed(f"there is no database {source!r} to copy")
    strategy = sql.SQL("STRATEGY FILE_COPY") if connection.info.server_version >= 150_000 else sql.SQL("")
    old, new = sql.Identifier(source), sql.Identifier(target)
    await connection.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {} CONNECTION LIMIT {} {}").format(
            new, old, sql.Identifier(row[0]), sql.Literal(row[1]), strategy
        )
    )
    for setting in await settings_of(connection, source):
        await connection.execute(sql.SQL("ALTER DATABASE {} SET {}").format(new, setting))


async def settings_of(connection: psycopg.AsyncConnection[Any], *names: str, query: str = _SETTINGS) -> list[sql.Composed]:
    """Return what ALTER ... SET was told of a database (or what `query` finds), to be said once more."""
    found = []
    for (setting,) in await (await connection.execute(query.encode(), names)).fetchall():
        name, _, value = str(setting).partition("=")
        # The server stores these as quoted lists, which must not be quoted once more.
        written = sql.SQL(value) if name in _LISTS else sql.Literal(value)
        found.append(sql.SQL("{} = {}").format(sql.SQL(name), written))
    return found


async def _roll_back_prepared(connection: psycopg.AsyncConnection[Any], live: LiveResource) -> None:
    """Each from the database in which it was prepared."""
    rows = await (await connection.execute("select gid, database from pg_prepared_xacts order by database")).fetchall()
    for gid, database in rows:
        async with access.superuser(live, database) as there:
            await there.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


async def _drop_slots(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")


async def _scalar(connection: psycopg.AsyncConnection[Any], query: str, *values: object) -> Any:
    row = await (await connection.execute(query.encode(), values)).fetchone()
    return row[0] if row else None
