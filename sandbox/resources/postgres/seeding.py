"""Makes a server's golden state: initdb, the author's SQL, then a clean stop over data that is as small and as still as it gets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from sandbox.aio import in_thread
from sandbox.binaries import PostgresBinaries
from sandbox.errors import EnvironmentInvalid
from sandbox.model import Isolation, ResourceSpec, Role
from sandbox.ports import LiveResource, SeedHost
from sandbox.resources.contents import succeeded
from sandbox.resources.postgres import access, cleaning, configuration, parts, schemas, statements
from sandbox.resources.postgres.options import SUPERUSER, PostgresOptions

_STATEMENT_LIMIT_S = 600
# What must not be there when the state is sealed, and why.
_MUST_BE_EMPTY = (
    ("pg_prepared_xacts", "gid", "a prepared transaction holds locks for ever: commit it in the seed"),
    ("pg_replication_slots", "slot_name", "a replication slot keeps the write-ahead log: drop it in the seed"),
    ("(select * from pg_tablespace where spcname !~ '^pg_') t", "spcname", "a tablespace's files lie outside the state directory"),
)
_WRITE = 'umask 077; cat > "$1/$2"'
# What the server makes anew at each start.
_TIDY = 'rm -f "$1/postmaster.pid" "$1/postmaster.opts" "$1/logfile"'


async def initialise(host: SeedHost, binaries: PostgresBinaries, options: PostgresOptions, target: str) -> None:
    """Run initdb and write configuration and superuser's password, before any server runs."""
    isolation, sharers = host.environment.isolation, 0
    if isolation is not Isolation.INSTANCE:
        _refuse_shared(binaries, options)
        sharers = host.environment.namespaces_per_instance

    async def run(argv: Sequence[str], what: str, stdin: bytes = b"") -> bytes:
        return succeeded(await host.run(argv, role=Role.SERVER, binds=binaries.binds, env=_ENV, stdin=stdin), what)

    # Small segments: a server that starts over an overlay copies the one it writes to.
    words = ("-D", target, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
    await run((binaries.program("initdb"), *words), "initdb")
    password = access.new_password()
    command = f"ALTER ROLE {SUPERUSER} PASSWORD '{access.verifier(password)}';\n".encode()
    await run((binaries.program("postgres"), "--single", "-D", target, "postgres"), "setting the superuser's password", command)
    append = ("/bin/sh", "-ec", 'cat >> "$1/postgresql.conf"', "sh", target)
    text = configuration.postgresql_conf(options, binaries.major, parts=sharers)
    await run(append, "writing postgresql.conf", text.encode())
    for name, text in (
        ("pg_hba.conf", configuration.pg_hba_conf(options, isolation)),
        (access.PASSFILE, access.passfile_line(password)),
    ):
        await run(("/bin/sh", "-ec", _WRITE, "sh", target, name), f"writing {name}", text.encode())


_ENV = {"TZ": "UTC", "LC_ALL": "C", "PGTZ": "UTC"}


def _refuse_shared(binaries: PostgresBinaries, options: PostgresOptions) -> None:
    """Raise EnvironmentInvalid for what cannot be had of a server that several namespaces share."""
    if options.superuser:
        raise EnvironmentInvalid(
            "the agent of a server that several namespaces share cannot be superuser: it would reach all of them",
            fix='set `superuser = false`, or `isolation = "instance"`',
        )
    if binaries.major < _KNOWS_SET_FALSE:
        raise EnvironmentInvalid(
            f"isolation on a shared server needs PostgreSQL {_KNOWS_SET_FALSE} or newer, this is {binaries.version}",
            fix='set `version`, or `isolation = "instance"`',
        )


_KNOWS_SET_FALSE = 16  # GRANT ... WITH SET FALSE: rights of a role without being able to become it


async def fill(live: LiveResource, options: PostgresOptions, spec: ResourceSpec, isolation: Isolation) -> None:
    """Make the agent's role and database, then run the seed files."""
    database, role = sql.Identifier(options.database), sql.Identifier(options.role)
    rights = sql.SQL("SUPERUSER" if options.superuser else "NOSUPERUSER")
    owner = role if options.owner else sql.Identifier(SUPERUSER)
    async with access.superuser(live) as connection:
        await connection.execute(sql.SQL("CREATE ROLE {} LOGIN {}").format(role, rights))
        await connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 OWNER {}").format(database, owner))
    async with access.superuser(live, options.database) as connection:
        schema = sql.Identifier("public" if isolation is not Isolation.SCHEMA else schemas.EXTENSIONS)
        if isolation is Isolation.SCHEMA:
            await schemas.make_room(connection, options)
        for name in options.extensions:
            try:
                await connection.execute(sql.SQL("CREATE EXTENSION {} SCHEMA {} CASCADE").format(sql.Identifier(name), schema))
            except psycopg.Error as error:
                raise EnvironmentInvalid(
                    f"resources.{spec.name}.extensions: {name!r} cannot be created: {_first_line(error)}",
                    fix="choose one that this PostgreSQL brings, or pin another `version`",
                ) from error
    await run_files(live, options.database, options.seed)


async def run_files(live: LiveResource, database: str, files: Sequence[str]) -> None:
    """Run SQL files in order, each in a session of its own; raise EnvironmentInvalid with file and line."""
    for name in files:
        path = Path(name)
        try:
            text = await in_thread(path.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EnvironmentInvalid(
                f"seed file {name} cannot be read: {error}", fix="give an absolute path of an SQL file"
            ) from error
        await run_text(live, database, text, name)


async def run_text(live: LiveResource, database: str, text: str, name: str) -> None:
    """Run statements one by one, stopping at the first error, as psql does with ON_ERROR_STOP."""
    connection = await psycopg.AsyncConnection.connect(
        access.superuser_conninfo(live, database),
        autocommit=True,
        connect_timeout=10,
        prepare_threshold=None,
        application_name="autoclave seed",
        options=f"-c statement_timeout={_STATEMENT_LIMIT_S}s -c lock_timeout=30s",
    )
    async with connection:
        try:
            for statement in statements.split(text):
                await _run(connection, statement, name)
        except statements.SyntaxFault as fault:
            raise EnvironmentInvalid(f"{name}, line {fault.line}: {fault.reason}", fix="correct the seed file") from fault
        if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            raise EnvironmentInvalid(f"{name} ends inside a transaction: its work would be lost", fix="add COMMIT at its end")


async def _run(connection: psycopg.AsyncConnection[Any], statement: statements.Statement, name: str) -> None:
    try:
        if statement.data is None:
            await connection.execute(statement.text.encode())
            return
        async with connection.cursor() as cursor, cursor.copy(statement.text.encode()) as copy:
            await copy.write(statement.data.encode())
    except psycopg.Error as error:
        position = int(error.diag.statement_position or 1)
        line = statement.line + statement.text.count("\n", 0, position - 1)
        detail = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
        raise EnvironmentInvalid(
            f"{name}, line {line}: {error.sqlstate or type(error).__name__} {_first_line(error)}{detail}",
            fix="correct the seed file",
        ) from error


async def settle(
    live: LiveResource, options: PostgresOptions, spec: ResourceSpec, isolation: Isolation, binaries: PostgresBinaries, target: str
) -> None:
    """Leave nothing for later: copy for `clean` or for the parts of namespaces, frozen and analysed tables, a checkpoint; refuse
    what cannot be sealed."""
    async with access.superuser(live) as connection:
        for relation, column, why in _MUST_BE_EMPTY:
            found = await (await connection.execute(f"select {column}::text from {relation}".encode())).fetchall()
            if found:
                names = ", ".join(row[0] for row in found)
                raise EnvironmentInvalid(f"resource {spec.name}: the seed leaves {names} behind: {why}")
        await cleaning.check_database(connection, options)
    if isolation is Isolation.SCHEMA:
        await schemas.keep_golden(live, options, binaries, target)
    await _vacuum(live)
    async with access.superuser(live) as connection:
        if isolation is not Isolation.INSTANCE:
            await parts.close_golden(connection, options, isolation)
        elif options.template:
            await cleaning.keep_template(connection, options)
    async with access.superuser(live) as connection:
        await connection.execute("CHECKPOINT")


async def _vacuum(live: LiveResource) -> None:
    async with access.superuser(live) as connection:
        rows = await (await connection.execute("select datname from pg_database where datallowconn order by 1")).fetchall()
    for (database,) in rows:
        async with access.superuser(live, database) as connection:
            await connection.execute("set statement_timeout = 0")
            await connection.execute("VACUUM (FREEZE, ANALYZE)")


async def trim(host: SeedHost, binaries: PostgresBinaries, target: str) -> None:
    """After a clean stop: throw away the write-ahead log and what belongs to one run."""
    argv = (binaries.program("pg_resetwal"), "-D", target)
    succeeded(await host.run(argv, role=Role.SERVER, binds=binaries.binds, env=_ENV), "pg_resetwal")
    succeeded(await host.run(("/bin/sh", "-ec", _TIDY, "sh", target), role=Role.SERVER), "removing what a run leaves")


def _first_line(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().split("\n")[0]
