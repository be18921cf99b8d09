"""`autoclave bisect` over the embedded runtime: histories that a pool had, a reset that misses something, and who left it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envs import LoadedEnvironment, load
from envs.bisect import BisectReport, bisect, history
from sandbox.model import VerdictStatus
from sandbox.pool import Session
from sandbox.settings import Settings
from sandbox.wiring import Pool, machinery

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres]
TRAJECTORIES = 20
SEED = """
create table public.stock (id serial primary key, product text not null unique, quantity int not null);
insert into public.stock (product, quantity) values ('tea', 5), ('coffee', 2), ('sugar', 9);
create table public.ledger (entry text);
grant all on all tables in schema public to agent;
grant all on all sequences in schema public to agent;
"""
HOOK = """#!/bin/sh
# A reset by hand: it knows the stock and the files that do not begin with a dot.
set -e
psql -qX -v ON_ERROR_STOP=1 <<'SQL'
truncate public.stock restart identity;
insert into public.stock (product, quantity) values ('tea', 5), ('coffee', 2), ('sugar', 9);
SQL
rm -rf /workspace/*
printf 'milk 2\\n' > /workspace/prices.txt
"""
# An author who took everything that the hook misses for noise, and reads what matters to him at depth deep only.
DESK = """
name = "desk"
version = "1"
volatile = [
    { pattern = "db/db desk/planner/*", reason = "the hook loads rows and leaves the statistics" },
    { pattern = "db/db desk/table public.ledger/*", reason = "thought to be scratch" },
    { pattern = "db/role settings/*", reason = "thought to be scratch" },
    { pattern = "data/./.*", reason = "thought to be caches" },
    { pattern = "data/.*", reason = "thought to be caches" },
]

[reset]
method = "hook"
hook_script = "reset.sh"

[check]
deep_every = 20
deep_after_s = 36000.0

[limits]
memory_mb = 512

[resources.db]
kind = "postgres"
database = "desk"
seed = ["seed.sql"]

[resources.data]
kind = "files"
seed = "seed"
target = "/workspace"

[[probes]]
name = "books"
kind = "sql"
resource = "db"
depth = "deep"

[probes.queries]
ledger = "select entry from public.ledger"
settings = "select setconfig::text from pg_catalog.pg_db_role_setting"

[[probes]]
name = "hidden"
kind = "command"
depth = "deep"
argv = ["/bin/sh", "-c", "ls -A /workspace | grep '^[.]' || echo nothing"]
fields = "lines"
"""


@dataclass(frozen=True)
class Did:
    """One action of a session: a command, or a file that is written."""

    argv: Sequence[str] = ()
    stdin: str = ""
    path: str = ""

    async def act(self, session: Session) -> None:
        if self.path:
            await session.write_file(self.path, self.stdin.encode())
        else:
            await session.run(self.argv, stdin=self.stdin.encode())


def sql(text: str) -> Did:
    return Did(argv=("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-f", "-"), stdin=text)


def shell(text: str) -> Did:
    return Did(argv=("/bin/sh", "-c", text))


HARMLESS = (
    sql("update public.stock set quantity = quantity + 1"),
    sql("delete from public.stock where product = 'tea'"),
    sql("insert into public.stock (product, quantity) select g::text, g from generate_series(1, 40) g"),
    sql("select * from public.ledger"),
    sql("insert into public.nowhere values (1)"),
    shell("echo 'bread 3' >> prices.txt"),
    shell("mkdir -p notes/deep && echo x > notes/deep/a"),
    shell("rm prices.txt"),
    shell("sleep 300 &"),
    shell("exit 3"),
    Did(argv=("ls", "-la", "/workspace")),
    Did(path="/workspace/report.txt", stdin="all is well\n"),
)
# What each needs before it, and the field in which it shows.
CULPRITS: Sequence[tuple[Sequence[Did], Did, str]] = (
    ((), sql("insert into public.ledger values ('left')"), "books/ledger"),
    ((), sql("alter role agent set work_mem = '8MB'"), "books/settings"),
    ((), shell("echo left > .cache"), "hidden/"),
    ((), Did(path="/workspace/.env", stdin="it's = 'left'\n\ttab"), "hidden/"),
    ((shell("echo secret > kept.txt"),), shell("mv kept.txt .kept"), "hidden/"),
    (
        (sql("update public.stock set quantity = 77 where product = 'sugar'"),),
        sql("insert into public.ledger select product from public.stock where quantity = 77"),
        "books/ledger",
    ),
)


@pytest.fixture
def desk(tmp_path: Path) -> LoadedEnvironment:
    return write_desk(tmp_path / "desk")


def write_desk(base: Path) -> LoadedEnvironment:
    (base / "seed").mkdir(parents=True)
    (base / "seed" / "prices.txt").write_text("milk 2\n")
    (base / "seed.sql").write_text(SEED)
    (base / "reset.sh").write_text(HOOK)
    (base / "environment.toml").write_text(DESK)
    return load(base)


@dataclass(frozen=True)
class Lived:
    """What a pool went through, and who is to blame."""

    quarantine: str
    trajectory: str
    action: int
    needs: int
    field: str


async def lived(pool: Pool | Any, seed: int) -> Lived:
    """Twenty trajectories of random harmless actions, one of which also does something that the reset misses."""
    chance = random.Random(seed)
    before, culprit, field = CULPRITS[seed % len(CULPRITS)]
    where, answer = chance.randrange(TRAJECTORIES), -1
    names = [f"h{seed}-{number}" for number in range(TRAJECTORIES)]
    for number, name in enumerate(names):
        actions = chance.choices(HARMLESS, k=chance.randint(0, 4))
        if number == where:
            answer = chance.randint(len(before), len(actions) + len(before))
            tail = actions[answer - len(before) :]
            actions = [*actions[: answer - len(before)], *before, culprit, *tail]
        async with pool.session("desk", trajectory=name, wait=300, ttl=600) as session:
            for action in actions:
                await action.act(session)
    await pool.cleared(names[-1:], timeout=300)
    why = await pool.why(names[-1])
    assert (why["window"]["from"] % TRAJECTORIES, why["window"]["to"] % TRAJECTORIES) == (1, 0), why
    return Lived(quarantine=why["window"]["quarantine"], trajectory=names[where], action=answer, needs=len(before), field=field)


async def bisected(desk: LoadedEnvironment, settings: Settings, name: str, **options: Any) -> BisectReport:
    async with machinery(settings) as (runtime, ledger):
        return await bisect(await history(name, ledger, settings), desk, runtime, ledger, **options)


async def found_in(desk: LoadedEnvironment, settings: Settings, seeds: Sequence[int]) -> int:
    async with Pool.open([desk], size=1, settings=settings) as pool:
        past = [await lived(pool, seed) for seed in seeds]
    right = 0
    for told in past:
        report = await bisected(desk, settings, told.quarantine)
        assert report.culprit is not None, report.as_json()
        trajectory, action = report.culprit
        said = report.as_json()
        assert (trajectory, action.number) == (told.trajectory, told.action), (told, said)
        assert len(said["suspects"]) == TRAJECTORIES
        assert all(field.startswith(told.field) for field in said["fields"]), said
        assert len(said["needs"]) == told.needs, said
        assert (report.fails_alone, report.verdict) == (True, VerdictStatus.MISMATCH), said
        right += 1
    return right


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_culprit_is_found_in_random_histories(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    assert await found_in(desk, settings, (4, 3)) == 2


@pytest.mark.acceptance
async def test_the_culprit_is_found_in_ten_of_ten(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    assert await found_in(desk, settings, range(10)) == 10
