"""The kind `sql`: an author's own queries over a postgres resource, each in a read-only transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from pydantic import Field, model_validator

from probes.canonical import digest_of, name_of
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.postgres.connection import BEGIN, identifier, refuse_writes, session
from probes.probe import Findings, ProbeContext
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.resources.postgres.schemas import search_path

SHORT_ROWS, SHORT_TEXT = 50, 2_000
MOST_ROWS = 100_000
NULL = "\\N"


class SqlOptions(Options):
    """`query` is one query, `queries` several by name. `fields` says how rows become fields: `rows` all in one (as text where they
    are few, else counted and hashed), `keyed` one field for each row, named by its first column."""

    query: str = ""
    queries: dict[str, str] = Field(default_factory=dict)
    database: str | None = None
    role: str | None = Field(default=None, description="read as this role instead of the superuser")
    search_path: str = Field(default="pg_catalog, public", description="pg_catalog first, so that no function can be shadowed")
    ordered: bool = Field(default=False, description="the order of rows counts")
    fields: Literal["rows", "keyed"] = "rows"

    @model_validator(mode="after")
    def _some(self) -> SqlOptions:
        if not self.query and not self.queries:
            raise ValueError("write `query` or `queries`")
        return self

    @property
    def named(self) -> dict[str, str]:
        return {**({"query": self.query} if self.query else {}), **self.queries}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlProbe:
    """Reads what queries return."""

    name: str
    resource: str
    depth: Depth
    options: SqlOptions
    digest: str

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return self.depth

    async def read(self, context: ProbeContext) -> Findings:
        fields: dict[str, str] = {"queries": str(len(self.options.named))}
        problems = []
        settings = {"search_path": search_path(self.options.search_path, context.subject)}
        async with session(context, self.resource, self.options.database, extra=settings) as connection:
            if self.options.role is not None:
                await connection.execute(f"set role {identifier(self.options.role)}".encode())
            for name, query in self.options.named.items():
                try:
                    fields |= self._fields(name, await _rows(connection, query))
                except (psycopg.Error, PermissionError, ValueError) as error:
                    if connection.closed or connection.broken:
                        raise
                    problems.append(f"{name}: {' '.join(str(error).split())[:300]}")
        return Findings(fields=fields, problems=tuple(problems))

    def _fields(self, name: str, rows: list[tuple[str, ...]]) -> dict[str, str]:
        if self.options.fields == "keyed":
            return keyed_fields(name_of(name), rows)
        return {name_of(name): rows_text(rows, ordered=self.options.ordered)}


def keyed_fields(name: str, rows: list[tuple[str, ...]]) -> dict[str, str]:
    """One field for each key; rows with the same key share one."""
    found: dict[str, list[str]] = {}
    for key, *rest in rows:
        found.setdefault(f"{name}/{name_of(key)}", []).append("\t".join(rest))
    return {field: "\n".join(sorted(texts)) for field, texts in found.items()} | {f"{name} count": str(len(rows))}


def rows_text(rows: list[tuple[str, ...]], *, ordered: bool) -> str:
    """All rows as one text."""
    lines = ["\t".join(row) for row in rows]
    if not ordered:
        lines.sort()
    if len(lines) <= SHORT_ROWS and sum(map(len, lines)) <= SHORT_TEXT:
        return "\n".join(lines)
    return f"{len(lines)} rows, {digest_of(lines)[:32]}"


async def _rows(connection: psycopg.AsyncConnection[Any], query: str) -> list[tuple[str, ...]]:
    """Run one statement in a read-only transaction and return its rows as the server's own text."""
    await connection.execute(BEGIN)
    try:
        # Prepared, so that the server refuses a second statement (a commit, and then a write).
        cursor = await connection.execute(query.encode(), prepare=True)
        result = cursor.pgresult
        if result is None or cursor.description is None:
            raise ValueError("the statement returns no rows: a probe reads")
        if result.ntuples > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS} rows: let the query count or hash them")
        rows = [tuple(_text(result.get_value(r, c)) for c in range(result.nfields)) for r in range(result.ntuples)]
        await refuse_writes(connection)
    finally:
        if not (connection.closed or connection.broken):
            await connection.execute("rollback")
    return rows


def _text(value: bytes | None) -> str:
    return NULL if value is None else name_of(value.decode("utf-8", "surrogateescape"))


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> SqlProbe:
    """Make a probe of queries."""
    options = read_options(spec, SqlOptions, environment)
    return SqlProbe(
        name=spec.name,
        resource=resource_of(spec, environment),
        depth=spec.depth,
        options=options,
        digest=digest_of_kind(spec, options),
    )
