"""A new baseline: shown as a difference to the one before it, with what made it necessary; and examined itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from envs import check as procedure
from probes import Findings, Probe, ProbeContext
from probes.baseline import settle
from sandbox.audit import examine
from sandbox.model import Baseline, Depth, Isolation, Reading, ResetMethod, StoredScore, VerdictStatus
from sandbox.pool.review import changes
from sandbox.ports import Subject
from sandbox.testing import MemoryRuntime, memory_environment
from sandbox.testing.verifier import ScriptedVerifier


async def test_what_changed_is_kept_with_the_new_baseline(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    pool = await bench.open(memory_environment())
    first = pool.environment("memory").golden.baseline
    assert (first.state, first.former, first.changes) == ("golden", "", ())
    await bench.close()

    changed = memory_environment(files={"orders": "4", "deep/settings": "default", "new": "1"}, version="2")
    pool = await bench.open(changed)
    second = pool.environment("memory").golden.baseline
    assert second.former == first.digest
    assert set(second.changed) == {"environment", "snapshot"}
    assert {(m.field, m.expected, m.actual) for m in second.changes} == {("file/orders", "3", "4"), ("file/new", None, "1")}
    assert "the baseline changed: review the difference" in caplog.messages
    await bench.close()

    pool = await bench.open(changed)  # known: nothing new to review, and what was found is still there
    again = pool.environment("memory").golden.baseline
    assert (again.key, again.former, again.changed, again.changes) == (second.key, first.digest, second.changed, second.changes)


async def test_another_version_of_the_runtime_demands_another_baseline(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await bench.open(memory_environment())
    first = pool.environment("memory").golden.baseline
    await bench.close()

    async def identity(self: MemoryRuntime, environment: Any) -> str:
        return "memory 2"

    monkeypatch.setattr(MemoryRuntime, "identity", identity)
    pool = await bench.open(memory_environment())
    second = pool.environment("memory").golden.baseline
    assert second.key != first.key
    assert (second.former, second.changed, second.changes) == (first.digest, ("runtime",), ())


@dataclass
class HistoryProbe:
    """Reads a repository in which more can be found than the task's commit."""

    name: str = "code"
    digest: str = "1"
    depth: Depth = Depth.QUICK
    alone: bool = False

    def depth_of(self, field: str, *, in_place: bool) -> Depth:
        return Depth.QUICK

    async def read(self, context: ProbeContext) -> Findings:
        return Findings(fields={"git history/commits": "3"})


class Suspicious(ScriptedVerifier):
    async def record(self, subjects: Sequence[Subject], rebuilt: Subject | None, *, key: str) -> Baseline:
        return replace(await super().record(subjects, rebuilt, key=key), suspicions=("code: HEAD has 3 commits of history",))


async def test_both_baselines_of_a_shared_instance_are_reviewed(bench: Any) -> None:
    sharing: dict[str, Any] = {"isolation": Isolation.DATABASE, "namespaces_per_instance": 2}
    pool = await bench.open(memory_environment("shared", **sharing))
    first = pool.environment("shared").golden.baseline
    await bench.close()
    pool = await bench.open(memory_environment("shared", files={"orders": "4"}, version="2", **sharing))
    second = pool.environment("shared").golden.baseline
    assert second.former == first.digest
    assert ("file/orders", "3", "4") in {(m.field, m.expected, m.actual) for m in second.changes}
    (instance, before) = await bench.ledger.baselines("shared (instance)")
    assert instance.former == before.digest


def test_a_baseline_is_examined_when_it_is_recorded() -> None:
    probe: Probe = HistoryProbe()
    read = {"code": {"git history/commits": "3"}}
    recorded = settle([probe], [read, read], read, key="k", volatile=(), recorded=None)
    assert [line.split(":")[0] for line in recorded.suspicions] == ["code"]


async def test_what_an_agent_could_exploit_is_a_finding_of_checks_and_audits(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    environment = memory_environment()
    environment.verifier = Suspicious()
    pool = await bench.open(environment)
    assert "baseline is suspicious" in caplog.messages
    await bench.quiet()
    report = await examine(pool, bench.ledger, [environment], clock=bench.clock, started=bench.clock.now())
    assert report.problems == ("the baseline of memory itself: code: HEAD has 3 commits of history",)
    assert report.verdict is not VerdictStatus.CLEAN
    checked = await procedure.check(environment, bench.runtime, bench.ledger)
    assert "the baseline itself: code: HEAD has 3 commits of history" in checked.problems
    assert checked.verdict is VerdictStatus.INCONCLUSIVE
    assert not next(step for step in checked.steps if step.name == "baseline").ok
    assert checked.as_json()["baseline"]["suspicions"] == ["code: HEAD has 3 commits of history"]


async def test_a_score_holds_for_the_newest_baseline_of_its_own_runtime(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    here = pool.environment("memory").golden.baseline
    for number, runtime in enumerate(("docker, engine 1", "docker, engine 2")):
        there = replace(here, key=f"{number}", parts={**here.parts, "runtime": runtime}, recorded=bench.clock.now())
        await bench.ledger.save_baseline(there, environment="d", environment_name="memory")
        await bench.clock.advance(1)
        for baseline, method in ((here, ResetMethod.CLEAN), (there, ResetMethod.RESTORE)):
            body = {"planted": 1}
            score = StoredScore(baseline=baseline.key, environment="memory", method=method, catalogue="c", body=body)
            await bench.ledger.save_score(score)

    report = await examine(pool, bench.ledger, [memory_environment()], clock=bench.clock, started=bench.clock.now())

    assert sorted((s.method.value, s.runtime.split(" ")[0], s.stale) for s in report.scores) == [
        ("clean", "memory", ()),
        ("restore", "docker", ()),
        ("restore", "docker", ("baseline",)),
    ]


def test_differences_are_field_by_field() -> None:
    before = [Reading(probe="p", depth=Depth.QUICK, fields={"a": "1", "gone": "x"})]
    after = [
        Reading(probe="p", depth=Depth.DEEP, fields={"a": "1", "b": "2"}),
        Reading(probe="q", depth=Depth.QUICK, fields={"c": ""}),
    ]
    assert [(m.probe, m.field, m.expected, m.actual) for m in changes(before, after)] == [
        ("p", "b", None, "2"),
        ("p", "gone", "x", None),
        ("q", "c", None, ""),
    ]
