"""The recipe's pieces: its tasks and scripted solutions, its arms, its intervals and its plots."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from rollout.admission.budgets import Budget
from rollout.recipes.arms import Arm, Cell, Forgetful, Watch, WatchedVerifier
from rollout.recipes.errands.generate import HELD_OUT, tasks
from rollout.recipes.experiment import cells
from rollout.recipes.intervals import analyse, harms, interval, protects
from rollout.recipes.plot import Line, curves
from rollout.recipes.report import experiment, learning
from rollout.recipes.solutions import SHARES, answers, command, errand
from rollout.recipes.training import ERRANDS, Recipe, success_of, worlds
from rollout.record import Trajectory
from rollout.running.draft import Draft, Ticket
from sandbox.model import Depth, Mismatch, NamespaceId, TaskSpec, Verdict, VerdictStatus
from sandbox.testing import FakeClock

TASK = TaskSpec(id="t", family="add", difficulty="easy", split="train", prompt="Add 3 milk to the kitchen list.", success={})


def test_the_shipped_tasks_are_the_generated_ones() -> None:
    written = [json.loads(line) for line in (ERRANDS / "tasks.jsonl").read_text("utf-8").splitlines()]

    assert written == list(tasks())


def test_held_out_tasks_are_new_combinations_of_known_words() -> None:
    every = list(tasks())
    held = [errand(replace(TASK, prompt=t["prompt"])) for t in every if t["split"] == "held-out"]
    known = [errand(replace(TASK, prompt=t["prompt"])) for t in every if t["split"] == "train"]

    assert len(held) == HELD_OUT
    assert not set(held) & set(known)
    for part in ("where", "thing", "amount"):
        assert {getattr(e, part) for e in held} <= {getattr(e, part) for e in known}


def test_the_world_to_be_judged_in_is_another_environment_with_the_same_tasks() -> None:
    training, held_out = worlds()

    assert training.spec.digest != held_out.spec.digest
    assert set(training.tasks) == set(held_out.tasks)


def test_only_the_right_solution_is_right() -> None:
    asked, chance = errand(TASK), random.Random(1)
    said = {kind: command(asked, kind, chance) for kind in SHARES}

    assert said["right"] == "echo 3 milk >> kitchen"
    assert said["nothing"] is None
    assert len(set(said.values())) == len(SHARES)


def test_solutions_are_drawn_by_their_shares() -> None:
    chance = random.Random(2)
    drawn = Counter(tuple(answers(TASK, chance)) for _ in range(2000))

    right = sum(n for said, n in drawn.items() if "echo 3 milk >> kitchen" in said[0])
    assert right / 2000 == pytest.approx(SHARES["right"] / 100, abs=0.04)
    assert drawn["Done.",] / 2000 == pytest.approx(SHARES["nothing"] / 100, abs=0.04)


def test_cells_are_every_arm_at_every_rate() -> None:
    assert [cell.name for cell in cells((), (1, 2))] == ["none-0-1", "none-0-2"]
    assert [cell.name for cell in cells((0.1, 0.5), (3,))] == ["none-0-3", "off-0.1-3", "on-0.1-3", "off-0.5-3", "on-0.5-3"]
    with pytest.raises(ValueError, match=r"arm none at rate 0\.5"):
        Cell(arm=Arm.NONE, rate=0.5, seed=1)


class Always:
    """A verifier that finds what it is told to."""

    digest = "d"

    def __init__(self) -> None:
        self.verdict = Verdict(status=VerdictStatus.CLEAN, depth=Depth.QUICK)

    async def check(self, *_: Any) -> Verdict:
        return self.verdict


@pytest.mark.parametrize("blind", [True, False])
async def test_a_mismatch_is_noted_in_every_arm_and_passed_on_unless_blind(blind: bool) -> None:
    inner, watch, subject = Always(), Watch(), SimpleNamespace(namespace=NamespaceId("n1"))
    verifier = WatchedVerifier(cast("Any", inner), watch, blind=blind)

    async def check() -> Verdict:
        return await verifier.check(cast("Any", subject), cast("Any", None), Depth.QUICK)

    found = (Mismatch(probe="lists", field="./kitchen", expected="a", actual="b", depth=Depth.QUICK),)
    inner.verdict = Verdict(status=VerdictStatus.MISMATCH, depth=Depth.QUICK, mismatches=found)
    told = await check()
    assert (told.status is VerdictStatus.CLEAN) is blind
    assert bool(told.in_force.get("quarantine")) is blind
    assert (watch.dirty, watch.mismatches) == ({"n1"}, 1)

    inner.verdict = Verdict(status=VerdictStatus.INCONCLUSIVE, depth=Depth.QUICK)
    assert (await check()).status is VerdictStatus.INCONCLUSIVE  # no answer is never clean, blind or not
    assert watch.dirty == {"n1"}

    inner.verdict = Verdict(status=VerdictStatus.CLEAN, depth=Depth.QUICK)
    assert (await check()).status is VerdictStatus.CLEAN
    assert (watch.dirty, watch.mismatches) == (set(), 1)


async def test_the_rate_decides_how_many_resets_miss_something_the_same_in_each_arm() -> None:
    async def marked(arm: Arm, rate: float) -> list[str]:
        forgetful = Forgetful(Cell(arm=arm, rate=rate, seed=4), Watch(dirty={NamespaceId("n7")}))
        out: list[str] = []
        for number in range(400):
            ticket = Ticket(
                id=f"{arm}-{number}",
                run="r",
                group=f"{arm}-{number // 6}",
                member=number % 6,
                attempt=0,
                environment="e",
                task=TASK,
            )
            draft = Draft(ticket=ticket, clock=FakeClock(), budget=Budget(retries=0, alternatives=0))
            session = SimpleNamespace(lease=SimpleNamespace(namespace=NamespaceId(f"n{number % 8}")))
            forgetful.marked.clear()
            await forgetful(session, draft)
            assert bool(forgetful.marked) is bool(draft.planted)
            out += [str(number)] if draft.planted else []
        assert len(forgetful._watch.dirty_starts) == 50
        return out

    off, on = await marked(Arm.OFF, 0.5), await marked(Arm.ON, 0.5)
    assert off == on
    assert len(off) / 400 == pytest.approx(0.5, abs=0.1)
    assert set(await marked(Arm.OFF, 0.1)) < set(off)


def test_success_is_counted_among_those_that_were_judged() -> None:
    def record(name: str, task: str, reward: float | None) -> Trajectory:
        more = {"run": "r", "group": "g", "member": 0, "attempt": 0, "environment": "e", "family": "f"}
        return Trajectory(id=name, task=task, reward=reward, success=bool(reward), **cast("Any", more))

    found = success_of([record("a", "t1", 1.0), record("b", "t1", 0.0), record("c", "t2", 1.0), record("lost", "t3", None)])

    assert found == {"success": pytest.approx(2 / 3, abs=1e-4), "trajectories": 3, "tasks": 2}


def test_intervals_are_students() -> None:
    found = interval([0.1, 0.2, 0.3])

    assert found.mean == pytest.approx(0.2)
    assert found.high == pytest.approx(0.2 + 4.303 * 0.1 / 3**0.5, abs=1e-4)
    assert interval([0.4]).low is None


def test_verdicts_need_the_margin_and_the_interval() -> None:
    assert harms(interval([0.2, 0.21, 0.19])) == "yes"
    assert harms(interval([0.05, 0.06, 0.055])) == "undecided"  # below the margin
    assert harms(interval([0.5, 0.0, 0.1])) == "undecided"  # the interval holds 0
    assert harms(interval([0.5])) == "undecided"
    assert protects(interval([0.01, 0.02, 0.0])) == "yes"
    assert protects(interval([0.01, 0.3, 0.0])) == "undecided"


def run(arm: str, rate: float, seed: int, final: float) -> dict[str, Any]:
    curve = [{"updates": n, "success": value, "trajectories": 128, "tasks": 64} for n, value in ((0, 0.3), (20, final))]
    cell = {"arm": arm, "rate": rate, "seed": seed, "name": f"{arm}-{rate}-{seed}"}
    more = {"in_batches": 480, "dirty_starts_in_batches": 0, "states": {"quarantined": 0}, "ended": 480, "seconds": 1.0}
    return {"cell": cell, "curve": curve, **more}


def test_arms_are_compared_by_seed_and_what_is_missing_is_said() -> None:
    runs = [run("none", 0, s, 0.9) for s in (1, 2, 3)] + [run("off", 0.5, s, 0.4 + s / 100) for s in (1, 2)]
    (row,) = analyse(runs)

    assert row["none_minus_off"]["n"] == 2
    assert row["none_minus_off"]["mean"] == pytest.approx(0.485)
    assert (row["harms"], row["protects"], row["on"]) == ("yes", "not run", None)


def test_reports_are_written_whatever_was_run(tmp_path: Any) -> None:
    runs = [run("none", 0, 1, 0.9), run("off", 0.5, 1, 0.4)]
    summary = experiment(runs, tmp_path, size="quick")

    assert json.loads((tmp_path / "contamination.json").read_text())["analysis"] == summary["analysis"]
    ElementTree.parse(tmp_path / "contamination-0.5.svg")


def test_a_plot_is_well_formed_and_keeps_within_its_frame() -> None:
    svg = curves("a < b", "note", [Line(label="one & two", points=[(0, 0.0), (20, 1.0)], low=[0.0, 0.9], high=[0.1, 1.2])])
    root = ElementTree.fromstring(svg)

    texts = ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")]
    assert "a < b" in texts
    assert "one & two" in texts
    ys = [float(c.get("cy", "-1")) for c in root.iter() if c.tag.endswith("circle")]
    assert ys[0] > ys[1] >= 0


def test_the_recipe_is_the_one_that_was_fixed() -> None:
    recipe = Recipe()

    assert (recipe.updates, recipe.marks, recipe.batch_groups, recipe.group_size) == (20, (0, 10, 20), 4, 6)
    assert (recipe.samples, recipe.max_gap) == (2, 1)


@pytest.mark.parametrize(("marks", "better"), [((0.3, 0.4, 0.5), True), ((0.3, 0.5, 0.3), False), ((0.3, 0.5), False)])
def test_better_is_who_made_all_updates_and_ended_above_the_begin(tmp_path: Path, marks: tuple[float, ...], better: bool) -> None:
    curve = [{"updates": 10 * n, "success": each, "trajectories": 128, "tasks": 64} for n, each in enumerate(marks)]
    run = {
        "cell": {"seed": 1},
        "updates": curve[-1]["updates"],
        "curve": curve,
        "published": 0,
        "changed": 0,
        "ended": 0,
        "seconds": 1,
    }

    assert learning([run], tmp_path, updates=20)["better"] is better
