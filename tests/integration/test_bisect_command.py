"""`autoclave bisect` as a command: what it prints, writes and refuses, over a small world of files with a hook that misses some."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envs import LoadedEnvironment, load, skeleton
from envs.bisect import BisectReport, bisect, history
from envs.check import baseline
from envs.destructive import act
from envs.trial import Trial
from sandbox.model import ResetMethod, VerdictStatus
from sandbox.settings import Settings
from sandbox.wiring import Pool, machinery

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(300)]
HARMLESS = ["/bin/sh", "-c", "echo 'milk 99' > prices.txt"]
LEAVES = ["/bin/sh", "-c", "mkdir -p .cache && echo left > .cache/notes"]


@pytest.fixture
def desk(tmp_path: Path) -> LoadedEnvironment:
    skeleton.write("desk", kind="files", directory=tmp_path / "desk")
    file = tmp_path / "desk" / "environment.toml"
    file.write_text(file.read_text().replace('method = "restore"', 'method = "hook"'))
    return load(file)


def command(settings: Settings, *argv: str) -> subprocess.CompletedProcess[str]:
    places = {"HOME": settings.home, "STORE": settings.store, "SCRATCH": settings.scratch, "RUN": settings.run}
    return subprocess.run(
        [str(Path(sys.executable).with_name("autoclave")), *argv],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(settings.home), **{f"AUTOCLAVE_{k}": str(v) for k, v in places.items()}},
    )


async def lived(environment: LoadedEnvironment, settings: Settings, *, direct: bool = False) -> None:
    """Two trajectories on one namespace; the second leaves a directory that the hook does not know of."""
    async with Pool.open([environment], size=1, settings=settings) as pool:
        for name, actions in (("t-first", [HARMLESS]), ("t-second", [HARMLESS, LEAVES, ["ls"]])):
            async with pool.session("desk", trajectory=name, wait=200) as session:
                for argv in actions:
                    await session.run(argv)
                if direct:
                    session.endpoint("data")
        await pool.cleared(["t-first", "t-second"], timeout=200)


async def bisected(environment: LoadedEnvironment, settings: Settings, name: str, **options: tuple[str, ...]) -> BisectReport:
    async with machinery(settings) as (runtime, ledger):
        return await bisect(await history(name, ledger, settings), environment, runtime, ledger, **options)  # type: ignore[arg-type]


async def test_the_command_names_the_action_and_writes_an_entry_that_fails_alone(
    desk: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    await lived(desk, settings)
    file = desk.base / "environment.toml"

    done = command(settings, "bisect", "t-second", "--environment", str(desk.base), "--write", str(file), "--json")

    said = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert (said["trajectory"], said["action"]["number"], said["verdict"]) == ("t-second", 1, "mismatch"), said
    assert (said["first"], said["needs"], said["minimal"], said["unexplained"]) == (True, [], True, [])
    assert any(".cache" in field for field in said["fields"])
    assert (said["reproduction"]["fails_alone"], said["written"]) == (True, str(file))

    changed = load(file)
    (added,) = [a for a in changed.spec.destructive if a.name == said["reproduction"]["name"]]
    assert (added.argv, added.seen) == (tuple(LEAVES), "quick")
    async with machinery(settings) as (runtime, ledger):
        start = await baseline(changed, runtime, ledger)
        async with Trial.open(changed, runtime, start) as trial:
            assert await act(trial.instance, added) is None
            await trial.reset()
            assert {f"{m.probe}/{m.field}" for m in (await trial.look()).mismatches} >= set(said["fields"])

    refused = command(settings, "bisect", said["quarantine"], "--environment", str(desk.base))
    assert refused.returncode == 2
    assert "another version" in refused.stderr
    unnamed = command(settings, "bisect", "t-second")
    assert (unnamed.returncode, "--environment" in unnamed.stderr) == (2, True)
    unknown = command(settings, "bisect", "q-none", "--json")
    assert (unknown.returncode, json.loads(unknown.stdout)["error"]["type"]) == (2, "RecordMissing")


async def test_a_reset_that_holds_now_is_said_to_hold(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    await lived(desk, settings)

    report = await bisected(desk.with_reset(ResetMethod.RESTORE), settings, "t-second")

    assert (report.verdict, report.culprit, report.entry) == (VerdictStatus.CLEAN, None, None), report.as_json()


async def test_what_was_done_unseen_leaves_a_doubt(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    await lived(desk, settings, direct=True)

    report = await bisected(desk.with_reset(ResetMethod.RESTORE), settings, "t-second")

    assert report.verdict is VerdictStatus.INCONCLUSIVE
    assert "address of data" in str(report.as_json()["not_replayed"]["t-second"])


async def test_another_field_can_be_looked_for(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    await lived(desk, settings)

    other = await bisected(desk, settings, "t-second", patterns=("data/*nowhere*",))
    same = await bisected(desk, settings, "t-second", patterns=("data/*cache*",))

    assert (other.verdict, other.culprit) == (VerdictStatus.CLEAN, None)
    assert same.culprit is not None
    assert same.culprit[1].argv == tuple(LEAVES)


async def test_without_a_record_there_is_nothing_to_replay(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    await lived(desk, settings)
    for path in settings.actions.iterdir():
        path.unlink()

    refused = command(settings, "bisect", "t-second", "--environment", str(desk.base))

    assert refused.returncode == 2
    assert "AUTOCLAVE_ACTIONS_MB" in refused.stderr
