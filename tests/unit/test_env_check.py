"""`env check` over the fakes: what each reset misses is named, a blind probe is found out, a failing hook hides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from envs.check import CheckReport, check
from sandbox.clock import SystemClock
from sandbox.errors import ResetFailed
from sandbox.ledger import open_ledger
from sandbox.model import DestructiveAction, ResetMethod, ResetPolicy, VerdictStatus
from sandbox.testing import Faults, MemoryEnvironment, MemoryRuntime, MemoryStorage, memory_environment

ORDERS = DestructiveAction(name="orders-edited", argv=("set", "orders", "99"))
DEEP = DestructiveAction(name="deep-edited", argv=("set", "deep/settings", "other"))
ALIAS = DestructiveAction(name="alias-left", argv=("set", "alias", "rm"))
REFUSED = DestructiveAction(name="impossible", argv=("no-such-command",))


def environment(*actions: DestructiveAction, method: ResetMethod = ResetMethod.RESTORE) -> MemoryEnvironment:
    made = memory_environment(reset=ResetPolicy(method=method, hook=("reset",)))
    made.spec = dataclasses.replace(made.spec, destructive=actions)
    return made


async def run(
    tmp_path: Path,
    made: MemoryEnvironment,
    leaks: Mapping[ResetMethod, Sequence[str]] | None = None,
    *,
    faults: Faults | None = None,
    trajectories: int = 3,
    score: bool = False,
) -> CheckReport:
    runtime = MemoryRuntime(MemoryStorage(), leaks=leaks)
    runtime.faults = faults or runtime.faults
    async with open_ledger(tmp_path / "ledger.sqlite", durability="normal", clock=SystemClock()) as ledger:
        return await check(made, runtime, ledger, trajectories=trajectories, score=score)


async def test_a_reset_that_works_is_clean(tmp_path: Path) -> None:
    report = await run(tmp_path, environment(ORDERS, DEEP, ALIAS), score=True)

    assert report.verdict is VerdictStatus.CLEAN
    assert [s.name for s in report.steps] == ["probes", "baseline", "trajectories", "reset and compare", "repeat", "score"]
    assert all(s.ok for s in report.steps)
    assert report.score is not None
    assert (report.score.planted, report.score.caught, report.score.repaired, report.score.missed) == (3, 3, 3, ())
    shape = report.as_json()
    assert set(shape) >= {"environment", "baseline", "steps", "differences", "score", "in_force", "verdict"}
    assert set(shape["baseline"]) >= {"digest", "fields", "instances"}
    assert shape["baseline"]["instances"] == 2


@pytest.mark.parametrize("method", [ResetMethod.HOOK, ResetMethod.CLEAN])
async def test_what_a_reset_misses_is_named_field_by_field(tmp_path: Path, method: ResetMethod) -> None:
    report = await run(tmp_path, environment(ORDERS, DEEP, ALIAS, method=method), {method: ["file/alias", "file/deep/*"]})

    assert report.verdict is VerdictStatus.MISMATCH
    found = {m.field: (m.expected, m.actual) for m in report.differences}
    assert found["file/alias"] == (None, "rm")
    assert found["file/deep/settings"] == ("default", "other")
    assert "file/orders" not in found


async def test_probes_that_see_nothing_prove_nothing(tmp_path: Path) -> None:
    report = await run(tmp_path, environment(REFUSED))

    assert report.verdict is VerdictStatus.INCONCLUSIVE
    assert any("positive control" in p and "impossible" in p for p in report.problems)
    assert "not done: impossible (exit 127" in report.steps[2].detail


async def test_one_action_that_breaks_the_hook_does_not_hide_the_others(tmp_path: Path) -> None:
    made = environment(ORDERS, ALIAS, DEEP, method=ResetMethod.HOOK)
    faults = Faults()
    faults.fail("reset_in_place", ResetFailed("the hook ended with 3"), times=2)

    report = await run(tmp_path, made, {ResetMethod.HOOK: ["file/alias"]}, faults=faults, trajectories=1)

    assert {m.field for m in report.differences} == {"file/alias"}
    assert report.verdict is VerdictStatus.MISMATCH
    assert report.problems == ["after orders-edited, the reset by hook itself fails: ResetFailed: the hook ended with 3"]
    assert not report.steps[3].ok


async def test_a_failing_hook_alone_is_not_clean(tmp_path: Path) -> None:
    faults = Faults()
    faults.fail("reset_in_place", ResetFailed("no"), times=99)

    report = await run(tmp_path, environment(ORDERS, method=ResetMethod.HOOK), faults=faults)

    assert report.verdict is VerdictStatus.INCONCLUSIVE
    assert not report.differences


async def test_an_action_that_ends_the_instance_is_told_apart(tmp_path: Path) -> None:
    made = environment(ORDERS, DestructiveAction(name="kill-all", argv=("die",)), method=ResetMethod.CLEAN)

    report = await run(tmp_path, made, trajectories=1)

    assert report.verdict is VerdictStatus.CLEAN
    assert "kill-all ended the instance, which a pool restores" in report.steps[2].detail
