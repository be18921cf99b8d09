"""The postgres probe over a real server: fresh clones agree, and no planted leak stays unseen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.baseline import fields_of
from probes.defaults import create_verifier
from probes.leaks.leak import Needs, SqlLeak
from probes.leaks.postgres import LEAKS, PROGRAMS
from probes.verifier import ProbeVerifier
from sandbox.model import Baseline, Depth, Mismatch, Verdict, VerdictStatus

pytestmark = pytest.mark.postgres
NAMES = {
    "database": "shop",
    "role": "agent",
    "table": "public.customers",
    "column": "name",
    "key": "id",
    "required": "name",
    "triggered": "public.customers",
    "sequence": "public.customers_id_seq",
    "index": "public.orders_customer_id_idx",
    "view": "public.totals",
    "unlogged": "public.scratch",
    "function": "public.touch",
}


@pytest.fixture(scope="module")
def verifier() -> ProbeVerifier:
    from sandbox.model import EnvironmentSpec, ProbeSpec, ResourceSpec

    spec = EnvironmentSpec(name="shop", version="1", digest="t", resources=(ResourceSpec(name="db", kind="postgres", options={}),))
    quiet = ProbeSpec(name="instance", kind="process", options={"mounts": False})
    return create_verifier(EnvironmentSpec(name="shop", version="1", digest="t", resources=spec.resources, probes=(quiet,)))


_BASELINES: dict[int, Baseline] = {}


@pytest.fixture
async def baseline(farm: Any, verifier: ProbeVerifier, subject_of: Callable[..., Any]) -> Baseline:
    """Recorded once, on two clones that run side by side."""
    if id(farm) not in _BASELINES:
        with farm.running() as one, farm.running() as two:
            _BASELINES[id(farm)] = await verifier.record([subject_of(one), subject_of(two)], None, key="k")
    return _BASELINES[id(farm)]


async def test_a_fresh_clone_is_clean_at_both_depths_and_again(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    for in_place in (False, True):
        for depth in (Depth.QUICK, Depth.DEEP, Depth.QUICK):
            verdict = await verifier.check(subject_of(server, in_place=in_place), baseline, depth)

            assert shown(verdict) == ("clean", [], [])
            assert verdict.fields > 300


async def test_a_clone_that_was_used_before_a_restart_is_not_clean(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    server.execute("set synchronous_commit = on", "insert into public.orders (customer_id, total) values (1, 1)")
    server.stop()
    server.start()  # through crash recovery

    verdict = await verifier.check(subject_of(server), baseline, Depth.DEEP)

    assert {"db shop/table public.orders/rows", "db shop/sequence public.orders_id_seq"} <= fields(verdict)


# A program that goes on is not the server's: the probe of the whole instance reads those.
@pytest.mark.parametrize("leak", [leak for leak in LEAKS if leak not in PROGRAMS], ids=lambda leak: leak.name)
async def test_every_planted_leak_is_seen_at_its_depth(
    leak: SqlLeak, server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any], tmp_path: Path
) -> None:
    outside = server.sockets / "outside"
    outside.mkdir()
    os.chown(outside, os.stat(server.data).st_uid, -1)
    oid = server.execute("select oid from pg_database where datname = 'shop'")[0][0]
    names = {**NAMES, "data": str(server.data), "outside": str(outside), "oid": str(oid)}
    with contextlib.ExitStack() as held:
        plant(leak, server, names, held)
        deep = await verifier.check(subject_of(server, in_place=True), baseline, Depth.DEEP)
        quick = await verifier.check(subject_of(server, in_place=True), baseline, Depth.QUICK) if leak.seen is Depth.DEEP else deep

    if leak.seen is None:
        assert leak.blind
        assert shown(deep) == ("clean", [], [])
        return
    assert deep.status is VerdictStatus.MISMATCH, (deep.mismatches, deep.problems)
    assert all(m.field and m.expected != m.actual for m in deep.mismatches)
    if leak.seen is Depth.QUICK:
        assert Depth.QUICK in {m.depth for m in deep.mismatches}, deep.mismatches
    else:
        assert shown(quick) == ("clean", [], [])
        assert {m.depth for m in deep.mismatches} == {Depth.DEEP}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("role", "roles/planted"),
        ("role-setting", "role settings/*/agent"),
        ("system-setting-pending", "file settings/postgresql.auto.conf work_mem"),
        ("database", "databases/planted"),
        ("shadowing-function", "db shop/function public.lower(text)"),
        ("table", "db shop/table public.planted/rows"),
        ("row-update", "db shop/table public.customers/rows"),
        ("heap-order", "db shop/table public.customers/order"),
        ("access-rules", "configuration/pg_hba.conf"),
        ("file-named-like-a-relation", "db shop/orphan files"),
        ("prepared-transaction", "prepared transactions/planted"),
        ("cast", "db shop/cast cast from public.customers to text"),
        ("template1", "db template1/table public.planted/definition"),
    ],
)
async def test_a_difference_names_what_was_planted(
    name: str, expected: str, server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    leak = next(leak for leak in LEAKS if leak.name == name)
    oid = server.execute("select oid from pg_database where datname = 'shop'")[0][0]
    with contextlib.ExitStack() as held:
        plant(leak, server, {**NAMES, "data": str(server.data), "outside": "/nowhere", "oid": str(oid)}, held)
        verdict = await verifier.check(subject_of(server, in_place=True), baseline, Depth.DEEP)

    assert expected in fields(verdict)


async def test_after_a_restore_quick_sees_what_belongs_to_the_server_and_leaves_rows_to_the_proof(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    server.execute("insert into public.orders (customer_id, total) values (1, 1)")
    assert shown(await verifier.check(subject_of(server), baseline, Depth.QUICK)) == ("clean", [], [])

    server.execute("create role planted")
    verdict = await verifier.check(subject_of(server), baseline, Depth.QUICK)

    assert fields(verdict) == {"roles/planted"}


async def test_a_locked_table_is_inconclusive_and_everything_else_is_still_compared(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    server.execute("create role planted")
    with server.connect() as holder, holder.transaction():
        holder.execute("lock table public.orders in access exclusive mode")
        verdict = await verifier.check(subject_of(server, in_place=True), baseline, Depth.QUICK)

    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert any("public.orders" in p.reason for p in verdict.problems)
    assert {"roles/planted"} < fields(verdict)
    assert not any(f.startswith("db shop/table public.customers") for f in fields(verdict))


async def test_a_server_that_does_not_answer_is_inconclusive(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    server.stop()

    verdict = await verifier.check(subject_of(server), baseline, Depth.QUICK)

    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert [p.probe for p in verdict.problems] == ["db"]


async def test_a_dropped_database_is_a_mismatch_by_name(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    server.execute("drop database postgres", database="template1")

    verdict = await verifier.check(subject_of(server), baseline, Depth.DEEP)

    assert verdict.status is VerdictStatus.MISMATCH
    assert {m.actual for m in verdict.mismatches if m.field == "databases/postgres"} == {None}


async def test_reading_leaves_the_state_as_it_is(
    server: Any, verifier: ProbeVerifier, baseline: Baseline, subject_of: Callable[..., Any]
) -> None:
    """No transaction id is used and no session is left. (The log may grow: a read sets hint bits and prunes pages.)"""
    xid = "select pg_snapshot_xmax(pg_current_snapshot())"
    before = server.execute(xid)
    for _ in range(2):
        assert (await verifier.check(subject_of(server), baseline, Depth.DEEP)).clean

    assert server.execute(xid) == before
    assert server.execute("select count(*) from pg_stat_activity where backend_type = 'client backend'") == [(1,)]


def test_the_baseline_holds_no_password(baseline: Baseline) -> None:
    text = "\n".join((fields_of(baseline, "db") or {}).values())

    assert "SCRAM-SHA-256" not in text


def plant(leak: SqlLeak, server: Any, names: dict[str, str], held: contextlib.ExitStack) -> None:
    user = "agent" if leak.needs is Needs.OWNER and leak.database == "{database}" else "postgres"
    database = leak.database.format(**names)
    if leak.needs_library or leak.needs_extension:
        user = "postgres"
    connection = held.enter_context(server.connect(database, user))
    if leak.needs_library == "pg_stat_statements":  # kept off by the server's settings, so that it sees no other leak
        connection.execute("set pg_stat_statements.track = 'top'")
    for statement in leak.sql:
        connection.execute(statement.format(**names).encode())
    if not leak.held:
        connection.close()
    if leak.then:
        server.execute(*leak.then)


def fields(verdict: Verdict) -> set[str]:
    return {m.field for m in verdict.mismatches}


def shown(verdict: Verdict) -> tuple[str, list[Mismatch], list[Any]]:
    return str(verdict.status), list(verdict.mismatches), list(verdict.problems)
