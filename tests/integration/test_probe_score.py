"""The probe score over real environments: the catalogue's leaks are planted, seen and repaired, and a blind probe costs score."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs import LoadedEnvironment, define, load, skeleton
from envs.check import baseline, check
from envs.planting import ProbeScore, candidates, survey
from envs.planting.candidates import own
from envs.trial import Trial
from sandbox.model import DestructiveAction, ResetMethod, VerdictStatus
from sandbox.settings import Settings
from sandbox.wiring import machinery

pytestmark = pytest.mark.namespaces


async def scored(environment: LoadedEnvironment, settings: Settings, *names: str) -> ProbeScore:
    async with machinery(settings) as (runtime, ledger):
        start = await baseline(environment, runtime, ledger)
        async with Trial.open(environment, runtime, start) as trial:
            found, missing = await candidates(environment, trial.instance)
            wanted = [c for c in found if c.name in names]
            assert sorted(c.name for c in wanted) == sorted(names), (names, [c.name for c in found], missing)
            return await survey(trial, wanted, inapplicable=missing)


async def test_leaks_in_a_repository_are_seen_and_repaired(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    skeleton.write("desk", kind="repo", directory=tmp_path / "desk")
    environment = load(tmp_path / "desk")
    repo = next(r.name for r in environment.spec.resources if r.kind == "repo")
    names = (f"{repo}/stash", f"{repo}/hook", "process/background-process", "network/tcp-listener")

    whole = await scored(environment, settings, *names)

    assert (whole.planted, whole.caught, whole.repaired, whole.missed, whole.false_alarms) == (4, 4, 4, (), ())

    hook = ("/bin/sh", "-c", "git reset -q --hard && git clean -fdxq")
    by_hand = await scored(environment.with_reset(ResetMethod.HOOK, hook=hook), settings, *names)

    assert by_hand.caught == 4
    assert set(by_hand.left) >= {f"{repo}/stash", f"{repo}/hook"}


async def test_a_directory_without_a_target_of_its_own_is_planted_in_too(
    passable_dir: Path, settings: Settings, nothing_left: None
) -> None:
    tables = {"name": "desk", "version": "1", "resources": {"data": {"kind": "files", "files": {"a": "some text"}}}}

    found = await scored(define(tables, passable_dir), settings, "data/fifo", "data/edit")

    assert (found.planted, found.caught, found.repaired) == (2, 2, 2), found.as_json()


@pytest.mark.postgres
async def test_leaks_in_a_database_are_planted_by_names_that_are_looked_up(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    skeleton.write("desk", kind="postgres", directory=tmp_path / "desk")
    environment = load(tmp_path / "desk")
    database = next(r.name for r in environment.spec.resources if r.kind == "postgres")

    found = await scored(environment, settings, f"{database}/large-object", f"{database}/advisory-lock", f"{database}/role-setting")

    assert (found.planted, found.caught, found.repaired, found.missed) == (3, 3, 3, ()), found.as_json()
    assert found.false_alarms == ()


@pytest.mark.postgres
@pytest.mark.parametrize(("rows", "fitting"), [(1, 1), (2, 3)])
async def test_a_leak_in_rows_takes_those_that_are_there(
    rows: int, fitting: int, passable_dir: Path, settings: Settings, nothing_left: None
) -> None:
    """One that would change nothing is not counted as planted: nobody could see it."""
    (passable_dir / "seed.sql").write_text(
        "create table few (id serial primary key, body text); alter table few owner to agent;"
        f"insert into few select 10 + n, 'row ' || n from generate_series(1, {rows}) n; analyze few;"
    )
    db = {"kind": "postgres", "database": "desk", "seed": ["seed.sql"]}
    names = ("db/row-update", "db/row-swap", "db/heap-order")

    found = await scored(define({"name": "desk", "version": "1", "resources": {"db": db}}, passable_dir), settings, *names)

    assert (found.planted, found.missed, found.left) == (fitting, (), ()), found.as_json()
    assert all("changes no row" in o.refused for o in found.outcomes if o.refused)


def statements(name: str, *sql: str, role: str = "") -> DestructiveAction:
    return DestructiveAction(name=name, resource="db", role=role, sql=sql)


@pytest.mark.postgres
async def test_statements_of_the_authors_own_that_change_no_row_are_not_planted(
    passable_dir: Path, settings: Settings, nothing_left: None
) -> None:
    """Nobody could see them. What is not about rows alone is taken to have done something."""
    (passable_dir / "seed.sql").write_text(
        "create table few (id int primary key, body text); alter table few owner to agent; insert into few values (1, 'a');"
    )
    tables = {"name": "desk", "version": "1", "resources": {"db": {"kind": "postgres", "database": "desk", "seed": ["seed.sql"]}}}
    never = "update few set body = 'b' where id = 7"
    idle = (
        statements("update", never),
        statements("all-of-them", never, "delete from few where id = 7", "insert into few select 7, 'x' where false"),
        statements("in-one-text", f"{never}; delete from few where id = 7"),
        statements("as-superuser", never, role="postgres"),
    )
    real = (
        statements("one-of-them", never, "delete from few where id = 1"),
        statements("last-of-one-text", f"{never}; insert into few values (8, 'x')"),
        statements("and-a-table", never, "create table left_behind ()"),
        statements("under-with", f"with gone as (delete from few returning id) {never}"),
    )
    environment = define(tables, passable_dir)
    async with machinery(settings) as (runtime, ledger):
        start = await baseline(environment, runtime, ledger)
        async with Trial.open(environment, runtime, start) as trial:
            found = await survey(trial, own((*idle, *real)), inapplicable={})
        both = [{"name": a.name, "resource": "db", "sql": list(a.sql)} for a in (idle[0], real[0])]
        written = define(tables | {"destructive": both}, passable_dir)
        beside, alone = [await check(written, runtime, ledger, trajectories=count) for count in (1, 2)]

    why = "its statements changed no row"
    assert (found.planted, found.caught, found.missed) == (4, 4, ()), found.as_json()
    assert {o.name: o.refused for o in found.outcomes if o.refused} == dict.fromkeys((a.name for a in idle), why)
    assert (beside.verdict, alone.verdict) == (VerdictStatus.CLEAN, VerdictStatus.INCONCLUSIVE)
    assert f"not done: update ({why})" in beside.steps[2].detail
    assert set(alone.problems) == {f"positive control: nothing was destroyed: update ({why})"}


@pytest.mark.postgres
@pytest.mark.slow
async def test_a_leak_that_would_change_nothing_here_does_not_count_as_missed(
    passable_dir: Path, settings: Settings, nothing_left: None
) -> None:
    """No column is required, no table has a trigger, no function is one's, and a name needs quotes."""
    seed = """
        create table notes (id serial primary key, "Body" text);
        insert into notes ("Body") values ('same'), ('same'), ('other');
        create function aged(int) returns int language sql as 'select $1';
        alter table notes owner to agent; alter function aged owner to agent;
    """
    (passable_dir / "seed.sql").write_text(seed)
    tables = {"name": "desk", "version": "1", "resources": {"db": {"kind": "postgres", "database": "desk", "seed": ["seed.sql"]}}}

    names = ("row-update", "row-swap", "catalog-edit", "extension")
    found = await scored(define(tables, passable_dir), settings, *(f"db/{name}" for name in names))

    assert (found.planted, found.caught, found.repaired) == (4, 4, 4), found.as_json()
    assert {"db/dropped-constraint", "db/disabled-trigger", "db/function-body"} < found.inapplicable.keys()


@pytest.mark.postgres
@pytest.mark.slow
async def test_where_namespaces_share_a_server_each_leak_is_planted_in_the_part_of_its_holder(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    """And what takes a superuser is not planted: no holder is one, and it would be everybody's."""
    skeleton.write("desk", kind="postgres", directory=tmp_path / "desk")
    text = (tmp_path / "desk" / "environment.toml").read_text()
    (tmp_path / "desk" / "environment.toml").write_text(text.replace("\nversion", '\nisolation = "database"\nversion', 1))
    environment = load(tmp_path / "desk")

    found = await scored(environment, settings, "db/large-object", "db/database-setting", "db/advisory-lock")

    assert (found.planted, found.caught, found.repaired) == (3, 3, 3), found.as_json()
    assert found.inapplicable["db/role"] == "namespaces share the server, and no holder is its superuser"
