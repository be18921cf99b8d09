"""Environments over the embedded runtime: skeletons pass their own check, hand-written resets are found out, tasks are scored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from envs import LoadedEnvironment, define, load, scoring, skeleton
from envs.check import CheckReport, check
from sandbox.model import NamespaceId, ResetMethod, TaskSpec, VerdictStatus
from sandbox.settings import Settings
from sandbox.wiring import Pool, machinery

pytestmark = pytest.mark.namespaces


async def verified(environment: LoadedEnvironment, settings: Settings, *, task: str | None = None) -> CheckReport:
    async with machinery(settings) as (runtime, ledger):
        return await check(environment, runtime, ledger, task=task)


@pytest.mark.parametrize("kind", ["files", "repo", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_new_environment_passes_its_check(tmp_path: Path, settings: Settings, nothing_left: None, kind: str) -> None:
    skeleton.write("desk", kind=kind, directory=tmp_path / "desk")

    report = await verified(load(tmp_path / "desk"), settings)

    assert report.verdict is VerdictStatus.CLEAN, report.as_json()
    assert not any("not done" in step.detail for step in report.steps)


async def test_the_least_environment_passes_its_check(passable_dir: Path, settings: Settings, nothing_left: None) -> None:
    """Nothing destructive is written down: what is done then comes in parts, and one of them may be of a process alone."""
    tables = {"name": "desk", "version": "1", "resources": {"docs": {"kind": "files", "files": {"n.txt": "1"}}}}

    report = await verified(define(tables, passable_dir), settings)

    assert report.verdict is VerdictStatus.CLEAN, report.as_json()


async def test_the_skeletons_hook_is_found_out(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    skeleton.write("desk", kind="files", directory=tmp_path / "desk")

    report = await verified(load(tmp_path / "desk").with_reset(ResetMethod.HOOK), settings)

    assert report.verdict is VerdictStatus.MISMATCH
    named = " ".join(m.field for m in report.differences)
    assert ".cache/" in named
    assert "prices.txt" in named, "its mode stayed"


async def test_git_reset_and_clean_are_found_out(settings: Settings, nothing_left: None) -> None:
    report = await verified(load_repo().with_reset(ResetMethod.HOOK), settings)

    assert report.verdict is VerdictStatus.MISMATCH
    named = {m.field for m in report.differences}
    assert any("hook" in field for field in named)
    assert any("config" in field for field in named)


def load_repo() -> LoadedEnvironment:
    from envs.repo import environment

    return environment()


async def test_a_bug_fix_task_from_start_to_reward(settings: Settings, nothing_left: None) -> None:
    repo = load_repo()
    task = next(t for t in repo.tasks.values() if t.difficulty == "easy")
    change = task.start["code"]["replace"][0]
    async with Pool.open([repo], size=1, settings=settings) as pool:
        async with pool.session("repo", task=task.id, wait=120) as session:
            log = await session.run(["git", "log", "--all", "--oneline"])
            objects = await session.run(["git", "count-objects", "-v"])
            fsck = await session.run(["git", "fsck", "--unreachable", "--no-reflogs"])
            before = await session.score()
            path = f"/workspace/{change['file']}"
            text = (await session.read_file(path)).decode()
            await session.write_file(path, text.replace(change["new"], change["old"]).encode())
            after = await session.score()
        assert len(log.text.splitlines()) == 1, "no history"
        assert "count: 0" in objects.text
        assert fsck.text == "", "no object of the original is left"
        assert (before.reward, after.reward) == (0.0, 1.0), (before, after)
        assert "still failing" in before.detail


SHOP = {
    "name": "till",
    "version": "1",
    "resources": {"db": {"kind": "postgres", "database": "till", "seed": ["seed.sql"]}},
}
SEED = """
create table public.stock (product text primary key, quantity int not null);
insert into public.stock values ('tea', 5);
alter table public.stock owner to agent;
grant all on schema public to agent;
create function public.lower(text) returns text language sql immutable as 'select ''trap''::text';
"""
HOLDS = "select quantity = 15 from public.stock where product = 'tea'"
TRICKS = {
    "done": (["update public.stock set quantity = 15"], 1.0),
    "not done": ([], 0.0),
    "table dropped": (["drop table public.stock"], 0.0),
    "table became a view": (
        [
            "drop table public.stock",
            "create function public.cheat() returns int language plpgsql as 'begin return 15; end'",
            "create view public.stock as select 'tea'::text as product, public.cheat() as quantity",
        ],
        0.0,
    ),
    "row security hides rows": (
        [
            "insert into public.stock values ('tea2', 1)",
            "alter table public.stock enable row level security",
            "alter table public.stock force row level security",
        ],
        0.0,
    ),
    "search path of the role": (["alter role agent set search_path = public"], 0.0),
    "column renamed": (["alter table public.stock rename column quantity to amount"], 0.0),
}


@pytest.mark.postgres
async def test_sql_checks_read_the_end_state_and_nothing_that_the_agent_put_in_its_way(
    tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    (tmp_path / "seed.sql").write_text(SEED)
    till = define(SHOP, tmp_path)
    async with machinery(settings) as (runtime, _):
        golden = await runtime.build(till)
        for number, (name, (statements, reward)) in enumerate(TRICKS.items(), start=1):
            instance = await runtime.start(till, golden, NamespaceId(f"till-{number}"), 1)
            try:
                async with await psycopg.AsyncConnection.connect(instance.endpoint("db"), autocommit=True) as connection:
                    for statement in statements:
                        await connection.execute(statement.encode())
                await instance.quiesce()
                found = await scoring.score(instance.subject(), sql_task(HOLDS))
                assert found.reward == reward, (name, found)
                assert found.success is (reward == 1.0)
            finally:
                await instance.close()


@pytest.mark.postgres
async def test_a_check_cannot_write_and_a_lost_server_is_no_zero(tmp_path: Path, settings: Settings, nothing_left: None) -> None:
    (tmp_path / "seed.sql").write_text(SEED)
    till = define(SHOP, tmp_path)
    async with machinery(settings) as (runtime, _):
        golden = await runtime.build(till)
        instance = await runtime.start(till, golden, NamespaceId("till-1"), 1)
        try:
            subject = instance.subject()
            assert (await scoring.score(subject, sql_task("select pg_catalog.lower('A') = 'a'"))).reward == 1.0
            assert (await scoring.score(subject, sql_task("select lower('A') = 'a'"))).reward == 1.0, "public.lower is no trap"
            wrote = await scoring.score(subject, sql_task("delete from public.stock returning true"))
            assert wrote.success is False
            two = await scoring.score(subject, sql_task("select true; select true"))
            assert two.success is False
            assert (await scoring.score(subject, sql_task("select count(*) = 1 from public.stock"))).reward == 1.0, (
                "nothing was deleted"
            )
            slow = await scoring.score(subject, sql_task("select pg_catalog.pg_sleep(60) is null", limit_s=0.2))
            assert slow.reward is None
        finally:
            await instance.close()


def sql_task(query: str, **more: object) -> TaskSpec:
    success = {"kind": "sql", "resource": "db", "queries": [query], **more}
    return TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="p", success=success)


def command(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("autoclave")), *argv],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "AUTOCLAVE_HOME": str(home)},
    )


def test_commands_print_one_json_object_and_say_what_is_wrong(tmp_path: Path) -> None:
    listed = command("env", "list", "--json", home=tmp_path)
    assert listed.returncode == 0
    assert {"repo", "shop"} <= {row["name"] for row in json.loads(listed.stdout)["environments"]}

    made = command("env", "new", "desk", "--into", str(tmp_path / "desk"), "--json", home=tmp_path)
    assert json.loads(made.stdout)["environment"] == "desk"
    added = command("env", "add", str(tmp_path / "desk"), "--json", home=tmp_path)
    assert json.loads(added.stdout)["environment"] == "desk"
    shown = command("env", "show", "desk", "--json", home=tmp_path)
    assert json.loads(shown.stdout)["tasks"]["ids"] == ["add-bread"]
    assert json.loads(command("env", "show", "--schema", home=tmp_path).stdout)["title"] == "EnvironmentFile"

    text = (tmp_path / "desk" / "environment.toml").read_text()
    (tmp_path / "desk" / "environment.toml").write_text(text.replace("memory_mb", "memroy_mb"))
    wrong = command("env", "show", "desk", "--json", home=tmp_path)
    assert wrong.returncode == 2
    assert 'memroy_mb: unknown key; did you mean \\"memory_mb\\"' in wrong.stdout
    assert wrong.stderr == ""
    assert command("env", "show", "nothing", home=tmp_path).returncode == 2
