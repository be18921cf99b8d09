"""A schema for each namespace that shares a database, made anew from the golden schema's own text.

When the state is seeded, the golden schema is dumped into a file of the data directory, where nobody inside can write. To make a
part, that text is run in one transaction in which the part's schema and role bear the golden names; only then do they get their
own. So whatever pg_dump knows is there, and references by object follow the names. What refers to its schema by name inside a text
(the body of a function in a string) must do so through the search path.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from sandbox.aio import in_thread
from sandbox.binaries import PostgresBinaries
from sandbox.errors import ResetFailed
from sandbox.model import Isolation, Role
from sandbox.ports import LiveResource, Mount, Part, SharedSubject, Subject
from sandbox.resources.contents import succeeded
from sandbox.resources.postgres import access, statements
from sandbox.resources.postgres.cleaning import settings_of
from sandbox.resources.postgres.options import SUPERUSER, PostgresOptions

FILE = "autoclave.schema.sql"
GOLDEN = "public"
EXTENSIONS = "extensions"  # where the extensions of a shared database lie
_PARKED = "autoclave_parked"
_SOCKETS = "/run/server"
# What the dump says of the golden schema itself: it is made before the text runs.
_OF_SCHEMA = re.compile(rf"^(CREATE|ALTER|COMMENT ON|GRANT .* ON|REVOKE .* ON) SCHEMA {GOLDEN}\b", re.IGNORECASE | re.DOTALL)
_turns: weakref.WeakKeyDictionary[LiveResource, asyncio.Lock] = weakref.WeakKeyDictionary()


async def make_room(connection: psycopg.AsyncConnection[Any], options: PostgresOptions) -> None:
    """Give extensions a schema of their own, which seed files find as if it were the golden one."""
    database, extensions = sql.Identifier(options.database), sql.Identifier(EXTENSIONS)
    await connection.execute(sql.SQL("CREATE SCHEMA {}").format(extensions))
    await connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO PUBLIC").format(extensions))
    path = sql.SQL(", ").join(map(sql.Identifier, (GOLDEN, EXTENSIONS)))
    await connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = {}").format(database, path))


async def keep_golden(live: LiveResource, options: PostgresOptions, binaries: PostgresBinaries, target: str) -> None:
    """Dump the golden schema into the data directory, then empty it: those who share the database are to see nothing of it."""
    argv = (binaries.program("pg_dump"), "-h", _SOCKETS, "-U", SUPERUSER, "-d", options.database, "-n", GOLDEN)
    flags = ("--no-publications", "--no-subscriptions", "--no-tablespaces", "--no-password")
    mounts = (*binaries.binds, Mount(target=_SOCKETS, layers=(str(live.socket_dir),), readonly=True))
    env = {"PGPASSFILE": f"{target}/{access.PASSFILE}", "LC_ALL": "C", "TZ": "UTC"}
    text = succeeded(await live.run((*argv, *flags), role=Role.SERVER, binds=mounts, env=env), "dumping the golden schema")
    writing = ("/bin/sh", "-ec", 'umask 077; cat > "$1/$2"', "sh", target, FILE)
    succeeded(await live.run(writing, role=Role.SERVER, stdin=text), f"writing {FILE}")
    async with access.superuser(live, options.database) as connection:
        await connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(GOLDEN)))
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(GOLDEN)))


async def make(live: LiveResource, options: PostgresOptions, part: Part) -> None:
    """Make the schema of a role that is there already, one at a time in each server: golden names can be lent to one only."""
    text = await in_thread(_golden_text, live)
    async with _turns.setdefault(live, asyncio.Lock()), access.superuser(live, options.database) as connection:
        await connection.execute("set lock_timeout = '30s'")
        async with connection.transaction():
            await _lend_names(connection, options, part)
            await _run(connection, text)
            await _return_names(connection, options, part)
        path = sql.SQL(", ").join(map(sql.Identifier, (part.name, EXTENSIONS)))
        role = sql.Identifier(part.name)
        await connection.execute(sql.SQL("ALTER ROLE {} SET search_path = {}").format(role, path))
        for setting in await settings_of(connection, options.role, options.database, query=_ROLE_SETTINGS):
            await connection.execute(sql.SQL("ALTER ROLE {} SET {}").format(role, setting))


async def remove(live: LiveResource, options: PostgresOptions, part: Part) -> None:
    """Remove everything that the part's role owns, and its schema."""
    async with access.superuser(live, options.database) as connection:
        prepared = "select gid from pg_prepared_xacts where owner = %s"
        for (gid,) in await (await connection.execute(prepared, [part.name])).fetchall():
            await connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        if await (await connection.execute("select 1 from pg_roles where rolname = %s", [part.name])).fetchone():
            await connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(part.name)))
        await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(part.name)))


_ROLE_SETTINGS = """select unnest(s.setconfig) from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
left join pg_database d on d.oid = s.setdatabase where r.rolname = %s and (s.setdatabase = 0 or d.datname = %s)
and not s.setconfig::text ~ 'search_path=' order by s.setdatabase desc"""


def search_path(chosen: str, subject: Subject) -> str:
    """Return a search path in which the golden schema's place is taken by that of the subject's own part."""
    if not isinstance(subject, SharedSubject) or subject.sharing.own is None:
        return chosen
    own = subject.sharing.own
    if own.isolation is not Isolation.SCHEMA:
        return chosen
    return ", ".join(f"{own.name}, {EXTENSIONS}" if name == GOLDEN else name for name in map(str.strip, chosen.split(",")))


def _golden_text(live: LiveResource) -> str:
    for layer in live.state[access.DATA].origin.layers:
        path = Path(layer, FILE)
        if path.is_file():
            return path.read_text("utf-8")
    raise ResetFailed(f"resource {live.spec.name}: its golden holds no {FILE}: it was not built for isolation `schema`")


async def _lend_names(connection: psycopg.AsyncConnection[Any], options: PostgresOptions, part: Part) -> None:
    agent, own, parked = map(sql.Identifier, (options.role, part.name, _PARKED))
    golden = sql.Identifier(GOLDEN)
    await connection.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(agent, parked))
    await connection.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(own, agent))
    await connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(golden, parked))
    owner = agent if options.owner else sql.Identifier(SUPERUSER)
    await connection.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(golden, owner))
    await connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(golden, agent))


async def _return_names(connection: psycopg.AsyncConnection[Any], options: PostgresOptions, part: Part) -> None:
    agent, own, parked = map(sql.Identifier, (options.role, part.name, _PARKED))
    golden = sql.Identifier(GOLDEN)
    await connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(golden, own))
    await connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(parked, golden))
    await connection.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(agent, own))
    await connection.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(parked, agent))


async def _run(connection: psycopg.AsyncConnection[Any], text: str) -> None:
    for statement in statements.split(text):
        if _OF_SCHEMA.match(statement.text):
            continue
        if statement.data is None:
            await connection.execute(statement.text.encode())
            continue
        async with connection.cursor() as cursor, cursor.copy(statement.text.encode()) as copy:
            await copy.write(statement.data.encode())
