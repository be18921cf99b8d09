"""Reset and quick check of a postgres instance, beside the bare kill, swap and start over the same data and binaries."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sandbox import binaries
from sandbox.binaries import bubblewrap
from sandbox.model import Depth, Role

pytestmark = [pytest.mark.bench, pytest.mark.slow, pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.timeout(1800)]

SCHEMA = """
create table public.customers (id serial primary key, name text not null, email text);
create table public.orders
  (id serial primary key, customer_id int references public.customers, total numeric, status text, note text);
insert into public.customers (name, email) select 'name ' || g, 'n' || g || '@example.org' from generate_series(1, 5000) g;
insert into public.orders (customer_id, total, status, note)
  select 1 + g % 5000, g * 1.25, 'open', md5(g::text) from generate_series(1, {rows}) g;
create index on public.orders (customer_id);
alter table public.customers owner to agent;
alter table public.orders owner to agent;
"""
WRITES = (
    "insert into public.orders (customer_id, total, status) select 7, 1, 'planted' from generate_series(1, 200)",
    "update public.customers set name = 'planted' where id % 50 = 0",
    "create table public.planted as select * from generate_series(1, 1000) g",
)
BY_HAND = """
truncate public.customers, public.orders restart identity cascade;
insert into public.customers select * from kept.customers;
insert into public.orders select * from kept.orders;
"""


def environment(base: Path, rows: int) -> dict[str, Any]:
    (base / "seed.sql").write_text(SCHEMA.format(rows=rows))
    return {
        "name": "bench",
        "version": "1",
        "description": "a table to fill",
        "limits": {"disk_mb": 2048},
        "resources": {"db": {"kind": "postgres", "database": "bench", "seed": ["seed.sql"], "template": False}},
    }


async def measure(built: Any, bare: Any, alternately: Any, rows: Any, base: Path, *, size: str, seeded: int, rounds: int) -> None:
    async with built(environment(base, seeded), base) as b:
        check = b.environment.verifier.check
        golden = b.snapshot.dir("db/data")
        generation = 1

        async def ours() -> float:
            nonlocal generation
            async with await psycopg.AsyncConnection.connect(b.instance.endpoint("db"), autocommit=True) as connection:
                for statement in WRITES:
                    await connection.execute(statement)
            generation += 1
            began = time.perf_counter()
            await b.instance.restore(b.snapshot, generation)
            verdict = await check(b.instance.subject(), b.baseline, Depth.QUICK)
            took = (time.perf_counter() - began) * 1e3
            assert verdict.clean, verdict
            return took

        found = binaries.postgres(b.settings, None)
        mounts = await b.instance.plans.reachable(found.binds)
        plan = {
            "layers": golden.layers,
            "target": "/srv/postgres",
            "bwrap": str(bubblewrap(b.settings).path),
            "binds": [arg for m in mounts for arg in ("--ro-bind", m.layers[0], m.target)],
            "argv": [found.program("postgres"), "-D", "/srv/postgres"],
            "postgres": "user=agent dbname=bench",
            "writes": WRITES,
        }
        with bare(plan, b.settings.users.of(Role.SERVER)) as other:
            reset, plain = await alternately(rounds, ours, other.round)
        mib = golden.bytes / (1 << 20)
        rows.slower(
            f"reset + quick check, postgres, {size} ({mib:.0f} MiB on disk)",
            reset,
            "kill + swap + bwrap + first query",
            plain,
            below=2,
        )

        began = time.perf_counter()
        again = await b.runtime.build(b.environment)
        rebuilt = (time.perf_counter() - began) * 1e3
        for sealed in again.dirs:
            await b.runtime.storage.remove(sealed)
        rows.faster("the same", reset, "initdb + load + seal", [rebuilt], least=5)

        if size == "large":
            return  # TRUNCATE + reload of so many rows passes the sandbox's memory bound: what it writes lies in a tmpfs upper
        # What people write by hand. It needs a second copy of the rows, and leaves behind whatever is not a row of these tables.
        by_hand = []
        async with await psycopg.AsyncConnection.connect(b.instance.endpoint("db"), autocommit=True) as connection:
            await connection.execute("create schema kept")
            for table in ("customers", "orders"):
                await connection.execute(f"create table kept.{table} as select * from public.{table}".encode())
            for _ in range(5):
                began = time.perf_counter()
                await connection.execute(BY_HAND)
                by_hand.append((time.perf_counter() - began) * 1e3)
        rows.faster("the same", reset, "TRUNCATE + reload (proves nothing)", by_hand, least=None)


async def test_small(built: Any, bare: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, passable_dir: Path) -> None:
    await measure(built, bare, alternately, rows, passable_dir, size="small", seeded=20_000, rounds=40)


async def test_large(
    built: Any,
    bare: Any,
    alternately: Callable[..., Awaitable[Any]],
    rows: Any,
    passable_dir: Path,
    need: Callable[[str, str], None],
) -> None:
    free = shutil.disk_usage(passable_dir).free
    need("large", "" if free > 4 << 30 else f"the 500 MB database needs 4 GiB free below {passable_dir.parent}")
    await measure(built, bare, alternately, rows, passable_dir, size="large", seeded=3_400_000, rounds=20)
