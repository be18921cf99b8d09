"""`env check --fail-under`: the exit code where the probes missed more than somebody allows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.commands import checking
from envs.planting import Outcome, ProbeScore
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid
from sandbox.ledger import open_ledger
from sandbox.model import Depth, DestructiveAction, ResetMethod
from sandbox.testing import MemoryRuntime, MemoryStorage, memory_environment

PATHS = ("orders", "alias", "deep/settings")  # each of the three trajectories has one that is seen, and one that leaves nothing
ACTIONS = tuple(
    DestructiveAction(name=f"{word}-{path}", argv=argv)
    for path in PATHS
    for word, argv in (("edited", ("set", path, "99")), ("looked-at", ("get", "orders")))
)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command, over an environment half of whose own leaks are seen."""
    environment = memory_environment()
    environment.spec = dataclasses.replace(environment.spec, destructive=ACTIONS)
    runtime = MemoryRuntime(MemoryStorage())

    @asynccontextmanager
    async def machinery(_: Any) -> AsyncIterator[Any]:
        async with open_ledger(tmp_path / "ledger.sqlite", clock=SystemClock()) as ledger:
            yield runtime, ledger

    monkeypatch.setattr("sandbox.wiring.machinery", machinery)
    monkeypatch.setattr(checking, "opened", lambda *_: environment)
    return lambda **options: checking.check("memory", home=tmp_path, **options)


@pytest.mark.parametrize(("percent", "code"), [(None, 0), (0, 0), (50, 0), (50.1, 1), (100, 1)])
def test_a_score_below_it_is_exit_code_1_and_says_so(
    check: Callable[..., int], capsys: pytest.CaptureFixture[str], percent: float | None, code: int
) -> None:
    assert check(score=True, fail_under=percent, json=True) == code

    out = capsys.readouterr()
    found = json.loads(out.out)
    assert (found["verdict"], found["score"]["share"]) == ("clean", 0.5)
    said = f"the probes saw 3 of 6 planted leaks: less than --fail-under {percent} %"
    assert (said in " ".join(out.err.split())) is bool(code)


def test_a_sample_is_a_score(check: Callable[..., int]) -> None:
    assert [check(sample=1000, fail_under=percent) for percent in (50, 51)] == [0, 1]


@pytest.mark.parametrize("percent", [-1, 100.5, float("nan"), float("inf")])
def test_what_is_no_percentage_is_refused(check: Callable[..., int], percent: float) -> None:
    with pytest.raises(EnvironmentInvalid, match="is no percentage") as refused:
        check(score=True, fail_under=percent)
    assert (refused.value.exit_code, refused.value.fix) == (2, "give a number from 0 to 100")


def test_without_a_score_it_means_nothing(check: Callable[..., int]) -> None:
    with pytest.raises(EnvironmentInvalid, match="without a score") as refused:
        check(fail_under=90)
    assert refused.value.exit_code == 2


def test_where_nothing_was_planted_no_share_was_seen() -> None:
    empty = ProbeScore()
    blind = ProbeScore(
        outcomes=(Outcome(name="a", kind="own", what="", declared=None, repaired_by=ResetMethod.RESTORE, blind="it ends with it"),)
    )
    assert [score.under(percent) for score in (empty, blind) for percent in (0, 1)] == [False, True, False, True]


def test_all_is_all() -> None:
    one = Outcome(name="a", kind="own", what="", declared=Depth.DEEP, repaired_by=ResetMethod.RESTORE, seen=Depth.DEEP)
    missed = dataclasses.replace(one, seen=None)
    assert not ProbeScore(outcomes=(one,) * 999).under(100)
    assert ProbeScore(outcomes=(*(one,) * 999, missed)).under(100)
