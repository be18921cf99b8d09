"""Reading a server that several namespaces share: one part of it, or the whole (see `sharing` for whose field is whose)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg

from probes.postgres import datadir
from probes.postgres.connection import anywhere, read_only, session
from probes.postgres.databases import read_databases
from probes.postgres.instance import read_names, read_running
from probes.postgres.schemas import read_schema, read_shared_database
from probes.postgres.sharing import OWN, Scope, is_ours, password, walls
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.model import Isolation
from sandbox.ports import Part, Sharing

if TYPE_CHECKING:
    from probes.postgres.probe import PostgresProbe

LISTED = "select d.datname, d.oid::int8, d.datallowconn from pg_catalog.pg_database d order by 1"


async def read(probe: PostgresProbe, context: ProbeContext, sharing: Sharing) -> Findings:
    """Read what is due of a namespace, or of the whole server."""
    before = frozenset(sharing.names)
    tree = context.subject.tree(probe.resource, probe.options.state)
    fields = await read_in_thread(datadir.read_configuration, tree)
    async with anywhere(context, probe.resource) as connection:
        running = await read_running(connection, context, probe.name, lambda found: Scope.of(sharing, before).fields(found))
        names = await read_names(connection)
        if sharing.own is not None:
            async with session(context, probe.resource) as own:
                names |= await _own_names(own, sharing.own, names)
        databases = await (await connection.execute(LISTED)).fetchall()
    scope = Scope.of(sharing, before)
    fields |= scope.fields(names) | running
    read_part = _part if sharing.own is not None else _whole
    found, problems = await read_part(probe, context, scope, [(str(n), int(o), bool(a)) for n, o, a in databases])
    return Findings(fields=fields | found, problems=problems)


async def _own_names(connection: psycopg.AsyncConnection[Any], part: Part, names: dict[str, str]) -> dict[str, str]:
    """The part's walls; and its password, which is another in every generation, said to be ours where it is."""
    (reached,), (stored,) = (await read_only(connection, walls(part)))[:1], (await read_only(connection, password(part)))[:1]
    found = {str(name): str(text) for name, text in reached}
    role = f"roles/{part.name}"
    if role in names and stored and is_ours(stored[0][0], part.secret):
        found[role] = json.dumps(json.loads(names[role]) | {"rolpassword": "ours"}, sort_keys=True)
    return found


async def _part(
    probe: PostgresProbe, context: ProbeContext, scope: Scope, databases: list[tuple[str, int, bool]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    assert scope.own is not None
    if scope.own.isolation is Isolation.SCHEMA:
        return await read_schema(context, probe.resource, scope)
    wanted = {oid: name for name, oid, _ in databases if name == scope.own.name}
    if not wanted:
        return {f"db {OWN}/gone": "there is no such database"}, ()
    found = await read_databases(context, probe.resource, wanted)
    return scope.fields(found.fields), found.problems


async def _whole(
    probe: PostgresProbe, context: ProbeContext, scope: Scope, databases: list[tuple[str, int, bool]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Everything but the parts' own databases, which their namespaces' checks read."""
    isolation = context.subject.environment.isolation
    rest = [(name, oid, accepts) for name, oid, accepts in databases if name not in scope.names]
    shared = {name for name, _, accepts in rest if accepts and name not in ("postgres", "template1")}
    known = {oid: name for name, oid, accepts in rest if accepts and name not in shared}
    found = await read_databases(context, probe.resource, known)
    fields, problems = found.fields, found.problems
    if isolation is Isolation.SCHEMA:
        for database in sorted(shared):
            more, trouble = await read_shared_database(context, probe.resource, database, scope)
            fields, problems = fields | more, (*problems, *trouble)
    closed = {oid: name for name, oid, accepts in rest if not accepts}
    tree = context.subject.tree(probe.resource, probe.options.state)
    fields |= await read_in_thread(datadir.read_everything, tree, {**known, **closed}, found.filenodes)
    return fields, problems
