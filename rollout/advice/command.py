"""`autoclave advise check | staleness | elastic`: what the measurements of this home advise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from sandbox.settings import Settings

app = App(name="advise", help="What the measurements advise, with the figures behind each answer.")
Run = Annotated[str, Parameter(help="A run's id; the latest run by default.")]
COUNT = Number(gte=1)


@app.command
def check(
    environment: str,
    /,
    *,
    check_s: Annotated[float | None, Parameter(help="Seconds of a deep check; from the ledger by default.")] = None,
    trajectory_s: Annotated[float | None, Parameter(help="Seconds of a trajectory; from the latest run by default.")] = None,
    covered: Annotated[int | None, Parameter(help="Trajectories that deep checks covered; from the ledger by default.")] = None,
    leaks: Annotated[int, Parameter(help="Of those, leaks found (with --covered).")] = 0,
    home: Home = None,
    json: Json = False,
) -> int:
    """Say how often to check deep: where the price of checks and the expected loss after a leak are least together.

    Example: autoclave advise check shop
    """
    from rollout.advice.cadence import Experience, cadence, experience_of, with_given
    from sandbox.wiring import environment as opened

    settings = load(home)
    spec = opened(environment, settings).spec
    known = _trajectory_s(settings.home, spec.name) if trajectory_s is None else trajectory_s
    if check_s is not None and covered is not None and known is not None:
        experience = Experience(check_s=check_s, trajectory_s=known, covered=covered, leaks=leaks)
    else:
        kept = experience_of(run_to_end(_rows(settings, spec.name)), known)
        experience = with_given(kept, check_s=check_s, covered=covered, leaks=leaks)
    found = {"environment": spec.name, **cadence(experience, now=spec.check.deep_every)}
    if json:
        output.print_json(found)
    else:
        now, limit = found["now_costs_s_per_trajectory"], found["leak_rate_limit"]
        output.show(
            f"check deep every {found['deep_every']} resets (now every {found['now']})",
            f"expected cost: {found['expected_s_per_trajectory']:.4g} s a trajectory, now {now:.4g} s",
            f"{found['leaks']} leaks in {found['covered']} trajectories: at most {limit:.2%} at {found['confidence']:.0%}",
            f"a deep check takes {found['check_s']:.3g} s, a trajectory {found['trajectory_s']:.3g} s",
        )
    return 0


@app.command
def staleness(*, run: Run = "", home: Home = None, json: Json = False) -> int:
    """Say what to do about trajectories that were too old for a batch: publish more often, or change the boundary, by cost.

    Example: autoclave advise staleness
    """
    from rollout.advice.staleness import advise
    from rollout.folders import folder_of
    from rollout.meters.measure import stored
    from rollout.meters.staleness import staleness as measure

    folder = folder_of(load(home).home, run)
    evidence = stored(folder)
    rule = next((e for e in evidence.events if e["kind"] == "told"), {}).get("sync", {})
    found = {
        "run": folder.name,
        **advise(
            measure(evidence.records, evidence.outcomes, evidence.events),
            places=evidence.dependencies.get("model", {}).get("limit", 1),
            max_gap=rule.get("max_gap", 0),
            batch_groups=rule.get("groups", 1),
        ),
    }
    if json:
        output.print_json(found)
    else:
        output.show(f"{found['advice']}: {found['why']}")
    return 0


@app.command
def elastic(
    *,
    model: Annotated[Path, Parameter(help="The model whose engine and learner would move.")],
    run: Run = "",
    devices: Annotated[int, Parameter(validator=COUNT, help="How many would move.")] = 1,
    times: Annotated[int, Parameter(validator=COUNT, help="Moves to time; the longest counts.")] = 1,
    home: Home = None,
    json: Json = False,
) -> int:
    """Time a real move of a device from generation to learning and back, and say whether the idle time of a run is worth it.

    The engine is ended, the learner loads its weights and optimizer, is ended, and the engine starts again until it answers.

    Example: autoclave advise elastic --model ./SmolLM2-135M-Instruct
    """
    from rollout.advice.elastic import decide, idle_of
    from rollout.folders import folder_of
    from rollout.meters.measure import stored

    idle = idle_of(stored(folder_of(load(home).home, run)))
    found = decide(run_to_end(_move(model, times)), idle, devices=devices)
    if json:
        output.print_json(found)
    else:
        output.show(f"{'move' if found['move'] else 'do not move'}: {found['why']}")
    return 0


def _trajectory_s(home: Path, environment: str) -> float | None:
    """The mean length of the latest run's trajectories, where it was one of this environment."""
    from statistics import fmean

    from rollout.folders import folder_of
    from rollout.meters.measure import stored
    from sandbox.errors import RecordMissing

    try:
        records = stored(folder_of(home)).records.values()
    except RecordMissing:
        return None
    own = [r.duration_s - r.session_queue_s for r in records if r.environment == environment and r.lease]
    return fmean(own) if own else None


async def _rows(settings: Settings, environment: str) -> dict[str, Any]:
    from datetime import UTC, datetime

    from rollout.meters.measure import activity
    from sandbox.errors import RecordMissing

    found = await activity(settings.ledger, environment=environment, since=datetime(2000, 1, 1, tzinfo=UTC))
    if found is None:
        raise RecordMissing(f"there is no ledger in {settings.home}", fix="`autoclave rollout run` or `autoclave audit` makes one")
    return found


async def _move(model: Path, times: int) -> dict[str, Any]:
    from rollout.advice.elastic import measure_move
    from rollout.advice.moving import move_steps
    from sandbox.clock import SystemClock

    clock = SystemClock()
    async with move_steps(model, clock) as steps:
        return await measure_move(steps, clock=clock, times=times)
