"""Every planted leak through a real instance: seen at deep with no reset done, gone after a restore; and what other resets leave.

With AUTOCLAVE_WRITE_DOCS=1 the whole run rewrites docs/resets.md. AUTOCLAVE_LEAKS=name,name limits it (nothing is written then).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from envs.check import baseline
from envs.environment import define
from probes.leaks import Leak, Needs, ShellLeak, SqlLeak
from probes.leaks import files as files_catalogue
from probes.leaks import network as network_catalogue
from probes.leaks import postgres as postgres_catalogue
from probes.leaks import process as process_catalogue
from probes.leaks import repo as repo_catalogue
from sandbox.errors import AutoclaveError
from sandbox.model import Depth, NamespaceId, ResetMethod, Snapshot, Verdict
from sandbox.ports import Environment, Instance, Runtime
from sandbox.settings import Settings
from sandbox.wiring import machinery

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(7200)]

SEED = """
create extension pg_stat_statements;
create table public.people (id serial primary key, name text not null, city text);
create table public.visits (id serial primary key, person int references public.people, note text);
create index visits_person_idx on public.visits (person);
create function public.stamp() returns trigger language plpgsql as 'begin return new; end';
create trigger stamp before insert on public.people for each row execute function public.stamp();
create materialized view public.totals as select count(*) as people from public.people;
create unlogged table public.scratch (a int);
"""
ROWS = """
insert into public.people (name, city) select 'name ' || g, 'city ' || g % 40 from generate_series(1, 400) g;
insert into public.visits (person, note) select 1 + g % 400, 'note ' || g from generate_series(1, 1500) g;
insert into public.scratch select generate_series(1, 10);
refresh materialized view public.totals;
"""
OWNERS = """
alter table public.people owner to agent;
alter table public.visits owner to agent;
alter table public.scratch owner to agent;
alter materialized view public.totals owner to agent;
alter function public.stamp() owner to agent;
alter schema public owner to agent;
select lo_from_bytea(9001, 'x');
"""
# What most authors write, for this world.
DATABASE_HOOK = """
set -e
psql -X -q -v ON_ERROR_STOP=1 -c "set lock_timeout = '3s'" \\
  -c 'truncate public.people, public.visits, public.scratch restart identity' -f /opt/rows/rows.sql
"""
REPOSITORY_HOOK = "cd /workspace && git reset -q --hard && git clean -fdxq"
NAMES = {
    "database": "leaks",
    "role": "agent",
    "table": "public.people",
    "column": "name",
    "key": "id",
    "required": "name",
    "triggered": "public.people",
    "sequence": "public.people_id_seq",
    "index": "public.visits_person_idx",
    "view": "public.totals",
    "unlogged": "public.scratch",
    "function": "public.stamp",
    "data": "/srv/postgres",
    "outside": "/tmp/outside",
}
PLACES = {"code": "/workspace", "home": "/home/agent"}
TOGETHER = 12  # leaks in one world that is rebuilt
METHODS = (ResetMethod.HOOK, ResetMethod.CLEAN, ResetMethod.RESTORE)

SAMPLE_DATABASE = (
    "row-update",
    "role-setting",
    "prepared-transaction",
    "advisory-lock",
    "shadowing-function",
    "file-in-data-directory",
)
SHELL = (
    ("code", repo_catalogue.LEAKS),
    ("home", files_catalogue.LEAKS),
    ("process", process_catalogue.LEAKS),
    ("network", network_catalogue.LEAKS),
)
SAMPLE_SHELL = ("hook", "stash", "import-hook", "background-process")


def database(base: Path) -> dict[str, Any]:
    for name, text in (("schema.sql", SEED), ("owners.sql", OWNERS)):
        (base / name).write_text(text)
    (base / "rows").mkdir()
    (base / "rows" / "rows.sql").write_text(ROWS)
    return {
        "name": "leaks",
        "version": "1",
        "description": "a small database to leave things in",
        "resources": {
            "db": {
                "kind": "postgres",
                "database": "leaks",
                "seed": ["schema.sql", "rows/rows.sql", "owners.sql"],
                "max_prepared_transactions": 5,
                # The library is there and keeps nothing of its own accord, so that it does not see every other leak.
                "settings": {
                    "wal_level": "logical",
                    "shared_preload_libraries": "pg_stat_statements",
                    "pg_stat_statements.track": "none",
                },
            }
        },
        "shared": [{"path": "rows", "mount": "/opt/rows"}],
        "reset": {"method": "restore", "hook": ["/bin/sh", "-c", DATABASE_HOOK]},
    }


def tree(base: Path) -> dict[str, Any]:
    for path, text in {
        "code/README.md": "a library\n",
        "code/src/one.py": "ONE = 1\n",
        "code/src/two.py": "TWO = 2\n",
        "code/docs/guide.md": "read\n",
        "home/notes.txt": "remember the milk\n",
        "home/kept/first.txt": "one\n",
        "home/kept/second.txt": "two\n",
    }.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
    return {
        "name": "leaks",
        "version": "1",
        "description": "a small repository and a home to leave things in",
        "workdir": "/workspace",
        "env": {"HOME": "/home/agent", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
        | {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"},
        "resources": {
            "code": {"kind": "repo", "seed": "code", "target": "/workspace"},
            "home": {"kind": "files", "seed": "home", "target": "/home/agent"},
        },
        "reset": {"method": "restore", "hook": ["/bin/sh", "-c", REPOSITORY_HOOK]},
    }


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of one leak."""

    leak: Leak
    kind: str
    refused: str = ""  # why it could not be planted at all
    seen: tuple[str, ...] = ()  # fields that differ at deep before any reset
    after: dict[ResetMethod, str] = field(default_factory=dict)  # "gone", or what is left


class World:
    """One instance in which leaks are planted, looked at and reset."""

    def __init__(self, environment: Environment, runtime: Runtime, snapshot: Snapshot, recorded: Any) -> None:
        self.environment, self.runtime, self.snapshot, self.recorded = environment, runtime, snapshot, recorded
        self.generation = 0
        self.instance: Instance | None = None
        self.noise: dict[ResetMethod, set[str]] = {}

    @property
    def live(self) -> Instance:
        assert self.instance is not None
        return self.instance

    async def renew(self) -> None:
        """What `rebuild` does: a new instance from the golden, whose seal holds."""
        await self.close()
        for sealed in self.snapshot.dirs:
            assert await self.runtime.storage.verify(sealed), sealed
        self.generation += 1
        self.instance = await self.runtime.start(self.environment, self.snapshot, NamespaceId("leaks"), self.generation)

    async def close(self) -> None:
        if self.instance is not None:
            await self.instance.close()

    async def look(self) -> Verdict:
        return await self.environment.verifier.check(self.live.subject(), self.recorded, Depth.DEEP)

    async def reset(self, method: ResetMethod) -> None:
        self.generation += 1
        if method is ResetMethod.RESTORE:
            await self.live.restore(self.snapshot, self.generation)
        else:
            hook = self.environment.spec.reset.hook if method is ResetMethod.HOOK else None
            await self.live.reset_in_place(self.generation, hook=hook)

    async def restore(self) -> Verdict:
        await self.reset(ResetMethod.RESTORE)
        return await self.look()

    async def learn_noise(self) -> None:
        """A field that a reset changes by itself, in a world that nobody touched, says nothing of a leak."""
        for method in METHODS:
            await self.reset(method)
            self.noise[method] = differences(await self.look())
            await self.restore()

    async def plant(self, leak: Leak, kind: str, held: contextlib.AsyncExitStack) -> str:
        """Return why it could not be planted, or nothing."""
        if isinstance(leak, ShellLeak):
            return await self._shell(leak, kind)
        assert isinstance(leak, SqlLeak)
        strong = leak.needs is not Needs.OWNER or bool(leak.needs_library) or leak.database != "{database}"
        address = self.live.subject().endpoint("db") if strong else self.live.endpoint("db")
        connection = await self.connect(address, dbname=leak.database.format(**NAMES))
        held.push_async_callback(connection.close)
        row = await (await connection.execute("select oid::text from pg_database where datname = 'leaks'")).fetchone()
        assert row is not None
        names = {**NAMES, "oid": row[0]}
        try:
            if any("{outside}" in statement for statement in leak.sql):
                await connection.execute("copy (select 1) to program 'mkdir -p -m 700 /tmp/outside'")
            if leak.needs_library == "pg_stat_statements":
                await connection.execute("set pg_stat_statements.track = 'top'")
            for statement in leak.sql:
                await connection.execute(statement.format(**names).encode())
            if not leak.held:
                await connection.close()
            if leak.then:
                async with await self.connect(self.live.subject().endpoint("db")) as second:
                    for statement in leak.then:
                        await second.execute(statement.format(**names).encode())
        except psycopg.Error as error:
            await connection.close()
            return str(error).splitlines()[0]
        return ""

    async def connect(self, address: str, **changes: Any) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(address, autocommit=True, connect_timeout=20, **changes)

    async def _shell(self, leak: ShellLeak, kind: str) -> str:
        place = PLACES.get(kind, "/workspace")
        file, folder = ("src/one.py", "src") if place == "/workspace" else ("notes.txt", "kept")
        # A repository of ours is made without git's templates: directories that a leak writes into are made with it.
        missing = " ".join(d for d in (".git/hooks", ".git/info", ".git/objects/info") if f"{d}/" in leak.shell)
        script = f'mkdir -p "$OUTSIDE" && cd {place} && mkdir -p "$OUTSIDE" {missing} && {{ {leak.shell}\n}}'
        env = {"FILE": file, "FOLDER": folder, "OUTSIDE": "/tmp/outside"}
        result = await self.live.run(["/bin/sh", "-c", script], env=env, limit_s=30)
        if result.exit_code == 0:
            return ""
        said = (result.stderr or result.stdout).decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"exit {result.exit_code}"

    async def survey(self, leak: Leak, kind: str, methods: Sequence[ResetMethod]) -> Outcome:
        """Plant it, look, reset by each method and look again. Starts and ends with a restored world."""
        outcome = Outcome(leak=leak, kind=kind)
        for method in methods:
            async with contextlib.AsyncExitStack() as held:
                outcome.refused = await self.plant(leak, kind, held)
                if outcome.refused:
                    await self.restore()
                    return outcome
                if method is methods[0]:
                    verdict = await self.look()
                    outcome.seen = tuple(f"{m.probe}/{m.field}" for m in verdict.mismatches) + tuple(
                        p.reason for p in verdict.problems
                    )
                outcome.after[method] = await self._after(method)
            if method is not ResetMethod.RESTORE:
                await self.restore()
        return outcome

    async def _after(self, method: ResetMethod) -> str:
        try:
            await self.reset(method)
        except AutoclaveError as error:
            return f"the reset fails: {' '.join(error.message.split())[:160]}"
        verdict = await self.look()
        left = sorted(differences(verdict) - self.noise.get(method, set()))
        return "gone" if not left else f"survives: {', '.join(left[:3])}{f' and {len(left) - 3} more' if len(left) > 3 else ''}"


def differences(verdict: Verdict) -> set[str]:
    return {f"{m.probe}/{m.field}" for m in verdict.mismatches} | {f"{p.probe}: {p.reason}" for p in verdict.problems}


@asynccontextmanager
async def opened(data: Mapping[str, Any], base: Path, settings: Settings) -> AsyncIterator[World]:
    environment = define(data, base)
    async with machinery(settings) as (runtime, ledger):
        start = await baseline(environment, runtime, ledger)
        world = World(environment, runtime, start.snapshot, start.baseline)
        try:
            await world.renew()
            yield world
        finally:
            await world.close()


def judge(outcomes: Sequence[Outcome]) -> list[str]:
    """What is not as promised."""
    wrong = []
    for outcome in outcomes:
        name = f"{outcome.kind}/{outcome.leak.name}"
        if outcome.refused:
            continue
        if outcome.leak.seen is not None and not outcome.seen:
            wrong.append(f"{name} was not seen at deep with no reset done")
        if outcome.leak.repaired_by is ResetMethod.CLEAN and outcome.after.get(ResetMethod.CLEAN, "gone") != "gone":
            wrong.append(f"{name} after clean, which must repair it: {outcome.after[ResetMethod.CLEAN]}")
        if outcome.after[ResetMethod.RESTORE] != "gone":
            wrong.append(f"{name} after restore: {outcome.after[ResetMethod.RESTORE]}")
    return wrong


async def everything(world: World, wanted: Sequence[tuple[str, Leak]], methods: Sequence[ResetMethod]) -> list[Outcome]:
    assert (await world.look()).clean
    await world.learn_noise()
    assert not world.noise[ResetMethod.RESTORE], world.noise[ResetMethod.RESTORE]
    outcomes = []
    for kind, leak in wanted:
        outcomes.append(await world.survey(leak, kind, methods))
        print(f"{kind}/{leak.name}: {outcomes[-1].refused or outcomes[-1].after}", flush=True)
    return outcomes


async def rebuilt(world: World, wanted: Sequence[tuple[str, Leak]], outcomes: Sequence[Outcome]) -> None:
    """Plant as many as fit together into one world and rebuild that, until each was in one. What another stands in the way of (a
    role that may not log in, say) comes into the next world, which is fresh."""
    waiting = [(kind, leak, o) for (kind, leak), o in zip(wanted, outcomes, strict=True) if not o.refused]
    while waiting:
        planted, left = list[Outcome](), list[tuple[str, Leak, Outcome]]()
        async with contextlib.AsyncExitStack() as held:
            for kind, leak, outcome in waiting:
                room = len(planted) < TOGETHER
                if room and not await attempted(world.plant(leak, kind, held)):
                    planted.append(outcome)
                else:
                    left.append((kind, leak, outcome))
            await world.renew()
        verdict = await world.look()
        assert verdict.clean, differences(verdict)
        assert planted, f"even in a fresh world these cannot be planted: {[leak.name for _, leak, _ in left]}"
        for outcome in planted:
            outcome.after[ResetMethod.REBUILD] = "gone"
        waiting = left


async def attempted(planting: Awaitable[str]) -> str:
    """Return why it could not be planted, also where it could not even connect."""
    try:
        return await planting
    except (psycopg.Error, AutoclaveError) as error:
        return str(error)


def chosen(*catalogues: tuple[str, Sequence[Leak]]) -> list[tuple[str, Leak]]:
    names = {n for n in os.environ.get("AUTOCLAVE_LEAKS", "").split(",") if n}
    return [(kind, leak) for kind, leaks in catalogues for leak in leaks if not names or leak.name in names]


@pytest.mark.postgres
async def test_a_sample_of_database_leaks(settings: Settings, nothing_left: None, passable_dir: Path) -> None:
    wanted: list[tuple[str, Leak]] = [("postgres", leak) for leak in postgres_catalogue.LEAKS if leak.name in SAMPLE_DATABASE]
    async with opened(database(passable_dir), passable_dir, settings) as world:
        outcomes = [await world.survey(leak, kind, [ResetMethod.RESTORE]) for kind, leak in wanted]

    assert len(outcomes) == len(SAMPLE_DATABASE)
    assert not any(o.refused for o in outcomes), [o.refused for o in outcomes]
    assert judge(outcomes) == []


async def test_a_sample_of_leaks_in_files_and_processes(settings: Settings, nothing_left: None, passable_dir: Path) -> None:
    catalogues = SHELL
    wanted: list[tuple[str, Leak]] = [(kind, leak) for kind, leaks in catalogues for leak in leaks if leak.name in SAMPLE_SHELL]
    async with opened(tree(passable_dir), passable_dir, settings) as world:
        outcomes = [await world.survey(leak, kind, [ResetMethod.HOOK, ResetMethod.RESTORE]) for kind, leak in wanted]

    assert not any(o.refused for o in outcomes), [o.refused for o in outcomes]
    assert judge(outcomes) == []
    by_hand = {o.leak.name: o.after[ResetMethod.HOOK] for o in outcomes}
    assert by_hand["stash"].startswith("survives"), by_hand
    assert by_hand["hook"].startswith("survives"), by_hand


@pytest.mark.acceptance
@pytest.mark.postgres
async def test_every_leak_that_postgresql_allows(
    settings: Settings, nothing_left: None, passable_dir: Path, resets_page: Any, tally: Any
) -> None:
    wanted = chosen(("postgres", postgres_catalogue.LEAKS))
    async with opened(database(passable_dir), passable_dir, settings) as world:
        outcomes = await everything(world, wanted, METHODS)
        await rebuilt(world, wanted, outcomes)
        resets_page.add("PostgreSQL", outcomes, world.noise)

    assert not any(o.refused for o in outcomes), {o.leak.name: o.refused for o in outcomes if o.refused}
    assert judge(outcomes) == []
    tally("leaks planted, seen and gone", len(outcomes))


@pytest.mark.acceptance
async def test_every_leak_in_repositories_files_and_processes(
    settings: Settings, nothing_left: None, passable_dir: Path, resets_page: Any, tally: Any
) -> None:
    wanted = chosen(*SHELL)
    async with opened(tree(passable_dir), passable_dir, settings) as world:
        outcomes = await everything(world, wanted, METHODS)
        await rebuilt(world, wanted, outcomes)
        resets_page.add("Repositories, files, processes", outcomes, world.noise)

    refused = {o.leak.name for o in outcomes if o.refused}
    assert refused <= {leak.name for _, leak in wanted if leak.needs is Needs.ROOT}, {
        o.leak.name: o.refused for o in outcomes if o.refused
    }
    assert judge(outcomes) == []
    tally("leaks planted, seen and gone", sum(not o.refused for o in outcomes))
