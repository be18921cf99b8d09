"""Objects of a database by name, so that a difference names what was planted and not only the catalog that changed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg

from probes.canonical import digest_of, name_of
from probes.postgres.hashing import TEXT

FIRST_OF_USERS = 16_384  # object ids below belong to what initdb made
LIMIT = 20_000  # objects by name; whatever their number, the catalogs' hashes cover all of them


def _object(kind: str, name: str, catalog: str, where: str = "true", key: str = "oid", row: str = "t") -> str:
    return (
        f"(select '{kind} ' || {name} as field, pg_catalog.md5({TEXT.format(row)}) as text from pg_catalog.{catalog} t "
        f"where t.{key} >= {FIRST_OF_USERS} and {where})"
    )


SCHEMA = "(select n.nspname from pg_catalog.pg_namespace n where n.oid = t.{0})"
RELATION = (
    "(select n.nspname || '.' || c.relname from pg_catalog.pg_class c "
    "join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = t.{0})"
)
RELATION_ROW = (
    "row(t.oid, t.relname, t.relnamespace, t.reltype, t.reloftype, t.relowner, t.relam, t.reltablespace, t.relkind, "
    "t.relpersistence, t.relnatts, t.relchecks, t.relhasrules, t.relhastriggers, t.relrowsecurity, t.relforcerowsecurity, "
    "t.relreplident, t.relispartition, t.relacl, t.reloptions, pg_catalog.pg_get_expr(t.relpartbound, t.oid))"
)
KINDS = {"r": "table", "i": "index", "S": "sequence", "v": "view", "m": "materialized view", "c": "composite type"}
WORD = (
    "case t.relkind "
    + " ".join(f"when '{k}' then '{v}'" for k, v in KINDS.items())
    + " when 'p' then 'table' when 'f' then 'foreign table' when 'I' then 'index' else 'relation' end"
)
STATEMENT = "\nunion all\n".join(
    (
        f"(select {WORD} || ' ' || {SCHEMA.format('relnamespace')} || '.' || t.relname || '/definition' as field, "
        f"pg_catalog.md5({TEXT.format(RELATION_ROW)}) as text from pg_catalog.pg_class t where t.oid >= {FIRST_OF_USERS} "
        f"and t.relkind <> 't')",
        f"(select 'column ' || {RELATION.format('attrelid')} || '.' || t.attname || '/' || t.attnum, "
        f"pg_catalog.md5({TEXT.format('t')}) from pg_catalog.pg_attribute t where t.attrelid >= {FIRST_OF_USERS} and t.attnum > 0 "
        f"and (select c.relkind from pg_catalog.pg_class c where c.oid = t.attrelid) not in ('t', 'i', 'I', 'S'))",
        _object("default", f"{RELATION.format('adrelid')} || '.' || t.adnum::text", "pg_attrdef"),
        _object("index definition", RELATION.format("indexrelid"), "pg_index", key="indexrelid"),
        _object(
            "function",
            f"{SCHEMA.format('pronamespace')} || '.' || t.proname || '(' || "
            "pg_catalog.pg_get_function_identity_arguments(t.oid) || ')'",
            "pg_proc",
        ),
        _object("type", f"{SCHEMA.format('typnamespace')} || '.' || t.typname", "pg_type", "t.typelem = 0 and t.typrelid = 0"),
        _object("trigger", f"{RELATION.format('tgrelid')} || '/' || t.tgname", "pg_trigger"),
        _object("constraint", f"coalesce({RELATION.format('conrelid')}, 'domain') || '/' || t.conname", "pg_constraint"),
        _object("rule", f"{RELATION.format('ev_class')} || '/' || t.rulename", "pg_rewrite"),
        _object("policy", f"{RELATION.format('polrelid')} || '/' || t.polname", "pg_policy"),
        _object("schema", "t.nspname", "pg_namespace", "t.nspname not like 'pg\\_toast%'"),
        _object("extension", "t.extname", "pg_extension"),
        _object("event trigger", "t.evtname", "pg_event_trigger"),
        _object("cast", "pg_catalog.pg_describe_object(2605, t.oid, 0)", "pg_cast"),
        _object("operator", "pg_catalog.pg_describe_object(2617, t.oid, 0)", "pg_operator"),
        _object("collation", f"{SCHEMA.format('collnamespace')} || '.' || t.collname", "pg_collation"),
        _object("text search configuration", f"{SCHEMA.format('cfgnamespace')} || '.' || t.cfgname", "pg_ts_config"),
        _object("statistics object", f"{SCHEMA.format('stxnamespace')} || '.' || t.stxname", "pg_statistic_ext"),
        _object("publication", "t.pubname", "pg_publication"),
        _object("language", "t.lanname", "pg_language"),
        _object("foreign data wrapper", "t.fdwname", "pg_foreign_data_wrapper"),
        _object("foreign server", "t.srvname", "pg_foreign_server"),
        _object("user mapping", "t.umserver::text || '/' || t.umuser::text", "pg_user_mapping"),
        _object("default privileges", "pg_catalog.pg_describe_object(826, t.oid, 0)", "pg_default_acl"),
        _object(
            "comment",
            "coalesce(pg_catalog.pg_describe_object(t.classoid, t.objoid, t.objsubid), 'gone')",
            "pg_description",
            key="objoid",
        ),
        _object(
            "security label",
            "coalesce(pg_catalog.pg_describe_object(t.classoid, t.objoid, t.objsubid), 'gone') || '/' || t.provider",
            "pg_seclabel",
            key="objoid",
        ),
    )
)


async def read_objects(connection: psycopg.AsyncConnection[Any]) -> dict[str, str]:
    """Read every object that initdb did not make: its name and a hash of its definition."""
    rows = await (await connection.execute(f"{STATEMENT} limit {LIMIT + 1}".encode())).fetchall()
    if len(rows) > LIMIT:
        return {"objects": f"more than {LIMIT}: compared by their catalogs only"}
    found: dict[str, list[str]] = defaultdict(list)
    for field, text in rows:
        found[name_of(field or "unnamed")].append(text or "")
    return {name: texts[0] if len(texts) == 1 else digest_of(sorted(texts)) for name, texts in found.items()}
