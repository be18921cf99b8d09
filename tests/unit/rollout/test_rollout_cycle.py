"""The cycle and the map over a real loop in memory: stages that add up, spans of all seven kinds, four answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout.batches import SyncRule
from rollout.drive import Driven, drive
from rollout.engines.engine import PublishReport
from rollout.engines.scripts import call
from rollout.errors import EngineLost, ToolFault
from rollout.groups import GroupRule
from rollout.judging import Judge, Verdict, judged_again
from rollout.learner.learner import Update
from rollout.meters.cycle import cycles, stages
from rollout.meters.events import EVENTS, Events, read_events
from rollout.meters.map import trajectory_map
from rollout.meters.measure import Evidence, activity, began, stored, used
from rollout.meters.sampler import Sampler
from rollout.meters.spans import SpanKind, Stage
from rollout.record import Trajectory, Turn
from rollout.summary import summarise
from sandbox.errors import RecordMissing
from sandbox.model import Score

LONG_S = 2000.0
FAIL = call("do", command="set orders open")


class Slow:
    """A learner whose updates take long."""

    name = "slow"

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    async def update(self, batch: Any) -> Update:
        await self._clock.sleep(LONG_S)
        return Update(publish=True)


async def driven(rolled: Any, *, learner: bool = True) -> tuple[Evidence, Driven]:
    """Run to the end with events, and return what is known of it."""
    events = Events(rolled.clock, rolled.home / EVENTS)
    rolled.meters = events
    async with rolled.ticking(20.0), rolled.open() as loop:
        slow = Slow(rolled.clock) if learner else None
        publish = rolled.engine.publish

        async def late(weights: Path | None, version: int) -> PublishReport:
            await rolled.clock.sleep(LONG_S / 2)
            report: PublishReport = await publish(weights, version)
            return report

        rolled.engine.publish = late
        found = await drive(loop, slow, limit_s=3600)
    events.flush()
    books = rolled.books
    return Evidence(records=books.records, outcomes=books.outcomes, events=events.seen), found


async def sleep(clock: Any, seconds: float) -> None:
    await clock.sleep(seconds)


def slow_judge(clock: Any, seconds: float) -> Judge:
    async def judge(session: Any, draft: Any) -> Verdict:
        await clock.sleep(seconds)
        return Verdict(score=await session.score())

    return judge


async def test_in_a_serial_run_the_stages_add_up_to_the_cycle(rolled: Any) -> None:
    """One trajectory at a time, every stage long: what was measured of each, summed, is the cycle within a hundredth."""
    rolled.change(
        groups=3, group_rule=GroupRule(size=1, min_survivors=1, keep_flat=True), sync=SyncRule(groups=1, max_gap=0), high=4
    )
    rolled.size, rolled.wait_s = 1, LONG_S
    rolled.tool.wait = lambda session: sleep(rolled.clock, LONG_S)
    rolled.tool.limit_s = 10 * LONG_S
    rolled.parts_change = {"judge": slow_judge(rolled.clock, LONG_S)}
    evidence, _ = await driven(rolled)
    found = cycles(evidence.records, evidence.events)
    table = stages(evidence.records, evidence.events)

    assert len(found) == 3
    for cycle in found:
        assert cycle.ends_with == "published"
        assert sum(span.seconds for span in cycle.path) == pytest.approx(cycle.seconds, rel=0.01)
    whole = sum(c.seconds for c in found)
    assert sum(row["elapsed_s"] for row in table["stages"].values()) == pytest.approx(whole, rel=0.01)
    assert table["between_share"] < 0.01
    rows = table["stages"]
    measured = sum(row["service_s"] + row["queue_s"] for row in rows.values())  # by each part's own clock, not by the path
    assert measured == pytest.approx(whole, rel=0.01)
    assert rows["generation"]["service_s"] == pytest.approx(6 * LONG_S, rel=0.05)
    assert rows["reward"]["service_s"] == pytest.approx(3 * LONG_S, rel=0.05)
    assert rows["optimisation"]["service_s"] == pytest.approx(4.5 * LONG_S, rel=0.05)
    assert set(rows) == {stage.value for stage in Stage}


async def test_a_stage_without_compute_can_set_the_length(rolled: Any) -> None:
    """A tool that only waits: its service is most of the path, and the model's share of it is small."""
    rolled.change(groups=2, sync=SyncRule(groups=1))
    rolled.tool.wait = lambda session: sleep(rolled.clock, LONG_S)
    rolled.tool.limit_s = 10 * LONG_S
    rolled.tool_limit = 1
    evidence, _ = await driven(rolled, learner=False)
    table = stages(evidence.records, evidence.events)

    assert table["dominant"] == "environment"
    assert table["stages"]["environment"]["share_of_path"] > 0.9
    assert table["ends_with"] == {"shipped": 2}
    assert table["longest_on_path"][0]["stage"] == "environment"


async def test_the_cycle_is_from_the_first_choice_to_the_publication(rolled: Any) -> None:
    rolled.change(groups=2, sync=SyncRule(groups=2))
    evidence, _ = await driven(rolled)
    (cycle,) = cycles(evidence.records, evidence.events)
    at = {kind: [e["at"] for e in evidence.events if e["kind"] == kind] for kind in ("select", "published")}

    assert cycle.selected == min(at["select"])
    assert cycle.available == max(at["published"])
    assert cycle.seconds == pytest.approx(cycle.available - cycle.selected)


async def test_one_trajectory_shows_all_seven_kinds_of_span(rolled: Any) -> None:
    """A fault of the tool, a publication in the middle, a score, a batch, an update."""
    rolled.change(groups=2, sync=SyncRule(groups=1), retries=9)
    faults = [ToolFault("gone for a moment")]

    async def wait(session: Any) -> None:
        await rolled.clock.sleep(40.0)
        if faults:
            raise faults.pop()

    rolled.tool.wait, rolled.wait_s, rolled.tool.limit_s = wait, 40.0, LONG_S
    rolled.parts_change = {"judge": slow_judge(rolled.clock, 40.0)}
    evidence, _ = await driven(rolled)
    retried = [t for t, r in evidence.records.items() if any(a.retries for a in r.own_actions)]
    found = trajectory_map(stored(rolled.home), retried[0], run="run")

    assert {kind: count > 0 for kind, count in found["kinds"].items()} == {kind.value: True for kind in SpanKind}
    starts = [s["at_s"] for s in found["spans"]]
    assert starts == sorted(starts)
    json.dumps(found)


async def test_the_map_answers_four_questions(rolled: Any) -> None:
    rolled.change(groups=2, sync=SyncRule(groups=1))
    rolled.tool.wait, rolled.wait_s = (lambda session: sleep(rolled.clock, 40.0)), 40.0
    rolled.tool.limit_s = LONG_S
    _, ran = await driven(rolled)
    summarise(rolled.loop, ran, in_force={})  # writes down what only the process knew: limits and owners
    evidence = stored(rolled.home)
    found = trajectory_map(evidence, "run-0-0", run="run")
    answers = found["answers"]

    assert answers["held_while_waiting"]["waits"]["do"]["held"] == ["a place among the sessions", "its namespace"]
    assert answers["held_while_waiting"]["model_slot_held_while_a_tool_worked_s"] == 0
    assert answers["ran_beside_it"]["trajectories"] >= 1
    assert (answers["what_ended_it"]["reason"], answers["what_ended_it"]["class"]) == ("final", "ok")
    assert answers["what_ended_it"]["what_would_end_one"]["dead_tool"] == "infra"
    assert all(answers["needed_by_an_update"]["artifacts"].values())
    assert answers["needed_by_an_update"]["clearance"] == "cleared"
    assert answers["needed_by_an_update"]["batch"].startswith("run-batch-")
    owners = {d["name"]: (d["owner"], d["limit"]) for d in found["dependencies"]}
    assert owners["model"] == ("tests", 4)
    assert all(owner for owner, _ in owners.values())
    with pytest.raises(RecordMissing):
        trajectory_map(evidence, "nobody")


def test_the_path_goes_through_the_update_that_let_a_group_begin(bare: Callable[..., Trajectory]) -> None:
    """`g2` may begin only when the first batch is learned from; the second batch waits for it. By hand: a 0-5, its batch 5-6, the
    update 6-16, the publication 16-20, c 20-30, the second batch 30-31."""
    took = {"a": ("g0", 0.0, 5.0), "b": ("g1", 0.0, 3.0), "c": ("g2", 20.0, 10.0)}
    records = {
        name: bare(
            name,
            group=group,
            task="t",
            turns=(Turn(start=0, end=0, finish="stop", service_s=seconds),),
            began=start,
            duration_s=seconds,
        )
        for name, (group, start, seconds) in took.items()
    }
    events: list[dict[str, Any]] = []
    for name, (group, start, seconds) in took.items():
        end = start + seconds
        events.append({"kind": "select", "group": group, "at": start})
        events.append({"kind": "stored", "trajectory": name, "queue_s": 0.0, "began": end, "at": end})
        events.append({"kind": "member", "trajectory": name, "at": end})
        events.append({"kind": "final", "group": group, "at": end})
    events += [
        {"kind": "batch", "batch": "1", "groups": ["g0"], "trajectories": ["a"], "version": 0, "began": 5.0, "at": 6.0},
        {"kind": "update", "batch": "1", "began": 6.0, "at": 16.0, "publish": True},
        {"kind": "published", "version": 1, "began": 16.0, "at": 20.0},
        {
            "kind": "batch",
            "batch": "2",
            "groups": ["g1", "g2"],
            "trajectories": ["b", "c"],
            "version": 1,
            "began": 30.0,
            "at": 31.0,
        },
    ]
    _, second = cycles(records, events)

    assert (second.selected, second.available) == (0.0, 31.0)
    assert second.between_s == pytest.approx(0.0)
    assert [(s.stage, s.start, s.seconds) for s in second.path] == [
        (Stage.GENERATION, 0.0, 5.0),
        (Stage.ADVANTAGE, 5.0, 1.0),
        (Stage.OPTIMISATION, 6.0, 10.0),
        (Stage.OPTIMISATION, 16.0, 4.0),
        (Stage.GENERATION, 20.0, 10.0),
        (Stage.ADVANTAGE, 30.0, 1.0),
    ]


async def test_what_ran_beside_it_is_told_while_its_own_work_went_on(rolled: Any) -> None:
    """The others of a batch go on long after the first one has ended: that is not beside it."""
    rolled.change(groups=1, sync=SyncRule(groups=1), group_rule=GroupRule(size=2))
    rolled.answers = lambda task, member, attempt: ("done",) if member == 0 else (FAIL, FAIL, "done")
    rolled.tool.wait, rolled.tool.limit_s = (lambda session: sleep(rolled.clock, LONG_S)), 10 * LONG_S
    evidence, _ = await driven(rolled, learner=False)
    beside = trajectory_map(evidence, "run-0-0")["answers"]["ran_beside_it"]

    assert evidence.records["run-0-1"].duration_s > 2 * LONG_S
    assert beside["seconds"].get("tool_call", 0.0) <= evidence.records["run-0-0"].duration_s


async def test_all_waiting_is_never_less_than_that_on_the_path(rolled: Any) -> None:
    """Two groups make a batch, and one of them waits for the other: it is counted by trajectory, as it is on the path."""
    rolled.change(groups=2, sync=SyncRule(groups=2), group_rule=GroupRule(size=1, min_survivors=1, keep_flat=True))
    rolled.size = 1
    rolled.tool.wait, rolled.tool.limit_s = (lambda session: sleep(rolled.clock, LONG_S)), 10 * LONG_S
    evidence, _ = await driven(rolled)
    rows = stages(evidence.records, evidence.events)["stages"]
    (batch,) = (e for e in evidence.events if e["kind"] == "batch")
    waits = [batch["began"] - e["at"] for e in evidence.events if e["kind"] == "final"]

    assert max(waits) > 0
    assert rows["advantage"]["queue_s"] >= sum(waits) - 0.01
    for name, row in rows.items():
        assert row["queue_s"] >= row["queue_on_path_s"] - 0.01, name


async def test_a_tool_that_says_it_is_asked_too_often_is_counted_once_for_each_act(rolled: Any) -> None:
    """Refused, and done with the second try."""
    refusals = [ToolFault("HTTP 429: too many requests"), ToolFault("gone for a moment")]

    async def wait(session: Any) -> None:
        if refusals:
            raise refusals.pop(0)

    rolled.tool.wait = wait
    rolled.change(groups=1, sync=SyncRule(groups=1), group_rule=GroupRule(size=1, min_survivors=1, keep_flat=True))
    await rolled.run()
    (record,) = rolled.books.records.values()

    assert [(a.retries, a.rate_limited) for a in record.actions] == [(2, True)]


async def test_power_is_sampled_though_the_engine_says_nothing(rolled: Any) -> None:
    class Watts:
        def read(self) -> tuple[float, float]:
            return 250.0, 1000.0

    async with rolled.ticking(), rolled.open() as loop:
        events = Events(rolled.clock, rolled.home / EVENTS)
        power: Any = Watts()
        rolled.engine.load = gone
        await Sampler(events, loop.parts, ready=lambda: 0, every_s=1.0, power=power).sample()

    assert [e["kind"] for e in read_events(rolled.home / EVENTS)] == ["lines", "power"]


async def gone() -> Any:
    raise EngineLost("it answers nobody")


async def test_a_run_whose_events_left_memory_is_summed_up_from_the_disk(rolled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.meters.events.LARGEST", 20)
    evidence, ran = await driven(rolled)
    summary = summarise(rolled.loop, ran, in_force={})

    assert rolled.books.events.left_out > 0
    assert len(evidence.events) <= 20
    shipped = [e for e in read_events(rolled.home / EVENTS) if e["kind"] == "batch"]
    assert summary["cycles"]["cycles"] == len(shipped) >= 2, "a busy machine may cut one of them in two"


async def test_what_is_computed_later_from_the_files_is_what_the_summary_said(rolled: Any) -> None:
    evidence, ran = await driven(rolled)
    summary = summarise(rolled.loop, ran, in_force={})
    from rollout.meters.measure import measure

    again = measure(stored(rolled.home))

    for name in ("cycles", "cost_per_accepted", "percentiles_by", "staleness", "judges", "memory", "energy"):
        assert json.loads(json.dumps(again[name])) == json.loads(json.dumps(summary[name])), name
    assert summary["cost_per_accepted"]["accepted"] == summary["states"]["accepted"] == 8
    assert evidence.wall_s > 0


async def test_creations_of_another_runs_namespaces_are_not_its_own(rolled: Any) -> None:
    rolled.size = 2
    await rolled.run()
    records = rolled.books.records
    one = next(iter(used(records)))
    given: dict[str, Any] = {"environment": "memory", "since": began(records)}
    every = await activity(rolled.home / "ledger.sqlite", **given)
    own = await activity(rolled.home / "ledger.sqlite", **given, namespaces={one})

    assert every is not None
    assert own is not None
    assert len(every["creations"]) >= 2
    assert {row["namespace"] for row in own["creations"]} == {one}
    assert own["resets"] == every["resets"]


async def test_without_meters_nothing_is_kept(rolled: Any) -> None:
    await rolled.run()
    summary = summarise(rolled.loop, Driven(), in_force={})

    assert rolled.books.events.seen == []
    assert summary["cycles"] is summary["cost_per_accepted"] is summary["memory_peak_mb"] is None


@pytest.mark.parametrize(("second", "agrees"), [(1.0, True), (0.0, False)])
async def test_a_second_verdict_tells_whether_the_judge_agrees_with_itself(rolled: Any, second: float, agrees: bool) -> None:
    said: dict[str, list[float]] = {}

    async def judge(session: Any, draft: Any) -> Verdict:
        left = said.setdefault(draft.id, [1.0, second])
        reward = left.pop(0)
        return Verdict(score=Score(reward=reward, success=reward > 0), prompt_tokens=7)

    rolled.parts_change = {"judge": judged_again(judge, share=1.0, seed=0)}
    rolled.change(group_rule=GroupRule(size=2, keep_flat=True))
    await rolled.run()

    assert {r.judge_agrees for r in rolled.books.records.values()} == {agrees}
    assert {(r.scored, r.judge_tokens) for r in rolled.books.records.values()} == {(1.0, 7)}
