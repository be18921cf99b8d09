"""The articles' worked examples, to the digit; and that nobody can take them for results."""

from __future__ import annotations

import json

import pytest

from rollout.advice.calc import A, B, Configuration, Timeline, informative, timeline
from rollout.command import app
from sandbox.errors import EnvironmentInvalid


def test_the_timeline_of_the_article() -> None:
    found = timeline(Timeline())

    assert (found["cycle_s"], found["trainer_busy_s"]) == (112, 22)
    assert found["trainer_share"] == pytest.approx(0.196, abs=0.0005)
    assert found["overlap_ceiling"] == pytest.approx(1.24, abs=0.005)
    assert found["trainer_share_overlapped"] == pytest.approx(0.244, abs=0.0005)
    assert found["illustrative"] is True


def test_overlap_gains_little_where_the_trainer_is_the_slower_side() -> None:
    found = timeline(Timeline(generation_s=20, training_s=90, publication_s=2, slowest_s=10))

    assert found["bound_by"] == "training"
    assert found["overlap_ceiling"] == pytest.approx(112 / 92, abs=1e-4)


def test_signal_per_gpu_hour_by_both_denominators() -> None:
    found = informative(A, B)
    one, other = found["configurations"]

    assert (one["rollouts"], other["rollouts"]) == (400_000, 200_000)
    assert (one["gpu_hours"], other["gpu_hours"]) == (8000, 4000)
    assert (one["informative_groups_per_gpu_hour"], other["informative_groups_per_gpu_hour"]) == (2.5, 8.75)
    assert (one["informative_rollouts_per_gpu_hour"], other["informative_rollouts_per_gpu_hour"]) == (20, 35)
    assert (one["informative_rollouts_per_step"], other["informative_rollouts_per_step"]) == (320, 280)
    assert found["ratio"] == {"informative_groups": 3.5, "informative_rollouts": 1.75}
    assert found["illustrative"] is True


def test_scouting_is_charged_and_its_break_even_is_where_both_are_equal() -> None:
    even = informative(A, B)["scouting_break_even"]

    assert even["informative_groups"] == {"gpu_hours": 10_000, "scouts_per_prompt": 10}
    scouted = Configuration(name="B", group_size=4, informative=0.7, scouts=10)
    one, other = informative(A, scouted)["configurations"]
    assert other["scouting_gpu_hours"] == 10_000
    assert one["informative_groups_per_gpu_hour"] == other["informative_groups_per_gpu_hour"]


def test_small_rates_keep_their_digits_and_a_break_even_that_is_none_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred-thousandth of a group each GPU-hour is not a ten-thousandth, and not nothing."""
    dear = [
        Configuration(name=c.name, group_size=c.group_size, informative=c.informative, gpu_hours_per_rollout=5000) for c in (A, B)
    ]
    found = informative(*dear)

    assert found["ratio"] == {"informative_groups": 3.5, "informative_rollouts": 1.75}
    assert found["scouting_break_even"]["informative_groups"]["scouts_per_prompt"] == 10
    assert app(["calc", "informative", "--share", "0.7", "0.1"], result_action="return_value") == 0
    assert "by informative groups, B is not ahead even without scouting" in capsys.readouterr().out


def test_the_commands_say_illustrative(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["calc", "timeline"], ["calc", "informative"]):
        assert app([*words, "--json"], result_action="return_value") == 0
        assert json.loads(capsys.readouterr().out)["illustrative"] is True
        assert app(words, result_action="return_value") == 0
        assert "illustrative" in capsys.readouterr().out


@pytest.mark.parametrize("given", [{"generation_s": -1.0}, {"generation_s": 10.0, "slowest_s": 11.0}])
def test_nonsense_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(EnvironmentInvalid):
        timeline(Timeline(**given))
