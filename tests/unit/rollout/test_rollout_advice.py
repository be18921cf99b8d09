"""What is advised, and that each answer follows from its figures."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.advice.cadence import Experience, cadence, expected, experience_of, leak_rate_limit, with_given
from rollout.advice.command import app
from rollout.advice.elastic import decide, idle_of, measure_move
from rollout.advice.staleness import BOUNDARY, HORIZON, KEEP, PUBLISH, advise
from rollout.advice.triage import triage
from rollout.meters.measure import Evidence
from rollout.record import Trajectory, Turn
from sandbox.errors import EnvironmentInvalid, LimitReached
from sandbox.testing import FakeClock


@pytest.mark.parametrize(("covered", "leaks", "limit"), [(100, 0, 0.0295), (20, 0, 0.1391), (10, 3, 0.6066), (5, 5, 1.0)])
def test_the_leak_rate_has_its_exact_upper_limit(covered: int, leaks: int, limit: float) -> None:
    """Published values of Clopper and Pearson, one-sided; with no leak it is about 3 / n."""
    assert leak_rate_limit(covered, leaks) == pytest.approx(limit, abs=5e-4)


def test_a_limit_of_many_leaks_can_be_computed() -> None:
    """The ways to choose 300 of 5000 are no float; the normal approximation of the limit is 0.0658."""
    assert leak_rate_limit(5000, 300) == pytest.approx(0.0658, abs=5e-4)


def test_what_is_given_takes_the_place_of_what_is_known() -> None:
    kept = Experience(check_s=2.0, trajectory_s=5.0, covered=55, leaks=1)

    assert with_given(kept, check_s=9.0, covered=None, leaks=0) == replace(kept, check_s=9.0)
    assert with_given(kept, check_s=None, covered=100, leaks=3) == replace(kept, covered=100, leaks=3)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.01, 100), st.floats(0.01, 1000), st.integers(1, 2000), st.integers(0, 3))
def test_no_other_cadence_costs_less(check_s: float, trajectory_s: float, covered: int, leaks: int) -> None:
    experience = Experience(check_s=check_s, trajectory_s=trajectory_s, covered=covered, leaks=min(leaks, covered))
    found = cadence(experience, now=20)
    rate = leak_rate_limit(experience.covered, experience.leaks)
    best = expected(experience, found["deep_every"], rate)

    assert all(best <= expected(experience, k, rate) + 1e-12 for k in (1, 2, 3, 7, 20, 150, 1000))
    assert found["now_costs_s_per_trajectory"] >= found["expected_s_per_trajectory"] - 1e-6


def test_more_experience_without_a_leak_allows_fewer_checks_and_a_leak_asks_for_more() -> None:
    def best(covered: int, leaks: int = 0) -> int:
        found = cadence(Experience(check_s=1.0, trajectory_s=10.0, covered=covered, leaks=leaks))
        return int(found["deep_every"])

    assert best(10) < best(100) < best(10_000)
    assert best(10_000, leaks=50) < best(10_000)


def test_experience_is_read_from_the_ledgers_rows() -> None:
    def check(namespace: str, sequence: int, *, depth: str = "deep", status: str = "clean") -> dict[str, Any]:
        return {"namespace": namespace, "sequence": sequence, "depth": depth, "status": status, "seconds": 2.0}

    rows = [check("a", 20), check("a", 40, status="mismatch"), check("b", 15), check("b", 90, depth="quick")]
    found = experience_of({"checks": rows}, 5.0)

    assert (found.covered, found.leaks, found.check_s) == (55, 1, 2.0)
    with pytest.raises(EnvironmentInvalid, match="no deep check"):
        experience_of({"checks": rows[-1:]}, 5.0)
    with pytest.raises(EnvironmentInvalid, match="no trajectory"):
        experience_of({"checks": rows}, None)


def stale(**fields: Any) -> dict[str, Any]:
    return {"share": 0.2, "trend": 0.05, "lost_s": 100.0, "publications": 10, "publication_s": 1.0} | fields


def test_publishing_more_often_is_advised_exactly_while_it_costs_less_than_what_is_lost() -> None:
    """Ten publications of a second, four places standing still: 40 place-seconds."""
    for lost, advice in ((41.0, PUBLISH), (39.0, HORIZON)):
        found = advise(stale(lost_s=lost), places=4, max_gap=1, batch_groups=2)
        assert found["advice"] == advice
        assert found["overhead_s"] == 40.0


def test_the_other_answers_about_staleness() -> None:
    assert advise(stale(share=0.01, trend=0.0), places=4, max_gap=1, batch_groups=2)["advice"] == KEEP
    assert advise(stale(share=0.01, trend=0.02, lost_s=500.0), places=4, max_gap=1, batch_groups=2)["advice"] == PUBLISH
    assert advise(stale(lost_s=1.0), places=4, max_gap=1, batch_groups=1)["advice"] == BOUNDARY
    assert advise(stale(publication_s=None), places=4, max_gap=1, batch_groups=2)["advice"] == HORIZON


async def test_a_move_is_timed_by_being_made_and_decided_by_the_idle_time() -> None:
    clock = FakeClock()
    done: list[str] = []

    def step(name: str, seconds: float) -> Any:
        async def act() -> None:
            done.append(name)
            await clock.advance(seconds)

        return act

    move = await measure_move({"out": step("out", 3.0), "back": step("back", 5.0)}, clock=clock, times=2)

    assert done == ["out", "back"] * 2
    assert move["overhead_s"] == 8.0
    assert decide(move, {"generation": 2.0, "learning": 8.5}, devices=2)["give_away"] == "learning"
    assert not decide(move, {"generation": 2.0, "learning": 7.5}, devices=2)["move"]


async def test_a_step_of_a_move_that_never_ends_is_named() -> None:
    clock = FakeClock()

    async def never() -> None:
        await asyncio.Event().wait()

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            await clock.advance(10.0)

    ticking = asyncio.create_task(tick())
    try:
        with pytest.raises(LimitReached, match="step `the engine ends` did not end within 60 s"):
            await measure_move({"the engine ends": never}, clock=clock, limit_s=60.0)
    finally:
        ticking.cancel()


def test_a_side_stands_still_only_while_it_does_nothing_for_anybody() -> None:
    """A cycle of 20 s. Its last trajectory generated for 1 s of it, another one from 2 to 9 beside it; the update took 4 s, the
    publication 1 s. What was generated after the cycle is none of it."""
    beside = trajectory("b", group="g", reward=1.0, service_s=7.0)
    later = trajectory("c", group="h", reward=1.0, service_s=50.0)
    records = {
        "a": trajectory("a", group="g", reward=0.0, service_s=1.0),
        "b": replace(beside, turns=(replace(beside.turns[0], at=2.0),)),
        "c": replace(later, began=20.0),
    }
    events: list[dict[str, Any]] = [
        {"kind": "select", "group": "g", "at": 0.0},
        {"kind": "final", "group": "g", "at": 10.0},
        {"kind": "batch", "batch": "1", "groups": ["g"], "trajectories": ["a", "b"], "version": 0, "began": 10.0, "at": 11.0},
        {"kind": "update", "batch": "1", "began": 13.0, "at": 17.0, "publish": True},
        {"kind": "published", "version": 1, "began": 19.0, "at": 20.0},
    ]

    assert idle_of(Evidence(records=records, outcomes={}, events=events)) == {"generation": 12.0, "learning": 15.0}


def trajectory(name: str, *, group: str, reward: float | None, service_s: float = 1.0, memory: float | None = None) -> Trajectory:
    turn = Turn(start=0, end=0, finish="stop", service_s=service_s)
    return Trajectory(
        id=name,
        run="run",
        group=group,
        member=0,
        attempt=0,
        environment="e",
        task=group,
        family="f",
        turns=(turn,),
        reward=reward,
        duration_s=10.0,
        memory_peak_mb=memory,
    )


def evidence(rewards: list[tuple[float, float]], *, service_s: float, kv: float = 0.1) -> Evidence:
    records = {
        f"{n}-{m}": trajectory(f"{n}-{m}", group=str(n), reward=r, service_s=service_s, memory=5.0 + n)
        for n, row in enumerate(rewards)
        for m, r in enumerate(row)
    }
    return Evidence(
        records=records,
        outcomes={},
        events=[],
        told={"weights": 40.0, "kv_cache": 1000 * kv},
        dependencies={"model": {"limit": len(records)}},
    )


@pytest.mark.parametrize(
    ("rewards", "service_s", "kv", "binds"),
    [
        ([(1, 0), (0, 1)], 1.0, 0.1, "idle compute"),
        ([(1, 1), (0, 0), (0, 1)], 9.0, 0.1, "rollouts without signal"),
        ([(1, 0), (0, 1)], 9.0, 0.9, "memory"),
    ],
)
def test_triage_names_the_constraint_that_binds(rewards: Any, service_s: float, kv: float, binds: str) -> None:
    found = triage(evidence(rewards, service_s=service_s, kv=kv), device_mb=1000.0)

    assert found["binds"] == binds
    assert found["cure"]
    assert found["peak_memory_per_trajectory_mb"] == 4.0 + len(rewards)
    assert found["prompts_with_reward_variance"] == pytest.approx(sum(a != b for a, b in rewards) / len(rewards), abs=1e-4)


def test_memory_that_nobody_measured_is_not_called_free() -> None:
    rewards: Any = [(1, 0), (0, 1)]
    unknown = evidence(rewards, service_s=9.0)
    whole = replace(unknown, told={**unknown.told, "optimizer": 10.0, "activations": 10.0})
    full = replace(unknown, events=[{"kind": "engine", "at": 1.0, "kv_usage": 0.97}])

    assert triage(unknown, device_mb=1000.0)["waste"]["memory"] is None
    assert triage(whole, device_mb=1000.0)["waste"]["memory"] == 0.0
    assert triage(full)["binds"] == "memory"  # the cache in the device is full, whatever the device


def test_advise_check_needs_no_ledger_where_the_figures_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "repo", "--check-s", "2", "--trajectory-s", "10", "--covered", "300", "--home", str(tmp_path), "--json"]
    assert app(words, result_action="return_value") == 0
    found = json.loads(capsys.readouterr().out)

    assert found["environment"] == "repo"
    assert found["leak_rate_limit"] == pytest.approx(0.00994, abs=1e-4)
    assert 1 < found["deep_every"] < 20
