"""A stored probe score holds for the environment, the probes and the leaks that it was measured with, and is stale with others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from envs import LoadedEnvironment, define, page
from envs.check import CheckReport
from envs.planting import Outcome, ProbeScore
from envs.planting.kept import kept, stored
from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.model import Baseline, Depth, ResetMethod

SEEN = Outcome(
    name="data/edit",
    kind="files",
    what="an edit",
    declared=Depth.QUICK,
    repaired_by=ResetMethod.CLEAN,
    seen=Depth.QUICK,
    probes=("data",),
)
MISSED = replace(SEEN, name="data/odd", seen=None, probes=(), left="data/odd")
BOTH = replace(SEEN, name="data/both", probes=("data", "instance"))
SCORE = ProbeScore(outcomes=(SEEN, MISSED, BOTH))


def environment(base: Path, **tables: Any) -> LoadedEnvironment:
    return define({"name": "desk", "version": "1", "resources": {"data": {"kind": "files", "files": {"a": "1"}}}, **tables}, base)


def baseline(of: LoadedEnvironment, key: str = "k") -> Baseline:
    parts = {"environment": of.spec.digest, "probes": of.verifier.digest, "runtime": "namespaces, bubblewrap 0.11, kernel 6.1"}
    return Baseline(key=key, digest="d", readings=(), instances=2, parts=parts, state="golden", recorded=datetime.now(UTC))


async def test_a_score_is_shown_until_the_environment_or_its_probes_change(tmp_path: Path) -> None:
    desk = environment(tmp_path)
    probed = environment(tmp_path, probes=[{"name": "count", "kind": "command", "argv": ["ls"]}])
    async with open_ledger(tmp_path / "ledger", durability="normal", clock=SystemClock()) as ledger:
        await ledger.save_baseline(baseline(desk), environment=desk.spec.digest, environment_name="desk")
        await ledger.save_score(stored(SCORE, desk, baseline(desk)))

        (now,) = await kept(desk, ledger)
        (later,) = await kept(probed, ledger)

    assert (now.stale, later.stale) == ((), ("environment", "probes"))
    assert now.as_json() | {"at": None} == {
        "method": "restore",
        "state": "golden",
        "runtime": "namespaces",
        "at": None,
        "planted": 3,
        "caught": 2,
        "repaired": 2,
        "missed": ["data/odd"],
        "left": ["data/odd"],
        "false_alarms": [],
        "sample": None,
        "baseline": "k",
        "stale": [],
    }


async def test_a_score_of_other_leaks_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = environment(tmp_path)
    async with open_ledger(tmp_path / "ledger", durability="normal", clock=SystemClock()) as ledger:
        await ledger.save_baseline(baseline(desk), environment=desk.spec.digest, environment_name="desk")
        await ledger.save_score(replace(stored(SCORE, desk, baseline(desk)), catalogue="another"))

        assert [k.stale for k in await kept(desk, ledger)] == [("catalogue",)]


async def test_what_holds_comes_first_and_a_whole_survey_before_a_sample(tmp_path: Path) -> None:
    desk = environment(tmp_path)
    async with open_ledger(tmp_path / "ledger", durability="normal", clock=SystemClock()) as ledger:
        for key in ("old", "new"):
            made = baseline(desk, key)
            parts = made.parts if key == "new" else {**made.parts, "probes": "others"}
            await ledger.save_baseline(replace(made, parts=parts), environment=desk.spec.digest, environment_name="desk")
            await ledger.save_score(stored(SCORE, desk, made))
        await ledger.save_score(stored(replace(SCORE, seed=1, of=9), desk, baseline(desk, "new")))

        found = await kept(desk, ledger)

    assert [(k.score.baseline, k.score.sampled) for k in found] == [("new", False), ("new", True), ("old", False)]


async def test_a_page_shows_what_its_own_check_measured_though_a_whole_survey_is_kept(tmp_path: Path) -> None:
    desk = environment(tmp_path)
    sample = ProbeScore(outcomes=(MISSED,), seed=1, of=9)
    async with open_ledger(tmp_path / "ledger", durability="normal", clock=SystemClock()) as ledger:
        await ledger.save_baseline(baseline(desk), environment=desk.spec.digest, environment_name="desk")
        for score in (replace(SCORE, outcomes=(SEEN,)), sample):
            await ledger.save_score(stored(score, desk, baseline(desk)))
        found = await kept(desk, ledger)

    report = CheckReport(environment="desk", method=ResetMethod.RESTORE, baseline=baseline(desk), score=sample)
    page.write(report, found, at=datetime.now(UTC), path=tmp_path / "page.html")

    assert "a sample of 9 leaks, seed 1" in (tmp_path / "page.html").read_text()
    assert "runtime namespaces" in (tmp_path / "page.html").read_text()


def test_what_only_one_probe_saw_is_what_would_be_missed_without_it() -> None:
    assert (SCORE.alone("data"), SCORE.alone("instance")) == (("data/edit",), ())
    assert SCORE.as_json()["only_seen_by"] == {"data": 1, "instance": 0}


def test_left_is_broken_only_where_the_reset_is_strong_enough() -> None:
    hard = replace(MISSED, repaired_by=ResetMethod.RESTORE)
    under = {method: ProbeScore(method=method, outcomes=(MISSED, hard)) for method in ResetMethod}

    assert len(under[ResetMethod.HOOK].broken) == 0
    assert len(under[ResetMethod.CLEAN].broken) == 1
    assert len(under[ResetMethod.RESTORE].broken) == 2
