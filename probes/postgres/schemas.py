"""Schemas of a database that several namespaces share, read without object ids: those differ between equal schemas made one after
another. Definitions are the server's own texts (`pg_get_...`), in which the names of parts are replaced by what they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from probes.canonical import digest_of, name_of
from probes.postgres.connection import BEGIN, literal, refuse_writes, session
from probes.postgres.database import RELATIONS, Relation, read_rows
from probes.postgres.sharing import Scope
from probes.probe import ProbeContext
from sandbox.ports import Part

SYSTEM = "n.nspname !~ '^pg_' and n.nspname <> 'information_schema'"
OWNER = "pg_get_userbyid({0})"


def _of_schema(schema: str) -> list[str]:
    """Statements of (field, text) for everything that lies in one schema."""
    name, here = literal(schema), f"(select n.oid from pg_namespace n where n.nspname = {literal(schema)})"
    relation = "(select c.relname from pg_class c where c.oid = {0})"
    in_relation = f"(select c.oid from pg_class c where c.relnamespace = {here})"
    return [
        f"""select 'schema ' || n.nspname, jsonb_build_array({OWNER.format("n.nspowner")}, n.nspacl::text)::text
            from pg_namespace n where n.nspname = {name}""",
        f"""select 'relation ' || c.relname, jsonb_build_array(c.relkind, c.relpersistence, {OWNER.format("c.relowner")},
            c.relacl::text, c.reloptions::text, c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.relispartition,
            pg_get_expr(c.relpartbound, c.oid), (select a.amname from pg_am a where a.oid = c.relam),
            case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end)::text
            from pg_class c where c.relnamespace = {here} and c.relkind <> 'i' and c.relkind <> 'I'""",
        f"""select 'index ' || c.relname, jsonb_build_array(pg_get_indexdef(c.oid), i.indisvalid, i.indisclustered,
            i.indisreplident, c.reloptions::text)::text
            from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = {here}""",
        f"""select 'column ' || {relation.format("a.attrelid")} || '/' || a.attnum, jsonb_build_array(a.attname,
            format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated,
            a.attstorage, a.attcompression, a.attstattarget, a.attacl::text, a.attoptions::text, a.attisdropped,
            (select l.collname from pg_collation l where l.oid = a.attcollation))::text
            from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
            where a.attnum > 0 and a.attrelid in {in_relation}""",
        f"""select 'constraint ' || coalesce({relation.format("k.conrelid")}, k.contypid::regtype::text) || '/' || k.conname,
            jsonb_build_array(pg_get_constraintdef(k.oid), k.condeferrable, k.condeferred, k.convalidated)::text
            from pg_constraint k where k.connamespace = {here}""",
        f"""select 'trigger ' || {relation.format("t.tgrelid")} || '/' || t.tgname,
            jsonb_build_array(pg_get_triggerdef(t.oid), t.tgenabled)::text
            from pg_trigger t where not t.tgisinternal and t.tgrelid in {in_relation}""",
        f"""select 'rule ' || {relation.format("r.ev_class")} || '/' || r.rulename,
            jsonb_build_array(pg_get_ruledef(r.oid), r.ev_enabled)::text
            from pg_rewrite r where r.ev_class in {in_relation}""",
        f"""select 'policy ' || {relation.format("p.polrelid")} || '/' || p.polname, jsonb_build_array(p.polcmd, p.polpermissive,
            (select string_agg({OWNER.format("o.o")}, ',' order by 1) from unnest(p.polroles) o(o)),
            pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))::text
            from pg_policy p where p.polrelid in {in_relation}""",
        f"""select 'function ' || f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ')', jsonb_build_array(
            case when f.prokind = 'a' then 'aggregate' else pg_get_functiondef(f.oid) end, {OWNER.format("f.proowner")},
            f.proacl::text)::text from pg_proc f where f.pronamespace = {here}""",
        f"""select 'type ' || t.typname, jsonb_build_array(t.typtype, {OWNER.format("t.typowner")}, t.typacl::text, t.typnotnull,
            t.typdefault, format_type(t.typbasetype, t.typtypmod),
            (select string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid))::text
            from pg_type t where t.typnamespace = {here}""",
        f"""select 'sequence ' || {relation.format("s.seqrelid")}, jsonb_build_array(format_type(s.seqtypid, null), s.seqstart,
            s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)::text
            from pg_sequence s where s.seqrelid in {in_relation}""",
        f"""select 'statistics ' || x.stxname, pg_get_statisticsobjdef(x.oid) from pg_statistic_ext x
            where x.stxnamespace = {here}""",
        *(
            f"select '{kind} ' || t.{column}, {OWNER.format(f't.{owner}')} from {catalog} t where t.{schema_of} = {here}"
            for kind, catalog, column, schema_of, owner in (
                ("collation", "pg_collation", "collname", "collnamespace", "collowner"),
                ("conversion", "pg_conversion", "conname", "connamespace", "conowner"),
                ("operator class", "pg_opclass", "opcname", "opcnamespace", "opcowner"),
                ("text search configuration", "pg_ts_config", "cfgname", "cfgnamespace", "cfgowner"),
                ("text search dictionary", "pg_ts_dict", "dictname", "dictnamespace", "dictowner"),
            )
        ),
        f"""select 'operator ' || o.oid::regoperator::text, jsonb_build_array({OWNER.format("o.oprowner")},
            o.oprcode::regproc::text)::text from pg_operator o where o.oprnamespace = {here}""",
        f"""select 'comment ' || pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description from pg_description d
            where (pg_identify_object(d.classoid, d.objoid, d.objsubid)).schema = {name} and d.objoid >= 16384""",
    ]


def _of_role(part: Part) -> list[str]:
    """What a part's role has, in its schema or elsewhere in the database."""
    name = literal(part.name)
    role = f"(select r.oid from pg_roles r where r.rolname = {name})"
    here = "(select d.oid from pg_database d where d.datname = current_database())"
    return [
        f"""select {name} || ' has ' || coalesce(pg_describe_object(d.classid, d.objid, d.objsubid), 'what is gone') || ' '
            || d.deptype::text, count(*)::text from pg_shdepend d where d.dbid = {here} and d.refobjid = {role}
            and d.refclassid = 'pg_authid'::regclass and d.classid <> 'pg_type'::regclass
            group by d.classid, d.objid, d.objsubid, d.deptype""",
        f"""select {name} || ' large objects', coalesce(string_agg(md5(coalesce((select string_agg(l.data, '' order by l.pageno)
            from pg_largeobject l where l.loid = m.oid), '')), ',' order by m.oid), '')
            from pg_largeobject_metadata m where m.lomowner = {role}""",
    ]


_OF_DATABASE = [
    *(
        f"select '{kind} ' || {name}, {text} from {catalog} t where t.oid >= 16384"
        for kind, catalog, name, text in (
            ("extension", "pg_extension", "t.extname", "t.extversion || ' ' || t.extnamespace::regnamespace::text"),
            (
                "event trigger",
                "pg_event_trigger",
                "t.evtname",
                "t.evtevent || ' ' || t.evtfoid::regproc::text || t.evtenabled::text",
            ),
            ("language", "pg_language", "t.lanname", f"{OWNER.format('t.lanowner')} || coalesce(t.lanacl::text, '')"),
            ("cast", "pg_cast", "t.castsource::regtype::text || ' as ' || t.casttarget::regtype::text", "t.castmethod::text"),
            ("foreign data wrapper", "pg_foreign_data_wrapper", "t.fdwname", OWNER.format("t.fdwowner")),
            ("foreign server", "pg_foreign_server", "t.srvname", OWNER.format("t.srvowner")),
            ("publication", "pg_publication", "t.pubname", OWNER.format("t.pubowner")),
            ("access method", "pg_am", "t.amname", "t.amhandler::regproc::text"),
        )
    ),
    f"""select 'default privileges ' || {OWNER.format("t.defaclrole")} || ' '
        || coalesce(t.defaclnamespace::regnamespace::text, '*') || ' ' || t.defaclobjtype::text, t.defaclacl::text
        from pg_default_acl t""",
    f"""select 'large objects of ' || {OWNER.format("m.lomowner")}, count(*)::text
        from pg_largeobject_metadata m group by m.lomowner""",
    f"""select 'schema ' || n.nspname, jsonb_build_array({OWNER.format("n.nspowner")}, n.nspacl::text)::text
        from pg_namespace n where {SYSTEM}""",
]


async def read_schema(context: ProbeContext, resource: str, scope: Scope) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read a part's schema, its rows, and whatever its role has elsewhere."""
    assert scope.own is not None
    prefix = f"db {scope.own.name}/"
    statements = [*_of_schema(scope.own.name), *_of_role(scope.own)]
    async with session(context, resource) as connection:
        return await _read(connection, prefix, statements, [scope.own.name], scope)


async def read_shared_database(
    context: ProbeContext, resource: str, database: str, scope: Scope
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read all of a database that belongs to no part."""
    prefix = f"db {name_of(database)}/"
    async with session(context, resource, database) as connection:
        rows = await (await connection.execute(f"select n.nspname from pg_namespace n where {SYSTEM}".encode())).fetchall()
        schemas = [str(name) for (name,) in rows if name not in scope.names]
        statements = [*_OF_DATABASE, *(s for schema in schemas for s in _of_schema(schema))]
        return await _read(connection, prefix, statements, schemas, scope)


async def _read(
    connection: psycopg.AsyncConnection[Any], prefix: str, statements: Iterable[str], schemas: list[str], scope: Scope
) -> tuple[dict[str, str], tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    await connection.execute(BEGIN)
    try:
        union = "\nunion all\n".join(f"({statement})" for statement in statements)
        for field, text in await (await connection.execute(union.encode())).fetchall():
            found.setdefault(prefix + name_of(str(field or "unnamed")), []).append(str(text))
        relations = [Relation(*row) for row in await (await connection.execute(RELATIONS)).fetchall()]
        rows, problems = await read_rows(connection, [r for r in relations if r.schema in schemas])
        await refuse_writes(connection)
    finally:
        if not connection.closed:
            await connection.execute("rollback")
    joined = {name: "\n".join(sorted(texts)) for name, texts in found.items()}
    fields = {name: _short(text) for name, text in scope.fields(joined).items()}
    return fields | scope.fields({prefix + name: text for name, text in rows.items()}), tuple(f"{prefix}{p}" for p in problems)


def _short(text: str) -> str:
    """Definitions are compared, not shown at length."""
    return text if len(text) <= 200 else f"{len(text)} characters, {digest_of([text])[:32]}"
