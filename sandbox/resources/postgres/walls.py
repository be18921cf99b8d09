"""Trying the walls between parts of a shared server: marks that the holder of one leaves, looked for as the holder of another."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sandbox.errors import InstanceLost
from sandbox.model import Isolation
from sandbox.ports import LiveResource, Part
from sandbox.resources.postgres.options import PostgresOptions

_CONNECT_S = 10
# What a holder can name without any right to it. Large objects are read by number, which anybody can guess.
_VISIBLE = {
    "table": "select 1 from information_schema.tables where table_name = %(mark)s",
    "role": "select 1 where pg_has_role(current_user, %(writer)s, 'member')",
    "database": "select 1 from pg_database where datname = %(writer)s and has_database_privilege(datname, 'connect')",
    "schema": "select 1 from pg_namespace where nspname = %(writer)s and has_schema_privilege(nspname, 'usage, create')",
}


async def try_walls(live: LiveResource, options: PostgresOptions, writer: Part, reader: Part) -> Sequence[str]:
    """Return what of the writer's marks the reader saw. The marks are taken away again."""
    mark = f"autoclave_{secrets.token_hex(6)}"
    seen = []
    async with await _login(live, options, writer, writer) as left:
        await left.execute(sql.SQL("create table {0} as select {1}::text as mark").format(sql.Identifier(mark), sql.Literal(mark)))
        number = await _scalar(left, "select lo_from_bytea(0, %(mark)s::text::bytea)", {"mark": mark})
        try:
            async with await _login(live, options, reader, reader) as looking:
                seen = await _look(looking, mark, writer, number)
            if await _can_come_in(live, options, writer, reader):
                seen.append("session in its database")
        finally:
            await left.execute("select lo_unlink(%s)", [number])
            await left.execute(sql.SQL("drop table {}").format(sql.Identifier(mark)))
    return seen


async def _look(looking: psycopg.AsyncConnection[Any], mark: str, writer: Part, number: int) -> list[str]:
    values = {"mark": mark, "writer": writer.name}
    seen = [what for what, query in _VISIBLE.items() if await _scalar(looking, query, values) is not None]
    try:
        if await _scalar(looking, "select lo_get(%(number)s)", {"number": number}) == mark.encode():
            seen.append("large object")
    except psycopg.Error:
        pass  # there is none of that number, or it may not be read
    if writer.isolation is Isolation.SCHEMA:
        try:
            await looking.execute(sql.SQL("select * from {}").format(sql.Identifier(writer.name, mark)))
            seen.append("rows")
        except psycopg.Error:
            pass
    return seen


async def _can_come_in(live: LiveResource, options: PostgresOptions, writer: Part, reader: Part) -> bool:
    """True where the reader's own password opens the writer's database."""
    if writer.isolation is not Isolation.DATABASE:
        return False
    try:
        async with await _login(live, options, reader, writer):
            return True
    except InstanceLost:
        return False


async def _login(live: LiveResource, options: PostgresOptions, user: Part, where: Part) -> psycopg.AsyncConnection[Any]:
    database = where.name if where.isolation is Isolation.DATABASE else options.database
    address = make_conninfo(host=str(live.socket_dir), user=user.name, dbname=database)
    try:
        return await psycopg.AsyncConnection.connect(
            address, password=user.secret, autocommit=True, connect_timeout=_CONNECT_S, application_name="autoclave"
        )
    except psycopg.OperationalError as error:
        raise InstanceLost(f"resource {live.spec.name}: {user.name} cannot log in to {database}: {str(error).strip()}") from error


async def _scalar(connection: psycopg.AsyncConnection[Any], query: str, values: dict[str, Any]) -> Any:
    row = await (await connection.execute(query.encode(), values)).fetchone()
    return row[0] if row else None
