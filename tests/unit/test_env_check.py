"""`env check` over the fakes: what each reset misses is named, a blind probe is found out, a failing hook hides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs import check as check_module
from envs import destructive
from envs.browser import SETTLED_S
from envs.check import CheckReport, baseline, check
from envs.planting import Outcome, ProbeScore, survey
from envs.planting.candidates import own
from envs.trial import Trial
from sandbox.clock import SystemClock
from sandbox.errors import InstanceLost, LimitReached, ResetFailed, RuntimeUnavailable
from sandbox.ledger import open_ledger
from sandbox.model import (
    Baseline,
    BrowserAction,
    Depth,
    DestructiveAction,
    Mismatch,
    Problem,
    ResetMethod,
    ResetPolicy,
    Verdict,
    VerdictStatus,
)
from sandbox.ports import Instance, Subject
from sandbox.testing import Faults, MemoryEnvironment, MemoryRuntime, MemoryStorage, ScriptedVerifier, memory_environment

ORDERS = DestructiveAction(name="orders-edited", argv=("set", "orders", "99"))
DEEP = DestructiveAction(name="deep-edited", argv=("set", "deep/settings", "other"))
ALIAS = DestructiveAction(name="alias-left", argv=("set", "alias", "rm"))
NOTHING_DONE = DestructiveAction(name="nothing", argv=("get", "orders"))
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


async def test_what_was_not_done_is_not_what_the_probes_saw_nothing_of(tmp_path: Path) -> None:
    beside = await run(tmp_path, environment(NOTHING_DONE, REFUSED), trajectories=1)
    alone = await run(tmp_path, environment(REFUSED), trajectories=1)

    assert set(beside.problems) == {"positive control: without a reset, the probes saw nothing of nothing"}
    assert [p.startswith("positive control: nothing was destroyed: impossible (exit 127") for p in alone.problems] == [True, True]


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


async def test_an_action_that_meets_a_bound_of_the_instance_ends_no_check(tmp_path: Path) -> None:
    made = environment(DestructiveAction(name="fill-the-disk", argv=("set", "big", "x")), ORDERS)
    faults, stopped = Faults(), LimitReached("namespace check-1 was stopped: it holds more than limits.disk_mb")
    faults.fail("run", stopped)
    faults.fail("quiesce", stopped)  # as of an instance that was stopped for it

    report = await run(tmp_path, made, faults=faults, trajectories=1)

    assert report.verdict is VerdictStatus.CLEAN, report.as_json()
    assert "not done: fill-the-disk (namespace check-1 was stopped" in report.steps[2].detail


SILENT = Verdict(status=VerdictStatus.INCONCLUSIVE, depth=Depth.DEEP, problems=(Problem(probe="web", reason="no answer"),))
IN_A_BROWSER = DestructiveAction(name="draft", resource="web", browser=BrowserAction(visit="/"))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long `env check` waits, without waiting; what is done in a browser leaves `alias`."""
    waited: list[float] = []
    done = destructive.act

    async def act(instance: Instance, action: DestructiveAction) -> str | None:
        if action.browser is None:
            return await done(instance, action)
        await instance.run(("set", "alias", "rm"))
        return "it stopped on the way" if action.browser.script == "stop" else None

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(destructive, "act", act)
    monkeypatch.setattr(check_module, "asyncio", SimpleNamespace(sleep=sleep))
    return waited


@pytest.mark.parametrize(
    ("method", "times", "differs"), [(ResetMethod.HOOK, 2, {"file/alias"}), (ResetMethod.RESTORE, 1, set[str]())]
)
async def test_what_a_browser_writes_later_is_looked_for_before_a_reset_and_after_one_in_place(
    tmp_path: Path, waits: list[float], method: ResetMethod, times: int, differs: set[str]
) -> None:
    made = environment(IN_A_BROWSER, method=method)
    late = [VerdictStatus.CLEAN, None]  # None: what there is by then
    made.verifier.script.extend([*late, *(late if method is ResetMethod.HOOK else [])])
    report = await run(tmp_path, made, {ResetMethod.HOOK: ["file/alias"]}, trajectories=1)

    assert {m.field for m in report.differences} == differs
    assert not [problem for problem in report.problems if "positive control" in problem]
    assert waits == [SETTLED_S] * times


async def test_probes_that_give_no_answer_after_the_reset_are_not_asked_again(tmp_path: Path, waits: list[float]) -> None:
    made = environment(IN_A_BROWSER, method=ResetMethod.HOOK)
    made.verifier.script.extend([None, SILENT])

    report = await run(tmp_path, made, trajectories=1)
    assert "probe web: no answer" in report.problems


async def test_what_is_refused_on_the_way_and_what_nobody_sees_alone_are_looked_for_too(tmp_path: Path, waits: list[float]) -> None:
    stopped = dataclasses.replace(IN_A_BROWSER, name="stopped", browser=BrowserAction(script="stop"))
    for number, action in enumerate([stopped, dataclasses.replace(IN_A_BROWSER, blind="it ends with its tab")]):
        made = environment(action, method=ResetMethod.HOOK)
        made.verifier.script.extend([VerdictStatus.CLEAN, None])
        report = await run(tmp_path / str(number), made, {ResetMethod.HOOK: ["file/alias"]}, trajectories=1)

        assert {m.field for m in report.differences} == {"file/alias"}
        assert waits.pop() == SETTLED_S


async def test_nothing_is_waited_for_where_nothing_was_done_in_a_browser_or_can_be_seen(tmp_path: Path, waits: list[float]) -> None:
    blind = dataclasses.replace(IN_A_BROWSER, blind="it ends with its tab")
    for number, actions in enumerate([(ORDERS, NOTHING_DONE), (ORDERS, blind)]):
        made = environment(*actions, method=ResetMethod.HOOK)
        await run(tmp_path / str(number), made, trajectories=1)

    assert waits == []


@pytest.mark.parametrize(
    ("answer", "problem"), [(SILENT, "probe web: no answer"), (TimeoutError(), "probe all: reading did not end in time")]
)
async def test_probes_that_give_no_answer_before_the_reset_are_no_control(
    tmp_path: Path, answer: Verdict | Exception, problem: str
) -> None:
    made = environment(ORDERS)
    made.verifier.script.append(answer)

    report = await run(tmp_path, made, trajectories=1)
    assert report.verdict is VerdictStatus.INCONCLUSIVE
    assert report.problems == [f"positive control: {problem}"]
    assert not report.steps[2].ok


async def test_an_instance_that_is_lost_while_it_is_looked_at_after_a_reset_is_told(tmp_path: Path) -> None:
    made = environment(ORDERS)
    made.verifier.script.extend([None, InstanceLost("the browser's process has ended")])

    report = await run(tmp_path, made, trajectories=1)
    assert report.verdict is VerdictStatus.INCONCLUSIVE
    assert report.problems == [
        "after orders-edited, what the reset by restore left cannot be read: InstanceLost: the browser's process has ended"
    ]


async def test_an_action_that_its_author_calls_blind_need_not_be_seen_where_others_are(tmp_path: Path) -> None:
    blind = dataclasses.replace(NOTHING_DONE, name="out-of-sight", blind="it ends with the agent's sandbox")

    beside, alone = [await run(tmp_path, environment(*actions), trajectories=3) for actions in ((ORDERS, blind), (blind,))]

    assert beside.verdict is VerdictStatus.CLEAN, beside.problems
    assert alone.verdict is VerdictStatus.INCONCLUSIVE, "nothing shows that the probes see anything"


class Restless(ScriptedVerifier):
    """A verifier with a field that is another at every look, and a probe that never gives a full answer."""

    def __init__(self) -> None:
        super().__init__()
        self.gone_at = ""  # a text of `orders` at which nothing can be read

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        if subject.tree("state").read("orders").decode() == self.gone_at:
            raise RuntimeUnavailable("no engine answers")
        found = await super().check(subject, baseline, depth)
        clock = Mismatch(probe="memory", field="clock", expected="1", actual=str(len(self.checks)))
        silent = Problem(probe="web", reason=f"no answer from {subject.namespace}")
        return dataclasses.replace(
            found, mismatches=(*found.mismatches, clock), problems=(silent,), status=VerdictStatus.INCONCLUSIVE
        )


@pytest.mark.parametrize("method", [ResetMethod.RESTORE, ResetMethod.HOOK])
async def test_what_differs_anyway_is_not_the_sight_of_a_leak(tmp_path: Path, method: ResetMethod) -> None:
    made = environment(ORDERS, NOTHING_DONE, method=method)
    made.verifier = Restless()

    report = await run(tmp_path, made, score=True)

    assert report.score is not None
    assert (report.score.planted, report.score.caught, report.score.missed) == (2, 1, ("nothing",)), report.score.as_json()
    assert "memory/clock" in report.score.false_alarms


async def test_a_leak_that_could_not_be_looked_at_is_not_seen(tmp_path: Path) -> None:
    made = environment(ORDERS, ALIAS)
    verifier = made.verifier = Restless()
    async with open_ledger(tmp_path / "ledger.sqlite", durability="normal", clock=SystemClock()) as ledger:
        runtime = MemoryRuntime(MemoryStorage())
        start = await baseline(made, runtime, ledger)
        verifier.gone_at = "99"
        async with Trial.open(made, runtime, start) as trial:
            score = await survey(trial, own(made.spec.destructive), inapplicable={})

    assert (score.planted, score.caught) == (1, 1)
    assert "no engine answers" in score.as_json()["refused"]["orders-edited"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_start_that_fails_costs_one_leak_and_a_machine_that_fails_ends_it(tmp_path: Path, times: int) -> None:
    made = environment(ORDERS, ALIAS, DEEP, method=ResetMethod.HOOK)
    runtime = MemoryRuntime(MemoryStorage())

    def say(text: str) -> None:
        if "score: 1 of" in text:
            runtime.faults.fail("start", OSError("no space"), times=times)

    async with open_ledger(tmp_path / "ledger.sqlite", durability="normal", clock=SystemClock()) as ledger:
        start = await baseline(made, runtime, ledger)
        async with Trial.open(made, runtime, start) as trial:
            if times == 3:
                with pytest.raises(OSError, match="no space"):
                    await survey(trial, own(made.spec.destructive), inapplicable={}, say=say)
                return
            score = await survey(trial, own(made.spec.destructive), inapplicable={}, say=say)

    assert (score.planted, score.caught) == (2, 2)
    assert "no space" in score.as_json()["refused"]["orders-edited"]


async def test_a_process_that_outlives_the_reset_is_found_as_a_pool_finds_it(tmp_path: Path) -> None:
    stubborn = {ResetMethod.CLEAN: ["process/stubborn"], ResetMethod.RESTORE: ["process/stubborn"]}
    made = environment(DestructiveAction(name="stubborn", argv=("spawn", "stubborn")))

    report = await run(tmp_path, made, stubborn, score=True)

    assert report.score is not None
    assert (report.score.left, report.score.repaired) == (("stubborn",), 0)


def test_what_the_reset_must_undo_and_does_not_is_a_finding() -> None:
    left = Outcome(
        name="a", kind="files", what="", declared=Depth.QUICK, repaired_by=ResetMethod.CLEAN, seen=Depth.QUICK, left="data/a"
    )
    recorded = Baseline(key="k", digest="d", readings=(), instances=2)
    for method, verdict in ((ResetMethod.RESTORE, VerdictStatus.MISMATCH), (ResetMethod.HOOK, VerdictStatus.CLEAN)):
        report = CheckReport(environment="e", method=method, baseline=recorded)
        report.score = ProbeScore(method=method, outcomes=(left,))
        assert report.verdict is verdict
