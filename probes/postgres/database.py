"""One database: every catalog, sequence, row, large object and the planner's statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from probes.canonical import name_of
from probes.postgres.connection import BEGIN, identifier, literal, refuse_writes
from probes.postgres.hashing import AGES, LARGE_OBJECTS, PLANNER, STORAGE, columns_statement, rows_statement, text_of, union
from probes.postgres.objects import read_objects

CATALOGS = """
select c.relname, pg_catalog.array_agg(a.attname::text order by a.attnum)
from pg_catalog.pg_class c join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) c.oid
where c.relnamespace operator(pg_catalog.=) 11 and c.relkind operator(pg_catalog.=) 'r' and not c.relisshared
  and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped
group by c.relname order by c.relname
"""
# Temporary tables of other sessions cannot be read: their names are in the catalogs.
RELATIONS = """
select n.nspname, c.relname, c.relkind::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where c.relkind operator(pg_catalog.=) any (array['r', 'm', 'S']::"char"[]) and n.oid operator(pg_catalog.<>) 11
  and c.relpersistence operator(pg_catalog.<>) 't' and n.nspname operator(pg_catalog.!~~) 'pg\\_toast%'
order by 1, 2
"""
STATEMENTS_VIEW = """
select n.nspname from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) e.extnamespace
where e.extname operator(pg_catalog.=) 'pg_stat_statements'
"""


STATEMENTS = """
select s.query from {0}.pg_stat_statements s where s.dbid operator(pg_catalog.=)
  (select d.oid from pg_catalog.pg_database d where d.datname operator(pg_catalog.=) pg_catalog.current_database())
"""
FILENODES = """
select pg_catalog.pg_relation_filenode(c.oid)::int8 from pg_catalog.pg_class c
where pg_catalog.pg_relation_filenode(c.oid) is not null
"""
ENOUGH = 3  # tables that cannot be read (locked, say) before the rest is left alone


@dataclass(frozen=True, slots=True)
class Relation:
    schema: str
    name: str
    kind: str  # r, m, S

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    @property
    def shown(self) -> str:
        return name_of(f"{self.schema}.{self.name}")


async def read_database(connection: psycopg.AsyncConnection[Any], database: str, *, deep: bool) -> tuple[dict[str, str], list[str]]:
    """Read a database through a session of its own. Returns its fields, and what could not be read."""
    prefix = f"db {name_of(database)}/"
    problems: list[str] = []
    await connection.execute(BEGIN)
    try:
        fields = await _catalogs(connection, deep=deep)
        fields |= await read_objects(connection)
        relations = [Relation(*row) for row in await (await connection.execute(RELATIONS)).fetchall()]
        rows, problems = await read_rows(connection, relations)
        fields |= rows
        fields |= await _statements(connection)
        await refuse_writes(connection)
    finally:
        if not connection.closed:
            await connection.execute("rollback")
    return {prefix + name: text for name, text in fields.items()}, [f"{prefix}{p}" for p in problems]


async def read_filenodes(connection: psycopg.AsyncConnection[Any]) -> frozenset[int]:
    """Return the numbers of the files that the database's relations have."""
    return frozenset(int(n) for (n,) in await (await connection.execute(FILENODES)).fetchall())


async def _catalogs(connection: psycopg.AsyncConnection[Any], *, deep: bool) -> dict[str, str]:
    found = {str(n): list(columns) for n, columns in await (await connection.execute(CATALOGS)).fetchall()}
    statements = []
    for name, columns in found.items():
        relation = f"pg_catalog.{identifier(name)}"
        apart = STORAGE.get(name, ())
        if name in PLANNER:
            if deep:
                statements.append(rows_statement(f"planner/{name}", relation, ordered=False))
        elif name in LARGE_OBJECTS:
            statements.append(rows_statement(f"large objects/{name}", relation, ordered=False))
        elif apart or name in AGES:
            masked = {*apart, *AGES.get(name, ())}
            statements.append(columns_statement(f"catalog {name}", relation, [c for c in columns if c not in masked]))
            if deep:
                statements.append(columns_statement(f"planner/{name}", relation, ["oid", *(c for c in apart if c in columns)]))
        else:
            statements.append(rows_statement(f"catalog {name}", relation, ordered=False))
    rows = await (await connection.execute(union(statements))).fetchall()
    return {str(field): text_of(count, total) for field, count, total, _ in rows}


async def read_rows(connection: psycopg.AsyncConnection[Any], relations: Sequence[Relation]) -> tuple[dict[str, str], list[str]]:
    """Hash every table, materialised view and sequence in one statement; where that fails, one by one, so that the culprit is
    named and the others are read all the same."""
    if not relations:
        return {}, []
    await connection.execute("savepoint autoclave_rows")
    try:
        rows = await (await connection.execute(union(map(_statement, relations)))).fetchall()
    except psycopg.Error as error:
        await _back(connection, "autoclave_rows", error)
        return await _one_by_one(connection, relations)
    by_name = {str(row[0]): row[1:] for row in rows}
    return {name: text for r in relations for name, text in _fields(r, by_name[r.quoted]).items()}, []


async def _one_by_one(connection: psycopg.AsyncConnection[Any], relations: Sequence[Relation]) -> tuple[dict[str, str], list[str]]:
    fields: dict[str, str] = {}
    problems: list[str] = []
    for relation in relations:
        if len(problems) == ENOUGH:
            problems.append("further tables were not read")
            break
        await connection.execute("savepoint autoclave_row")
        try:
            row = await (await connection.execute(_statement(relation).encode())).fetchone()
        except psycopg.Error as error:
            await _back(connection, "autoclave_row", error)
            problems.append(f"{_kind(relation)} {relation.shown}: {error.sqlstate} {error.diag.message_primary or error}")
            continue
        fields |= _fields(relation, row[1:] if row is not None else (None, None, None))
    return fields, problems


async def _back(connection: psycopg.AsyncConnection[Any], savepoint: str, error: psycopg.Error) -> None:
    """Go back to a savepoint after an error; raise it where the session is lost or its time is over."""
    if connection.closed or connection.broken or isinstance(error, psycopg.errors.QueryCanceled):
        raise error
    await connection.execute(f"rollback to savepoint {savepoint}".encode())


def _statement(relation: Relation) -> str:
    if relation.kind == "S":
        # last_value and is_called are what nextval() goes by; pg_sequences would show null before the first call.
        values = "t.last_value, t.is_called::int::numeric, null::numeric"
        return f"select {literal(relation.quoted)}::text, {values} from only {relation.quoted} t"
    return rows_statement(relation.quoted, relation.quoted, ordered=True)


def _kind(relation: Relation) -> str:
    return {"r": "table", "m": "materialized view", "S": "sequence"}[relation.kind]


def _fields(relation: Relation, values: Sequence[object]) -> dict[str, str]:
    first, second, third = values
    name = f"{_kind(relation)} {relation.shown}"
    if relation.kind == "S":
        return {name: f"last_value {first}, {'called' if second else 'not called'}"}
    return {f"{name}/rows": text_of(first, second), f"{name}/order": str(third or 0)}


async def _statements(connection: psycopg.AsyncConnection[Any]) -> dict[str, str]:
    """Read which statements pg_stat_statements has kept, where it is installed and loaded."""
    row = await (await connection.execute(STATEMENTS_VIEW)).fetchone()
    if row is None:
        return {}
    await connection.execute("savepoint autoclave_statements")
    try:
        found = await (await connection.execute(STATEMENTS.format(identifier(row[0])).encode())).fetchall()
    except psycopg.errors.ObjectNotInPrerequisiteState:  # installed, and its library is not loaded
        await connection.execute("rollback to savepoint autoclave_statements")
        return {"pg_stat_statements": "not loaded"}
    return {"pg_stat_statements": "\n".join(sorted({name_of(q or "") for (q,) in found}))}
