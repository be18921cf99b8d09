"""The catalogue's part for PostgreSQL: tables, functions and everything else that has a definition."""

from __future__ import annotations

from probes.leaks.leak import Needs, SqlLeak
from sandbox.model import Depth

OBJECTS = (
    SqlLeak(
        name="schema",
        what="a schema with a table",
        sql=(
            "create schema planted",
            "create table planted.t as select 1 as a",
        ),
    ),
    SqlLeak(name="table", what="a table in public", sql=("create table public.planted (a int)",)),
    SqlLeak(
        name="shadowing-function",
        what="a function that shadows one of the system",
        sql=("create function public.lower(text) returns text language sql as 'select $1'",),
    ),
    SqlLeak(
        name="function-body",
        what="another body for a function, under the same name",
        sql=("create or replace function {function}() returns trigger language plpgsql as 'begin return null; end'",),
    ),
    SqlLeak(
        name="cast",
        what="a cast that hides what a row holds",
        sql=(
            "create function public.planted({table}) returns text language sql as 'select ''same''::text'",
            "create cast ({table} as text) with function public.planted({table})",
        ),
    ),
    SqlLeak(
        name="operator",
        what="an operator of the same name as one of the system",
        sql=(
            "create function public.planted(text, text) returns boolean language sql as 'select true'",
            "create operator public.= (leftarg = text, rightarg = text, function = public.planted)",
        ),
    ),
    SqlLeak(
        name="collation",
        what="a collation",
        sql=("create collation public.planted (provider = libc, locale = 'C')",),
    ),
    SqlLeak(
        name="text-search",
        what="a text search configuration",
        sql=("create text search configuration public.planted (copy = english)",),
    ),
    SqlLeak(name="extension", what="an extension", needs_extension="hstore", sql=("create extension hstore",)),
    SqlLeak(
        name="event-trigger",
        what="a trigger on every later definition",
        needs=Needs.SUPERUSER,
        sql=(
            "create function public.planted() returns event_trigger language plpgsql as 'begin end'",
            "create event trigger planted on ddl_command_end execute function public.planted()",
        ),
    ),
    SqlLeak(
        name="login-trigger",
        what="a trigger on every later login",
        needs=Needs.SUPERUSER,
        sql=(
            "create function public.planted() returns event_trigger language plpgsql "
            "as 'begin create table if not exists public.seen (a int); end'",
            "create event trigger planted on login execute function public.planted()",
            "alter event trigger planted enable always",
        ),
    ),
    SqlLeak(
        name="foreign-server",
        what="a server of a foreign data wrapper",
        needs=Needs.SUPERUSER,
        needs_extension="postgres_fdw",
        sql=(
            "create extension postgres_fdw",
            "create server planted foreign data wrapper postgres_fdw",
        ),
    ),
    SqlLeak(
        name="default-privileges-in-schema",
        what="rights on every later table of a schema",
        sql=("alter default privileges in schema public grant all on tables to public",),
    ),
    SqlLeak(
        name="default-privileges",
        what="rights on every later table",
        sql=("alter default privileges grant all on tables to public",),
    ),
    SqlLeak(name="table-privilege", what="rights on a table", sql=("grant all on {table} to public",)),
    SqlLeak(name="table-comment", what="a comment on a table", sql=("comment on table {table} is 'planted'",)),
    SqlLeak(name="disabled-trigger", what="a trigger that no longer fires", sql=("alter table {triggered} disable trigger user",)),
    SqlLeak(
        name="row-security",
        what="rows hidden by a policy",
        sql=(
            "alter table {table} enable row level security",
            "create policy planted on {table} using (false)",
        ),
    ),
    SqlLeak(name="dropped-index", what="an index less", sql=("drop index {index}",)),
    SqlLeak(
        name="invalid-index",
        what="an index that is no longer used",
        needs=Needs.SUPERUSER,
        sql=("update pg_index set indisvalid = false where indexrelid = '{index}'::regclass",),
    ),
    SqlLeak(
        name="dropped-column",
        what="a column added and dropped",
        sql=(
            "alter table {table} add planted int",
            "alter table {table} drop planted",
        ),
    ),
    SqlLeak(
        name="column-default",
        what="another default for a column",
        sql=("alter table {table} alter {column} set default 'planted'",),
    ),
    SqlLeak(name="dropped-constraint", what="a constraint less", sql=("alter table {table} alter {required} drop not null",)),
    SqlLeak(name="storage-options", what="other storage options", sql=("alter table {table} set (fillfactor = 50)",)),
    SqlLeak(
        name="statistics-target",
        what="another statistics target of a column",
        sql=("alter table {table} alter {column} set statistics 1000",),
    ),
    SqlLeak(
        name="statistics-object",
        what="an extended statistics object",
        sql=("create statistics public.planted on {key}, {column} from {table}",),
    ),
    SqlLeak(
        name="catalog-edit",
        what="a system catalog edited by hand",
        needs=Needs.SUPERUSER,
        sql=(
            "set allow_system_table_mods = on",
            "update pg_attribute set attstattarget = 3 where attrelid = '{table}'::regclass and quote_ident(attname) = '{column}'",
        ),
    ),
    SqlLeak(
        name="rule", what="a rule that swallows writes", sql=("create rule planted as on delete to {table} do instead nothing",)
    ),
    SqlLeak(name="rewritten-table", what="the same rows in a new file", seen=Depth.DEEP, sql=("vacuum full {table}",)),
)
