"""Each way in which a simpler probe of PostgreSQL lies: the simple way is blind (or cries wolf), ours is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probes.kinds import load_kind
from probes.postgres import create
from probes.probe import Findings, ProbeContext
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec, ResourceSpec

pytestmark = pytest.mark.postgres
ENVIRONMENT = EnvironmentSpec(name="e", version="1", digest="d", resources=(ResourceSpec(name="db", kind="postgres"),))
PROBE = create(ProbeSpec(name="db", kind="postgres", resource="db"), ENVIRONMENT)


@pytest.fixture(scope="module")
def shared(farm: Any) -> Iterator[Any]:
    """One server for all of them: each works in a schema of its own."""
    with farm.running() as server:
        yield server


@pytest.fixture
def read(shared: Any, subject_of: Callable[..., Any]) -> Callable[[], Any]:
    async def now() -> dict[str, str]:
        found = await PROBE.read(ProbeContext(subject=subject_of(shared, in_place=True), depth=Depth.DEEP))
        assert found.problems == ()
        return dict(found.fields)

    return now


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}


BLIND_EQUALITY = [
    ("numeric", "1.0", "1.00", "numeric_scale"),
    ("interval", "1 day", "24 hours", "interval_unit"),
    ("float8", "0", "-0", "float_sign"),
    ("jsonb", '{"a": 1.0}', '{"a": 1.00}', "jsonb_scale"),
    ("public.citext", "A", "a", "citext_case"),
]


@pytest.mark.parametrize(("kind", "before", "after", "table"), BLIND_EQUALITY, ids=[c[3] for c in BLIND_EQUALITY])
async def test_a_hash_by_the_types_equality_is_blind_to_what_queries_show(
    kind: str, before: str, after: str, table: str, shared: Any, read: Callable[[], Any]
) -> None:
    shared.execute("create extension if not exists citext schema public")
    shared.execute(f"create table public.{table} (v {kind})", f"insert into public.{table} values ('{before}')")
    naive = f"select sum(hash_record_extended(t, 0)) from public.{table} t"
    was, then = shared.execute(naive), await read()

    shared.execute(f"update public.{table} set v = '{after}'", f"vacuum full public.{table}")

    assert shared.execute(naive) == was
    assert f"db shop/table public.{table}/rows" in changed(then, await read())


async def test_a_hash_by_equality_fails_on_json_and_ours_does_not(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.documents (v json)", """insert into public.documents values ('{"a": 1}')""")

    with pytest.raises(psycopg.errors.UndefinedFunction):
        shared.execute("select sum(hash_record_extended(t, 0)) from public.documents t")
    assert "db shop/table public.documents/rows" in await read()


async def test_xor_cancels_rows_that_occur_twice(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.pairs (v text)", "insert into public.pairs values ('a')")
    naive = "select bit_xor(hashtextextended(record_out(t)::text, 0)) from public.pairs t"
    was, then = shared.execute(naive), await read()

    shared.execute("insert into public.pairs values ('planted'), ('planted')")

    assert shared.execute(naive) == was
    assert "db shop/table public.pairs/rows" in changed(then, await read())


async def test_a_cast_of_the_owners_hides_a_row_from_text(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.secret (v text)", "insert into public.secret values ('a')", user="agent")
    shared.execute(
        "create function public.hide(public.secret) returns text language sql as 'select ''same''::text'",
        "create cast (public.secret as text) with function public.hide(public.secret)",
        user="agent",
    )
    naive = "select sum(hashtextextended(t::text, 0)) from public.secret t"
    was, then = shared.execute(naive), await read()

    shared.execute("update public.secret set v = 'planted'", user="agent")

    assert shared.execute(naive) == was
    assert "db shop/table public.secret/rows" in changed(then, await read())


async def test_a_search_path_of_the_agents_shadows_the_hash(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute(
        "create schema evil",
        "create function evil.hashtextextended(text, bigint) returns bigint language sql as 'select 7::bigint'",
        "create table public.shadowed (v text)",
        "insert into public.shadowed values ('a')",
        "alter role postgres set search_path = evil, pg_catalog, public",
    )
    try:
        naive = "select sum(hashtextextended(record_out(t)::text, 0)) from public.shadowed t"
        was, then = shared.execute(naive), await read()
        shared.execute("update public.shadowed set v = 'planted'")

        assert shared.execute(naive) == was
        assert "db shop/table public.shadowed/rows" in changed(then, await read())
        assert then["role settings/*/postgres"] == '{"search_path=evil, pg_catalog, public"}'
    finally:
        shared.execute("alter role postgres reset search_path")


async def test_an_operator_of_the_agents_does_not_stand_in_for_the_systems(shared: Any, read: Callable[[], Any]) -> None:
    then = await read()
    shared.execute(
        "create function public.always(name, name) returns boolean language sql as 'select true'",
        "create operator public.= (leftarg = name, rightarg = name, function = public.always)",
        "alter database shop set search_path = public, pg_catalog",
    )
    try:
        after = await read()
    finally:
        shared.execute("alter database shop reset search_path")
    rows = {n for n in changed(then, after) if n.endswith("/rows")}

    assert rows == set()
    assert "role settings/shop/*" in after


async def test_a_leaked_time_zone_is_named_and_does_not_look_like_changed_rows(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.times (v timestamptz)", "insert into public.times values ('2026-01-01 00:00+00')")
    naive = "select sum(hashtextextended(t::text, 0)) from public.times t"
    was, then = shared.execute(naive), await read()

    shared.execute("alter database shop set timezone = 'Asia/Tokyo'")
    try:
        found = changed(then, await read())

        assert shared.execute(naive) != was  # cries wolf over every table with a time in it
        assert found == {"role settings/shop/*"}
    finally:
        shared.execute("alter database shop reset timezone")


async def test_roles_and_databases_cannot_poison_the_probes_own_session(shared: Any, read: Callable[[], Any]) -> None:
    then = await read()
    poison = {
        "role": "agent",
        "default_transaction_read_only": "off",
        "row_security": "on",
        "statement_timeout": "1",
        "extra_float_digits": "-15",
        "bytea_output": "escape",
        "datestyle": "'German'",
    }
    for name, value in poison.items():
        shared.execute(f"alter role postgres in database shop set {name} = {value}", database="template1")
    try:
        found = changed(then, await read())
    finally:
        shared.execute("alter role postgres in database shop reset all", database="template1")

    assert found == {"role settings/shop/postgres"}


async def test_a_login_trigger_does_not_run_for_the_probe(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute(
        "create function public.seen() returns event_trigger language plpgsql as 'begin create table public.seen (); end'",
        "create event trigger seen on login execute function public.seen()",
        "alter event trigger seen enable always",
    )
    try:
        fields = await read()
    finally:
        connection = psycopg.connect(f"{shared.dsn} options='-c event_triggers=off'", autocommit=True)
        connection.execute("drop event trigger seen")
        made = connection.execute("select to_regclass('public.seen')").fetchall()
        connection.close()

    assert "db shop/event trigger seen" in fields
    assert made == [(None,)]


async def test_statistics_counters_can_be_silenced(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.counted (v text)", "insert into public.counted values ('a')")
    naive = "select n_tup_ins, n_tup_upd from pg_stat_user_tables where relname = 'counted'"
    shared.execute("select pg_stat_force_next_flush()")
    was, then = shared.execute(naive), await read()

    shared.execute("set track_counts = off", "update public.counted set v = 'planted'")

    assert shared.execute("select pg_stat_force_next_flush()") is not None
    assert shared.execute(naive) == was
    assert "db shop/table public.counted/rows" in changed(then, await read())


async def test_a_sequence_moves_without_the_log(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create sequence public.numbers", "select nextval('public.numbers')")
    naive = "select pg_current_wal_insert_lsn()"
    then = await read()

    # Several, since the server's own background record may fall between any two readings.
    positions = [shared.execute("select nextval('public.numbers')", naive) for _ in range(5)]

    assert any(after == was for was, after in pairwise(positions)), positions
    assert changed(then, await read()) == {"db shop/sequence public.numbers"}


async def test_a_file_keeps_its_time_after_a_committed_change(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.timed (v text)", "insert into public.timed values ('a')", "checkpoint")
    path = Path(shared.data) / shared.execute("select pg_relation_filepath('public.timed')")[0][0]
    was, then = path.stat().st_mtime_ns, await read()
    shared.execute("set synchronous_commit = on", "update public.timed set v = 'planted'")

    assert path.stat().st_mtime_ns == was
    assert "db shop/table public.timed/rows" in changed(then, await read())


async def test_a_rewritten_file_of_the_same_rows_is_not_a_changed_row(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.moved (v int)", "insert into public.moved select generate_series(1, 100)")
    then = await read()

    shared.execute("vacuum full public.moved")

    assert changed(then, await read()) == {"db shop/planner/pg_class"}


async def test_the_order_in_which_rows_lie_is_seen(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute("create table public.lying (v int)", "insert into public.lying values (1), (2), (3)")
    naive = "select count(*), sum(hashtextextended(record_out(t)::text, 0)) from public.lying t"
    was, then = shared.execute(naive), await read()

    shared.execute("update public.lying set v = 1 where v = 1")

    assert shared.execute(naive) == was
    assert shared.execute("select array_agg(v) from public.lying") == [([2, 3, 1],)]
    assert changed(then, await read()) == {"db shop/table public.lying/order"}


async def test_row_security_does_not_hide_rows_from_the_probe(shared: Any, read: Callable[[], Any]) -> None:
    shared.execute(
        "create table public.hidden (v int)",
        "alter table public.hidden enable row level security",
        "alter table public.hidden force row level security",
        "create policy nobody on public.hidden using (false)",
        user="agent",
    )
    then = await read()
    shared.execute("insert into public.hidden values (1)")

    assert "db shop/table public.hidden/rows" in changed(then, await read())


async def test_names_that_no_report_expects_are_read(shared: Any, read: Callable[[], Any]) -> None:
    then = await read()
    odd = 'public."it' + "'" + 's a \\\\ ""table"""'
    shared.execute(f"create table {odd} (v int)", f"insert into {odd} values (1)")

    found = changed(then, await read())

    assert any("it's a" in name and name.endswith("/rows") for name in found)


async def test_an_authors_query_cannot_write(shared: Any, subject_of: Callable[..., Any]) -> None:
    async def run(query: str, **options: Any) -> Findings:
        spec = ProbeSpec(name="s", kind="sql", resource="db", options={"query": query, **options})
        return await load_kind("sql")(spec, ENVIRONMENT).read(ProbeContext(subject=subject_of(shared)))

    shared.execute("create table public.asked (v int)", "insert into public.asked values (2), (1)")
    good = await run("select v from asked")
    keyed = await run("select v, v * 2 from asked", fields="keyed")

    assert (good.fields["query"], good.problems) == ("1\n2", ())
    assert keyed.fields == {"queries": "1", "query/1": "2", "query/2": "4", "query count": "2"}
    for query in (
        "insert into public.asked values (3) returning v",
        "select nextval('public.orders_id_seq')",
        "commit; insert into public.asked values (3); select 1",
        "set transaction read write",
        "select pg_catalog.set_config('transaction_read_only', 'off', false)",
        "select * from public.no_such_table",
    ):
        assert (await run(query)).problems, query
    assert shared.execute("select count(*) from public.asked") == [(2,)]
