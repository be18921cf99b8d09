"""Meters by hand: what each figure is made of, and that each can be wrong."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout.eligibility import ARTIFACTS, missing
from rollout.journal import Outcome
from rollout.meters.cost import cost_per_accepted
from rollout.meters.distribution import by_kind, percentiles, quantile
from rollout.meters.generation import generation
from rollout.meters.judges import judges
from rollout.meters.lines import advice, bottleneck, slope, trends
from rollout.meters.memory import memory
from rollout.meters.power import WATTS_A_CORE, PowerMeter, energy
from rollout.meters.staleness import WINDOW, staleness
from rollout.meters.timings import FIVE, environment_timings
from rollout.record import Action, EnvTimings, Trajectory, Turn
from rollout.terms import State, Termination


def record(name: str, **fields: Any) -> Trajectory:
    turn = Turn(start=0, end=2, finish="stop", service_s=1.0)
    whole: dict[str, Any] = {
        "id": name,
        "run": "run",
        "group": "run-0",
        "member": 0,
        "attempt": 0,
        "environment": "shop",
        "task": name,
        "family": "f",
        "tokens": (1, 2),
        "mask": (1, 1),
        "logprobs": (-1.0, -1.0),
        "versions": (3, 3),
        "turns": (turn,),
        "environment_digest": "d",
        "start_check": "check-1",
        "start_digest": "s",
        "reward": 1.0,
        "scored": 1.0,
        "lease": 1,
        "duration_s": 10.0,
    }
    return Trajectory(**(whole | fields))


def ended(records: list[Trajectory], *states: State) -> dict[str, Outcome]:
    return {r.id: Outcome(trajectory=r.id, state=s) for r, s in zip(records, states, strict=True)}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([50, 90, 99]))
def test_a_quantile_is_a_value_that_was_measured_and_splits_them(values: list[float], q: int) -> None:
    found = quantile(values, q)

    assert found is not None
    assert any(math.isclose(found, v, abs_tol=1e-4) for v in values)
    assert sum(v <= found + 1e-4 for v in values) >= len(values) * q / 100


def test_the_tail_is_told_by_family_and_by_how_it_ended() -> None:
    fast = [record(f"a{n}", duration_s=1.0) for n in range(9)]
    slow = record("b", duration_s=80.0, family="g", termination=Termination.TURN_LIMIT)
    rows = by_kind([*fast, slow])

    assert [(r["family"], r["termination"], r["trajectories"]) for r in rows] == [("g", "turn_limit", 1), ("f", "final", 9)]
    assert rows[0]["duration_s"] == {"p50": 80.0, "p90": 80.0, "p99": 80.0}
    assert rows[0]["share_of_time"] == pytest.approx(80 / 89, abs=1e-4)
    assert percentiles([*fast, slow])["duration_s"] == {"p50": 1.0, "p90": 1.0, "p99": 80.0}
    assert set(percentiles(fast)) == {"duration_s", "generated_tokens", "tool_calls", "tool_wait_s", "retries", "reward_s"}


def test_everything_rejected_is_charged_to_what_was_accepted() -> None:
    """60 s spent in family f, 2 trajectories accepted: 30 s each. Nothing of g was accepted: it has a cost and no price."""
    records = [
        record("a", duration_s=10.0),
        record("b", duration_s=10.0),
        record("c", duration_s=25.0),
        record("d", duration_s=15.0, extra={"purpose": "scout"}),
        record("e", duration_s=40.0, family="g"),
    ]
    outcomes = ended(records, State.ACCEPTED, State.ACCEPTED, State.STALE, State.DROPPED, State.QUARANTINED)
    found = cost_per_accepted(records, outcomes, wall_s=3600, gpus=2)

    assert found["families"]["f"]["per_accepted"] == 30.0
    assert found["families"]["f"]["spent_on_rejected"] == pytest.approx(40 / 60, abs=1e-4)
    assert found["families"]["f"]["rejected"] == {
        "stale": {"trajectories": 1, "seconds": 25.0},
        "dropped": {"trajectories": 1, "seconds": 15.0},
    }
    assert found["families"]["f"]["scouting_s"] == 15.0
    assert found["families"]["f"]["coverage"] == 0.5
    assert found["families"]["g"]["per_accepted"] is None
    assert found["families"]["g"]["coverage"] == 0.0
    assert found["per_accepted"] == 50.0
    assert found["gpu_hours"] == 2.0
    assert found["families"]["g"]["gpu_hours"] == 0.8


def test_cost_without_a_gpu_says_none_and_not_nothing() -> None:
    assert cost_per_accepted([record("a")], ended([record("a")], State.ACCEPTED))["gpu_hours"] is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("policy revision", {"versions": (-1, -1)}),
        ("action trace", {"turns": ()}),
        ("environment state", {"start_check": ""}),
        ("reward", {"reward": None}),
    ],
)
def test_a_trajectory_that_lacks_an_artifact_is_not_eligible(name: str, change: dict[str, Any]) -> None:
    assert missing(record("a")) == ()
    assert missing(record("a", **change)) == (name,)
    assert set(ARTIFACTS) == {"policy revision", "action trace", "environment state", "reward", "termination reason"}


def lines(*waiting: dict[str, int], every_s: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"kind": "lines", "at": n * every_s, "lines": {name: {"waiting": w, "held": 1, "taken": n} for name, w in row.items()}}
        for n, row in enumerate(waiting)
    ]


def test_the_line_that_grows_names_the_one_stage() -> None:
    events = lines(*({"model": 0, "session": n, "tool:sql": n, "trainer": 0} for n in range(12)))
    found = advice(trends(events))

    assert found["add_capacity_to"] == "environments"
    assert found["line"] == "tool:sql"  # those who wait for it hold a session, so that its line grows too
    assert "more generation would only make it longer" in found["why"]


def test_slow_publication_says_that_faster_rollouts_make_older_data() -> None:
    found = advice(trends(lines(*({"model": 0, "trainer": n} for n in range(12)))))

    assert found["add_capacity_to"] == "optimisation"
    assert "older data" in found["why"]


def test_neither_a_burst_nor_a_full_but_steady_line_is_growth() -> None:
    burst = [0, 0, 0, 9, 9, 5, 2, 1, 0, 0, 0, 0]
    steady = [4] * 12
    for waiting in (burst, steady):
        found = trends(lines(*({"model": w} for w in waiting)))
        assert bottleneck(found) is None
        assert advice(found)["add_capacity_to"] is None


def test_demand_is_arrivals_times_service_over_places() -> None:
    """One a second is served, one a second more waits: two arrive; each takes 1.5 s of 2 places."""
    events = lines(*({"judge": n} for n in range(11)))
    shown = {"judge": {"taken": 100, "service_s": 150.0, "limit": 2}}

    assert trends(events, dependencies=shown)[0].demand == pytest.approx(2 * 1.5 / 2)


@settings(deadline=None, max_examples=40)
@given(st.floats(-5, 5), st.floats(-5, 5))
def test_a_straight_line_has_its_slope(rate: float, start: float) -> None:
    assert slope([(float(x), start + rate * x) for x in range(6)]) == pytest.approx(rate, abs=1e-6)


def test_stale_share_and_its_trend() -> None:
    records = [record(f"t{n:03}", began=float(n)) for n in range(3 * WINDOW)]
    states = [State.STALE if n % WINDOW < 5 * (n // WINDOW) else State.ACCEPTED for n in range(len(records))]
    found = staleness({r.id: r for r in records}, ended(records, *states), [{"kind": "published", "began": 1.0, "at": 3.0}])

    assert found["windows"] == [0.0, 0.25, 0.5]
    assert found["trend"] == 0.25
    assert found["share"] == 0.25
    assert found["lost_s"] == 150.0
    two_more = [*records, record("u0", began=100.0), record("u1", began=101.0)]
    left_over = staleness({r.id: r for r in two_more}, ended(two_more, *states, State.STALE, State.STALE), [])
    assert left_over["windows"] == [0.0, 0.25, round(12 / 22, 4)]  # two of them are no window of their own
    assert found["publication_s"] == 2.0


def test_the_five_timings_are_apart() -> None:
    action = Action(turn=0, tool="sql", action_s=2.0, observation_s=0.5)
    held = record("a", actions=(action,), timings=EnvTimings(creation_s=7.0, reset_s=3.0, teardown_s=4.0))
    activity = {"resets": [{"seconds": 6.0}], "creations": [{"seconds": 9.0}], "checks": [{"depth": "quick", "seconds": 1.0}]}
    found = environment_timings([held], activity, wall_s=4.0)

    assert {name: found[name]["p50"] for name in FIVE} == {
        "creation": 9.0,
        "reset": 6.0,
        "action": 2.0,
        "observation": 0.5,
        "teardown": 4.0,
    }
    assert found["acquire"]["p50"] == 7.0
    assert found["checks"]["quick"]["count"] == 1
    assert found["checks_share_of_trajectories"] == 0.1
    assert environment_timings([held])["reset"]["p50"] == 3.0
    assert found["actions_per_s"] == 0.25  # of the run's seconds, not of the trajectories'
    assert found["rate_limited"] == 0


def test_actions_are_what_was_acted_and_one_answer_is_observed_once() -> None:
    """Two calls in one answer, and an answer that could not be read."""
    actions = (
        Action(turn=0, tool="sql", action_s=2.0),
        Action(turn=0, tool="sql", action_s=4.0, observation_s=0.5, rate_limited=True),
        Action(turn=0, tool="", malformed=True, observation_s=0.1, at=6.5),
    )
    held = record("a", actions=actions)
    found = environment_timings([held], wall_s=10.0)

    assert (found["action"]["count"], found["observation"]["count"], found["observation"]["p50"]) == (2, 1, 0.5)
    assert found["actions_per_s"] == 0.2
    assert found["rate_limited"] == 1
    assert percentiles([held])["tool_calls"]["p50"] == 2.0


def test_the_peak_is_found_where_it_is_late_and_in_whom() -> None:
    """Means would hide it: nine small ones, and one late and large; two stood at once."""
    small = [record(f"s{n}", memory_peak_mb=10.0, began=10.0 * n, duration_s=10.0) for n in range(9)]
    late = record("late", memory_peak_mb=300.0, began=85.0, duration_s=100.0, family="g")
    found = memory([*small, late], [], {"weights": 500.0, "kv_cache": None})

    assert found["set_by"] == {"trajectory": "late", "task": "late", "family": "g"}
    assert found["per_trajectory_mb"] == 300.0
    assert found["categories_mb"]["environments"] == 310.0
    assert found["environments_at_once"] == 2
    assert found["unknown"] == ["optimizer", "activations", "kv_cache"]
    assert found["sum_of_known_mb"] == 810.0
    assert found["largest_category"] == "weights"
    assert found["device_peak_mb"] is None
    powers = [{"kind": "power", "at": 0.0, "watts": 1.0, "memory_mb": mb} for mb in (10.0, 90.0, None, 30.0)]
    assert memory([], powers, {})["device_peak_mb"] == 90.0


def test_tokens_a_second_are_of_the_run_and_of_the_seconds_in_which_anything_was_generated() -> None:
    """Two answers beside each other for 4 s, one of 2 s later; 60 tokens in a run of 20 s."""

    def turn(at: float, seconds: float) -> Turn:
        return Turn(start=0, end=20, finish="stop", at=at, service_s=seconds)

    records = [
        record("a", turns=(turn(0.0, 4.0),)),
        record("b", turns=(turn(1.0, 3.0),)),
        record("c", turns=(turn(0.0, 2.0),), began=10.0),
    ]
    samples = [{"kind": "engine", "at": at, "running": n} for at, n in ((0.0, 2), (5.0, 0), (10.0, 1))]
    found = generation(records, samples, wall_s=20.0)

    assert (found["tokens"], found["tokens_per_s"], found["tokens_per_busy_s"]) == (60, 3.0, 10.0)
    assert (found["busy_share"], found["sequences_mean"], found["sequences_peak"]) == (0.3, 1.0, 2)
    assert found["answer_s"] == {"p50": 3.0, "p90": 4.0, "p99": 4.0}
    assert generation([], [], wall_s=0.0)["tokens_per_s"] is None


def test_energy_is_the_trapezoid_of_the_samples_or_says_that_it_is_an_estimate() -> None:
    samples = [{"kind": "power", "at": at, "watts": watts} for at, watts in ((0.0, 100.0), (1800.0, 300.0), (3600.0, 100.0))]
    assert energy(samples)["kwh"] == pytest.approx(0.2)
    assert energy(samples)["how"].startswith("measured")

    estimated = energy([{"kind": "lines", "at": at, "cpu_s": cpu} for at, cpu in ((0.0, 10.0), (9.0, 370.0))])
    assert estimated["kwh"] == pytest.approx(360 * WATTS_A_CORE / 3_600_000)
    assert estimated["how"].startswith("estimated, not measured")


class Nvml:
    """Two devices of 100 and 300 W, as NVIDIA's library tells them."""

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        return {"GPU-a": 0, "GPU-b": 1}[name]

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        return (100_000, 300_000)[device]


@pytest.mark.parametrize(
    ("visible", "devices", "watts"),
    [(None, 2, 400.0), ("1", 1, 300.0), ("GPU-b,GPU-a", 2, 400.0), ("0,7,1", 1, 100.0), ("", 0, None), ("-1", 0, None)],
)
def test_only_the_devices_that_a_run_may_use_are_charged_to_it(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, devices: int, watts: float | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = PowerMeter.find()

    assert (0 if meter is None else meter.devices) == devices
    assert (None if meter is None else meter.watts()) == watts


def test_judges_are_counted_with_their_agreement_and_what_waits_for_people() -> None:
    records = [
        record("a", score_at=1.0, score_s=2.0, judge_agrees=True, judge_tokens=50),
        record("b", score_at=1.0, score_s=4.0, judge_agrees=False),
        record("c", score_at=1.0, scored=None, reward=None),
        record("d"),
    ]
    outcomes = ended(records, State.ACCEPTED, State.QUARANTINED, State.FAILED, State.FAILED)
    outcomes["b"] = replace(outcomes["b"], clearance="quarantined")
    found = judges(records, outcomes, wall_s=10)

    assert (found["samples"], found["no_verdict"], found["samples_per_s"]) == (3, 1, 0.3)
    assert (found["judged_again"], found["agreement"]) == (2, 0.5)
    assert found["prompt_tokens"] == {"p50": 50.0, "p90": 50.0, "p99": 50.0}
    assert found["review_backlog"] == 1


def test_quantiles_grow() -> None:
    row = percentiles([record(f"t{n}", duration_s=float(n)) for n in range(100)])["duration_s"]

    assert row == {"p50": 49.0, "p90": 89.0, "p99": 98.0}
    assert all(a < b for a, b in pairwise(v for v in row.values() if v is not None))
