"""The `postgres` kind: what its golden state is like, who gets in, and which seeds are refused by file and line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Instance, Runtime

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres]


async def rows(instance: Instance, sql: str) -> list[tuple[Any, ...]]:
    """Ask as superuser, from outside."""
    async with await psycopg.AsyncConnection.connect(instance.subject().endpoint("db"), autocommit=True) as connection:
        return await (await connection.execute(sql.encode())).fetchall()


async def test_the_golden_state_is_small_still_and_whole(built: Any, runtime: Runtime) -> None:
    clone = await runtime.storage.clone(built.golden.dir("db/data"))
    try:
        names = [e.path for e in clone.tree().walk()]
        assert "PG_VERSION" in names
        assert not [n for n in names if n.startswith("postmaster.")]
        assert len([n for n in names if n.startswith("pg_wal/") and len(n) == len("pg_wal/") + 24]) == 1
        assert not [n for n in names if n.startswith(("pg_tblspc/", "pg_replslot/", "pg_twophase/"))]
        entry = clone.tree().entry("autoclave.pgpass")
        assert entry is not None
        assert entry.mode == 0o600
        top = clone.tree().entry("")
        assert top is None or top.mode == 0o700
    finally:
        await clone.destroy()


async def test_two_clones_start_alike(begin: Callable[..., Awaitable[Instance]]) -> None:
    """Nothing moves by itself: next transaction id, log position and identifier are the same at each start."""
    sql = """select pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text,
             (select system_identifier from pg_control_system())::text"""
    first, second = await begin(name="a"), await begin(name="b")
    assert await rows(first, sql) == await rows(second, sql)


async def test_settings_that_keep_a_state_still(instance: Instance) -> None:
    wanted = {
        "autovacuum": "off", "fsync": "off", "jit": "off", "listen_addresses": "", "max_prepared_transactions": "5",
        "TimeZone": "UTC", "full_page_writes": "off", "synchronous_commit": "off",
    }  # fmt: skip
    found = dict(await rows(instance, "select name, setting from pg_settings"))
    assert {name: found[name] for name in wanted} == wanted
    assert await rows(instance, "select setting from pg_file_settings where error is not null") == []


async def test_statistics_are_there_and_rows_are_frozen(instance: Instance) -> None:
    assert await rows(instance, "select reltuples::int from pg_class where relname = 'items'") == [(500,)]
    assert await rows(instance, "select count(*) > 0 from pg_stats where tablename = 'items'") == [(True,)]


@pytest.mark.parametrize(
    "argv",
    [
        ["psql", "-w", "-U", "postgres", "-c", "select 1"],
        ["psql", "-w", "-U", "postgres", "-c", "select 1", "replication=database dbname=world"],
        ["psql", "-w", "-c", "set role postgres"],
        ["psql", "-w", "-c", "alter role agent superuser"],
        ["psql", "-w", "-c", "copy items to program 'cat'"],
        ["psql", "-w", "-c", "select pg_read_file('autoclave.pgpass')"],
        ["psql", "-w", "-c", "select lo_import('/srv/postgres/autoclave.pgpass')"],
        ["psql", "-w", "-c", "select rolpassword from pg_authid"],
        ["psql", "-w", "-c", "alter role postgres password 'x'"],
        ["psql", "-w", "-c", "table secrets"],
        ["psql", "-w", "-d", "world_template", "-c", "select 1"],
    ],
    ids=lambda argv: argv[-1][:30],
)
async def test_the_agent_does_not_become_superuser(instance: Instance, argv: list[str]) -> None:
    done = await instance.run(argv)
    assert done.exit_code != 0
    assert done.stdout == b""


async def test_no_secret_stands_in_an_address(instance: Instance) -> None:
    address = instance.subject().endpoint("db")
    password = Path(str(psycopg.conninfo.conninfo_to_dict(address)["passfile"])).read_text().strip().rsplit(":", 1)[1]
    assert len(password) > 30
    assert password not in address
    assert password not in str(instance.in_force)
    assert "password" not in instance.endpoint("db")


async def test_an_agent_that_is_superuser_cannot_lock_the_host_out_for_longer_than_a_reset(
    make: Any, begin: Callable[..., Awaitable[Instance]], runtime: Runtime
) -> None:
    world = make({"db": ("postgres", {"superuser": True, "extensions": ["hstore"], "settings": {"work_mem": "7MB"}})})
    golden = await runtime.build(world)
    try:
        instance = await begin(world, golden)
        done = await instance.run(["psql", "-Atc", "show work_mem; select extname from pg_extension where extname = 'hstore'"])
        assert done.text.split() == ["7MB", "hstore"]
        await instance.run(["psql", "-c", "alter role postgres password 'mine'; drop database postgres with (force)"])
        await instance.run(["psql", "-c", "copy (select 'local all all reject') to '/srv/postgres/pg_hba.conf'"])
        await instance.revoke()
        await instance.restore(golden, 2)
        assert await rows(instance, "select rolsuper from pg_roles where rolname = 'agent'") == [(True,)]
        await instance.close()
    finally:
        for sealed in golden.dirs:
            await runtime.storage.remove(sealed)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("create table a (i int);\n\ninsert into a\n  values ('x');\n", "bad.sql, line 4: 22P02"),
        ("select 1;\nselect 1/0;\n", "bad.sql, line 2: 22012 division by zero"),
        ("create table a (i int);\ncopy a from stdin;\nno\n\\.\n", "bad.sql, line 2: 22P02"),
        ("select 'open;\n", "bad.sql, line 1: a ' that is never closed"),
        ("begin;\ncreate table a (i int);\n", "ends inside a transaction"),
        ("begin; create table a (i int); prepare transaction 'x';\n", "leaves x behind: a prepared transaction"),
        ("select pg_create_physical_replication_slot('s', true);\n", "leaves s behind: a replication slot"),
        ("drop owned by agent;\nalter role agent nologin;\n", "no role 'agent' that may log in"),
    ],
)
async def test_a_seed_that_fails_is_named_and_leaves_nothing(
    make: Any, runtime: Runtime, built: Any, tmp_path: Path, sql: str, said: str
) -> None:
    (tmp_path / "bad.sql").write_text(sql)
    world = make({"db": ("postgres", {"seed": [str(tmp_path / "bad.sql")], "max_prepared_transactions": 2, "template": False})})
    with pytest.raises(EnvironmentInvalid) as caught:
        await runtime.build(world)
    assert said in str(caught.value)


async def test_an_unknown_extension_is_named(make: Any, runtime: Runtime) -> None:
    with pytest.raises(EnvironmentInvalid, match=r"resources\.db\.extensions: 'nonsense'"):
        await runtime.build(make({"db": ("postgres", {"extensions": ["nonsense"]})}))
