"""One namespace's part of a server that several share: a role of its own, and a database or a schema that is made anew from golden.

The golden database's objects belong to the agent's role, which nobody logs in as. The role of a part inherits its rights without
being able to become it, and reaches its own database only: pg_hba.conf lets a member of the agent's role into the database of its
own name, with a password that changes with every generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import sql

from sandbox.aio import poll
from sandbox.errors import InstanceLost, ResetFailed
from sandbox.model import Isolation
from sandbox.ports import LiveResource, Part
from sandbox.resources.postgres import access, schemas
from sandbox.resources.postgres.cleaning import settings_of
from sandbox.resources.postgres.configuration import SESSIONS
from sandbox.resources.postgres.options import SUPERUSER, PostgresOptions

TEMPORARY = "1GB"  # files of one session's sorts and hashes; only a superuser can change it
_LIMIT_S = 120
_GONE_S = 5.0
_THEIRS = "select pid from pg_stat_activity where pid <> pg_backend_pid() and (usename = %(name)s or datname = %(name)s)"
_END = f"select pg_terminate_backend(pid) from ({_THEIRS}) o"


async def make(live: LiveResource, options: PostgresOptions, part: Part) -> None:
    """Make the part anew; raise ResetFailed."""
    async with _working(live, "made") as connection:
        await _remove(connection, live, options, part)
        name = sql.Identifier(part.name)
        await connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN INHERIT CONNECTION LIMIT {} PASSWORD {}").format(
                name, sql.Literal(SESSIONS), sql.Literal(access.verifier(part.secret))
            )
        )
        await connection.execute(sql.SQL("ALTER ROLE {} SET temp_file_limit = {}").format(name, sql.Literal(TEMPORARY)))
        if part.isolation is Isolation.SCHEMA:
            await schemas.make(live, options, part)
            return
        # It may do what the agent's role may, and not become it: that role is everybody's.
        await connection.execute(sql.SQL("GRANT {} TO {} WITH INHERIT TRUE, SET FALSE").format(sql.Identifier(options.role), name))
        await _set_for_role(connection, options, part)
        await _copy_database(connection, options, part)


async def close_golden(connection: psycopg.AsyncConnection[Any], options: PostgresOptions, isolation: Isolation) -> None:
    """Leave nothing of golden that a holder could own, log in as, or change: databases of parts are copied from it."""
    role, database = sql.Identifier(options.role), sql.Identifier(options.database)
    await connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(role))
    await connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, sql.Identifier(SUPERUSER)))
    if isolation is Isolation.DATABASE:
        await connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE true ALLOW_CONNECTIONS false").format(database))


async def drop(live: LiveResource, options: PostgresOptions, part: Part) -> None:
    """Remove the part; raise ResetFailed."""
    async with _working(live, "removed") as connection:
        await _remove(connection, live, options, part)


async def fence(live: LiveResource, part: Part) -> None:
    """End its sessions, and let nobody begin one."""
    async with _working(live, "fenced off") as connection:
        await _fence(connection, part)


async def disconnect(live: LiveResource, part: Part) -> None:
    async with _working(live, "disconnected") as connection:
        await _end_sessions(connection, part)


_DATABASE_SIZE = "select pg_database_size(d.oid) from pg_database d where d.datname = %s"
_SCHEMA_SIZE = """select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8 from pg_class c join pg_roles r on r.oid = c.relowner
where r.rolname = %s and c.relkind in ('r', 'm')"""


async def size(live: LiveResource, options: PostgresOptions, part: Part) -> int:
    """Return the bytes of its database, or of its role's tables."""
    own = part.isolation is Isolation.DATABASE
    try:
        async with access.superuser(live, "postgres" if own else options.database) as connection:
            row = await (await connection.execute(_DATABASE_SIZE if own else _SCHEMA_SIZE, [part.name])).fetchone()
    except psycopg.Error as error:
        raise InstanceLost(f"resource {live.spec.name}: the size of a part is not known: {str(error).strip()}") from error
    return int(row[0]) if row else 0


@asynccontextmanager
async def _working(live: LiveResource, what: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Hold a superuser's session; an error of the server's is a failed reset."""
    try:
        async with asyncio.timeout(_LIMIT_S), access.superuser(live) as connection:
            await connection.execute(f"set statement_timeout = '{_LIMIT_S - 20}s'".encode())
            yield connection
    except (psycopg.Error, TimeoutError) as error:
        said = str(error).strip() or f"not within {_LIMIT_S} s"
        raise ResetFailed(f"resource {live.spec.name}: a part could not be {what}: {said}") from error


async def _remove(connection: psycopg.AsyncConnection[Any], live: LiveResource, options: PostgresOptions, part: Part) -> None:
    await _fence(connection, part)
    if part.isolation is Isolation.SCHEMA:
        await schemas.remove(live, options, part)
    else:
        await _remove_database(connection, live, part)
    await connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(part.name)))


async def _fence(connection: psycopg.AsyncConnection[Any], part: Part) -> None:
    if await (await connection.execute("select 1 from pg_roles where rolname = %s", [part.name])).fetchone():
        await connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(part.name)))
    await _end_sessions(connection, part)


async def _remove_database(connection: psycopg.AsyncConnection[Any], live: LiveResource, part: Part) -> None:
    prepared = "select gid from pg_prepared_xacts where database = %s"
    rows = await (await connection.execute(prepared, [part.name])).fetchall()
    if rows:
        async with access.superuser(live, part.name) as there:
            for (gid,) in rows:
                await there.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        await _end_sessions(connection, part)
    await connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(part.name)))


async def _copy_database(connection: psycopg.AsyncConnection[Any], options: PostgresOptions, part: Part) -> None:
    name = sql.Identifier(part.name)
    owner = name if options.owner else sql.Identifier(SUPERUSER)
    await connection.execute(
        sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {} STRATEGY FILE_COPY CONNECTION LIMIT {}").format(
            name, sql.Identifier(options.database), owner, sql.Literal(SESSIONS)
        )
    )
    await connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
    await connection.execute(sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {0} TO {0}").format(name))
    for setting in await settings_of(connection, options.database):
        await connection.execute(sql.SQL("ALTER DATABASE {} SET {}").format(name, setting))


_ROLE_SETTINGS = """select unnest(s.setconfig) from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
left join pg_database d on d.oid = s.setdatabase where r.rolname = %s and (s.setdatabase = 0 or d.datname = %s)
order by s.setdatabase desc"""


async def _set_for_role(connection: psycopg.AsyncConnection[Any], options: PostgresOptions, part: Part) -> None:
    """Settings of the agent's role are those of who logs in: they are not inherited."""
    for setting in await settings_of(connection, options.role, options.database, query=_ROLE_SETTINGS):
        await connection.execute(sql.SQL("ALTER ROLE {} SET {}").format(sql.Identifier(part.name), setting))


async def _end_sessions(connection: psycopg.AsyncConnection[Any], part: Part) -> None:
    await connection.execute(_END, {"name": part.name})

    async def gone() -> bool:
        return not await (await connection.execute(_THEIRS, {"name": part.name})).fetchall()

    if not await poll(gone, timeout=_GONE_S):
        raise ResetFailed(f"sessions of {part.name} were still there {_GONE_S:g} s after they were told to end")
