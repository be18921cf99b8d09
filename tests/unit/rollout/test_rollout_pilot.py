"""The capacity pilot: it names the stage that was made slow, stops there, and keeps a change only for the right reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rollout.command import app
from rollout.meters.lines import advice, trends
from rollout.pilot.change import Bearable, Measured, keep_change
from rollout.pilot.load import load
from rollout.pilot.run import changes_of, pilot_loop
from rollout.pilot.simulator import STAGES, Simulated, simulated
from rollout.pilot.slowed import slow_of
from rollout.setup import Options
from sandbox.errors import EnvironmentInvalid

RATES = (0.5, 1.0, 2.0, 4.0)


@pytest.mark.parametrize("stage", STAGES)
async def test_on_a_simulator_with_a_known_bottleneck_the_pilot_names_it_and_stops(stage: str) -> None:
    """Four places and 4 s of service serve one a second: the line grows at two a second, and four are never offered."""
    async with simulated(Simulated(bottleneck=stage)) as (on, clock):
        found = await load(on, rates=RATES, hold_s=40.0, clock=clock)

    assert found["bottleneck"] == stage
    assert found["line"] == STAGES[stage]
    assert found["at_rate"] == 2.0
    assert found["sustained_rate"] == 1.0
    assert [step["rate"] for step in found["steps"]] == [0.5, 1.0, 2.0]
    last = found["steps"][-1]
    assert last["in_flight"] > 10
    assert last["percentiles"]["duration_s"]["p99"] > last["percentiles"]["duration_s"]["p50"] > 0
    assert last["ended_by"] == {"final": last["finished"]}
    assert last["cost_per_valid_s"] > 0


async def test_without_a_bottleneck_it_names_none() -> None:
    async with simulated(Simulated()) as (on, clock):
        found = await load(on, rates=RATES, hold_s=40.0, clock=clock)

    assert found["bottleneck"] is None
    assert found["sustained_rate"] == 4.0


@pytest.mark.parametrize(
    ("most", "line", "why"), [(20, 10_000, "could not be offered, 20 were in flight"), (2000, 5, "were refused by a full line")]
)
async def test_lines_that_are_full_from_the_begin_do_not_hide_the_bottleneck(
    monkeypatch: pytest.MonkeyPatch, most: int, line: int, why: str
) -> None:
    """They do not grow any more: too many came at once."""
    monkeypatch.setattr("rollout.pilot.load.MOST_IN_FLIGHT", most)
    async with simulated(Simulated(bottleneck="judges", line=line)) as (on, clock):
        found = await load(on, rates=(4.0, 6.0), hold_s=200.0, clock=clock)

    assert found["bottleneck"] == "judges"
    assert found["line"] == found["steps"][0]["grows"] == "judge"
    assert why in found["why"]
    assert found["sustained_rate"] is None
    assert len(found["steps"]) == 1


@pytest.mark.parametrize(("phase", "stage"), [("model", "generation"), ("judge", "judges"), ("tool:sql", "environments")])
def test_where_only_the_sessions_line_grows_it_is_what_holds_them(phase: str, stage: str) -> None:
    events = [
        {
            "kind": "lines",
            "at": float(n),
            "lines": {"session": {"waiting": n, "held": 4, "taken": n}},
            "phases": {phase: 3, "session": n, "clearance": 2},
        }
        for n in range(12)
    ]
    found = advice(trends(events), events)

    assert found["add_capacity_to"] == stage
    assert found["held_by"] == {phase: 0.75, "reset": 0.25}
    assert f"75% of what holds the sessions is {phase}" in found["why"]


BEFORE = Measured(
    limits={"size": 2, "slots": 4},
    accepted_per_hour=100.0,
    cost_per_accepted=10.0,
    failed_share=0.02,
    cycle_s=30.0,
    mean_gap=0.5,
    publication_s=1.0,
    busy=0.5,
)


def after(**fields: Any) -> Measured:
    whole: dict[str, Any] = {"limits": {"size": 4, "slots": 4}, "accepted_per_hour": 150.0}
    return replace(BEFORE, **(whole | fields))


def test_a_change_is_kept_when_more_is_accepted_within_the_limits() -> None:
    found = keep_change(BEFORE, after(), Bearable())

    assert found["keep"]
    assert found["change"] == "size from 2 to 4"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"accepted_per_hour": 100.0}, "accepted signals an hour"),
        ({"accepted_per_hour": 90.0, "busy": 1.0}, "accepted signals an hour"),  # a busier model decides nothing
        ({"failed_share": 0.2}, "20% of the trajectories failed"),
        ({"cost_per_accepted": 12.0}, "an accepted trajectory costs 12.0"),
        ({"cost_per_accepted": None}, "an accepted trajectory costs None"),
    ],
)
def test_a_change_that_does_not_pay_is_taken_back_with_the_reason(fields: dict[str, Any], why: str) -> None:
    found = keep_change(BEFORE, after(**fields), Bearable())

    assert not found["keep"]
    assert why in found["why"]


def test_utilisation_decides_nothing() -> None:
    for busy in (0.0, 1.0, None):
        assert keep_change(BEFORE, after(busy=busy), Bearable())["keep"]


def test_two_limits_at_once_are_refused() -> None:
    with pytest.raises(EnvironmentInvalid, match="2 limits changed at once: size, slots"):
        keep_change(BEFORE, after(limits={"size": 4, "slots": 8}), Bearable())
    with pytest.raises(EnvironmentInvalid, match="0 limits"):
        keep_change(BEFORE, replace(BEFORE, accepted_per_hour=200.0), Bearable())


async def test_the_loop_goes_on_from_what_was_kept_and_measures_each_cycle_again() -> None:
    accepted = {(): 10, ("size",): 20, ("size", "slots"): 15, ("size", "max_gap"): 30}
    asked: list[dict[str, int]] = []

    async def once(limits: dict[str, int]) -> dict[str, Any]:
        asked.append(limits)
        return {
            "run": f"run-{len(asked)}",
            "wall_s": 3600.0,
            "admitted": 40,
            "states": {"accepted": accepted[tuple(limits)], "failed": 0, "quarantined": 0},
            "staleness": {"gaps": {"0": 3, "1": 1}, "publication_s": 0.5},
            "cost_per_accepted": {"per_accepted": 5.0},
            "cycles": {"seconds": {"mean": 60.0}},
            "dependencies": {"model": {"service_s": 900.0, "limit": 4}},
        }

    changes = changes_of(["size=4", "slots=16", "max_gap=6"])
    found = await pilot_loop(once, options=Options(environment="shop", size=2), changes=changes, bearable=Bearable())

    assert asked == [{}, {"size": 4}, {"size": 4, "slots": 16}, {"size": 4, "max_gap": 6}]
    assert [d["keep"] for d in found["decisions"]] == [True, False, True]
    assert (found["limits"]["size"], found["limits"]["slots"], found["limits"]["max_gap"]) == (4, 8, 6)
    assert [r["cycle_s"] for r in found["runs"]] == [60.0] * 4
    assert {r["mean_gap"] for r in found["runs"]} == {0.25}


@pytest.mark.parametrize("given", ["disk=3", "database", "judge=-1", "judge=soon"])
def test_a_slow_part_that_does_not_exist_is_refused(given: str) -> None:
    with pytest.raises(EnvironmentInvalid):
        slow_of([given])
    assert slow_of(["judge=2", "engine=0.5"]) == {"judge": 2.0, "engine": 0.5}


@pytest.mark.parametrize("given", ["size", "size=0", "gpu=3", "size=two"])
def test_a_change_that_is_no_limit_is_refused(given: str) -> None:
    with pytest.raises(EnvironmentInvalid):
        changes_of([given])


async def test_rates_rise() -> None:
    async with simulated(Simulated()) as (on, clock):
        with pytest.raises(EnvironmentInvalid, match="rising rates"):
            await load(on, rates=(2.0, 1.0), hold_s=1.0, clock=clock)


def test_the_command_names_the_simulated_bottleneck_and_ends_with_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pilot", "load", "--simulate", "judges", "--json"]
    assert app(words, result_action="return_value") == 1
    assert json.loads(capsys.readouterr().out)["bottleneck"] == "judges"
