"""`env new --from` and `env baseline --discover` on real instances: what is proposed makes a baseline that holds."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import envs
from envs import check
from envs.discovery.observe import observe
from envs.discovery.procedure import begin, discover
from envs.discovery.unstable import left_over
from envs.environment import load
from envs.planting import candidates, survey
from envs.trial import Trial
from sandbox.settings import Settings
from sandbox.wiring import machinery, open_pool

ENVIRONMENTS = Path(envs.__file__).parent
pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(900)]

# A service that writes when and under which number it began, and goes on counting.
APP = """
import itertools, os, socket, sys, time, uuid
state = sys.argv[2]
open(f"{state}/started", "w").write(str(time.time_ns()))
open(f"{state}/run-{uuid.uuid4()}", "w").write("x")
open(f"{state}/kept", "w").write("same")
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen()
listener.settimeout(0.2)
for n in itertools.count():
    open(f"{state}/ticks", "w").write(str(n))
    try: listener.accept()[0].close()
    except TimeoutError: pass
"""
SERVICE = """
name = "clock"
version = "1"
[resources.clock]
kind = "service"
argv = ["/usr/bin/python3", "-I", "/app/clock.py", "{socket}", "/srv/clock"]
app = "app"
state = "/srv/clock"
"""


async def test_what_a_service_does_by_itself_is_found_and_declaring_it_makes_a_baseline(
    settings: Settings, passable_dir: Path, nothing_left: None
) -> None:
    base = passable_dir / "clock"
    (base / "app").mkdir(parents=True)
    (base / "app" / "clock.py").write_text(APP)
    (base / "environment.toml").write_text(SERVICE)
    async with machinery(settings) as (runtime, ledger):
        found = await discover(load(base), runtime, instances=3, later_s=1.0)
        patterns = {p.pattern for p in found.proposals}
        assert found.left == ()
        (base / "environment.toml").write_text(SERVICE + found.text)
        start = await check.baseline(load(base), runtime, ledger)
        again = await discover(load(base), runtime, instances=2, later_s=1.0)

    assert any("started" in p for p in patterns)
    assert any("ticks" in p for p in patterns)
    assert any("run-*" in p for p in patterns), patterns
    assert not any("kept" in p for p in patterns)
    assert start.baseline.fields > 0
    assert again.proposals == ()


@pytest.mark.postgres
async def test_a_database_is_drafted_from_its_address_and_its_password_is_not_written_down(
    settings: Settings, passable_dir: Path, nothing_left: None
) -> None:
    base = passable_dir / "origin"
    base.mkdir()
    (base / "seed.sql").write_text(
        "create schema depot; create table depot.items (id int primary key generated always as identity, name text);"
        "insert into depot.items (name) select 'item ' || g from generate_series(1, 700) g;"
        "create function depot.twice(a int) returns int language sql as 'select a * 2';"
        "grant usage on schema depot to agent; grant select on depot.items, depot.items_id_seq to agent;"
    )
    (base / "environment.toml").write_text(
        'name = "origin"\nversion = "1"\n[resources.db]\nkind = "postgres"\ndatabase = "tickets"\nseed = ["seed.sql"]\n'
    )
    origin = dataclasses.replace(settings, home=settings.home / "origin")
    async with open_pool([load(base)], size=1, settings=origin) as pool, pool.session("origin", wait=300) as session:
        parts: dict[str, Any] = conninfo_to_dict(session.endpoint("db"))
        address = f"postgresql://{parts['user']}:secret-of-mine@{quote(parts['host'], safe='')}/{parts['dbname']}"
        files, found = await begin(address, "copy", passable_dir / "copy", settings=settings, instances=2)

    written = "".join(p.read_text() for p in files)
    assert "secret-of-mine" not in written
    assert found.left == ()
    async with (
        open_pool([load(files[0])], size=1, settings=settings) as pool,
        pool.session("copy", wait=300) as session,
        await psycopg.AsyncConnection.connect(session.endpoint("db"), autocommit=True) as connection,
    ):
        rows = await (await connection.execute("select count(*), max(name), depot.twice(4) from depot.items")).fetchone()
        await connection.execute("insert into depot.items (name) values ('mine')")
    assert rows == (700, "item 99", 8)


def test_a_directory_is_drafted_by_the_command(settings: Settings, passable_dir: Path, nothing_left: None) -> None:
    source, into = passable_dir / "source", passable_dir / "mine"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_text("a")
    command = [sys.executable, "-m", "sandbox.cli.main", "env", "new", "mine", "--from", str(source), "--into", str(into)]
    done = subprocess.run(
        [*command, "--instances", "2", "--home", str(settings.home), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["discovery"]["left"] == []
    assert told["discovery"]["runtime"] == "namespaces"
    assert {p.kind for p in load(into).spec.probes} == {"files", "process"}
    again = subprocess.run([*command, "--home", str(settings.home)], capture_output=True, text=True, timeout=600, check=False)
    assert again.returncode == 2
    assert "is not empty" in again.stderr


INSTANCES = int(os.environ.get("AUTOCLAVE_INSTANCES", "100"))


@pytest.mark.acceptance
@pytest.mark.postgres
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("which", ["shop", "repo"])
async def test_a_draft_of_a_world_of_ours_sees_the_whole_catalogue_and_holds_in_a_hundred_instances(
    which: str, settings: Settings, passable_dir: Path, nothing_left: None
) -> None:
    """Drafted from the database's address, or from the repository. The description by hand sees every leak (test_probe_scores)."""
    origin = dataclasses.replace(settings, home=settings.home / "origin")
    async with machinery(origin) as (runtime, ledger):
        world = load(ENVIRONMENTS / which)
        async with Trial.open(world, runtime, await check.baseline(world, runtime, ledger)) as trial:
            given = as_url(trial.instance.subject().endpoint("db")) if which == "shop" else committed(passable_dir / "library")
            files, drafted = await begin(given, "copy", passable_dir / "copy", settings=settings)
    environment = load(files[0])
    assert drafted.left == ()

    async with machinery(settings) as (runtime, ledger):
        async with Trial.open(environment, runtime, await check.baseline(environment, runtime, ledger)) as trial:
            found, missing = await candidates(environment, trial.instance)
            score = await survey(trial, found, inapplicable=missing)
        seen = await observe(environment, runtime, instances=INSTANCES, later_s=1.0)

    print(f"\n{which}: {score.caught} of {score.planted} seen, in {INSTANCES} instances {len(score.false_alarms)} false alarms")
    assert left_over(seen.readings, environment.spec.volatile) == []
    assert (score.left, score.false_alarms) == ((), ())
    assert score.share >= 0.95
    assert score.planted >= 70


def committed(base: Path) -> str:
    """The library of `repo` as somebody has it: a repository with a commit."""
    shutil.copytree(ENVIRONMENTS / "repo" / "library", base, ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=base, check=True, timeout=60)
    return str(base)


def as_url(address: str) -> str:
    """An address of libpq's `name=value` form, as an author has it."""
    parts: dict[str, Any] = conninfo_to_dict(address)
    names = ("host", "user", "dbname", "passfile")
    return "postgresql://?" + "&".join(f"{name}={quote(parts[name], safe='')}" for name in names if name in parts)


@pytest.mark.acceptance
@pytest.mark.browser
@pytest.mark.timeout(7200)
async def test_a_hundred_instances_of_the_portal_have_no_unstable_field(settings: Settings, nothing_left: None) -> None:
    """Its description has no probes of its own, and calls no field volatile: what discovery proposes is what stands there."""
    portal = load(ENVIRONMENTS / "portal")
    assert (portal.spec.probes, portal.spec.volatile) == ((), ())
    async with machinery(settings) as (runtime, _):
        found = await discover(portal, runtime, instances=INSTANCES)

    assert [u.name for u in found.left] == []
    assert found.proposals == ()
