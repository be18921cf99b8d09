"""`autoclave rollout map | measure | triage`: reads a run that has ended, or goes on, and says where its time went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rollout.folders import folder_of
from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from rollout.meters.measure import Evidence

Run = Annotated[str, Parameter(help="A run's id; the latest run by default.")]


def trajectory_map(trajectory: str, /, *, run: Run = "", home: Home = None, json: Json = False) -> int:
    """Map one trajectory from its admission to the next policy: every wait, call, retry and write, and who answers for each.

    Four answers come with it: what was held while it waited, what ran beside it, what ended it, and what an update needs of it.

    Example: autoclave rollout map run-6f2c1a90-0-1
    """
    from rollout.meters.map import trajectory_map as draw
    from rollout.meters.measure import stored
    from rollout.meters.shown import map_tables

    folder = folder_of(load(home).home, run or _run_of(trajectory, load(home).home))
    found = draw(stored(folder), trajectory, run=folder.name)
    if json:
        output.print_json(found)
    else:
        output.show(*map_tables(found))
    return 0


def measure(*, run: Run = "", home: Home = None, json: Json = False) -> int:
    """Compute every meter of a run again, from its trajectory store, its events and the ledger.

    Example: autoclave rollout measure --json
    """
    from rollout.meters.measure import measure as compute
    from rollout.meters.shown import meter_tables

    folder, evidence = _evidence(load(home).home, run)
    found = {"run": folder.name, **compute(evidence)}
    if json:
        output.print_json(found)
    else:
        output.show(*meter_tables(found))
    return 0


def triage(
    *,
    run: Run = "",
    gpu_memory_mb: Annotated[float | None, Parameter(help="Of one device, so that memory can be judged.")] = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Name the constraint that binds: idle compute, rollouts without signal, or memory. Three numbers and one verdict.

    Example: autoclave rollout triage
    """
    from rollout.advice.triage import triage as judge
    from rollout.meters.shown import triage_table

    folder, evidence = _evidence(load(home).home, run)
    found = {"run": folder.name, **judge(evidence, device_mb=gpu_memory_mb)}
    if json:
        output.print_json(found)
    else:
        output.show(*triage_table(found))
    return 0


def _evidence(home: Path, run: str) -> tuple[Path, Evidence]:
    """A run's folder and all that is known of it, with the ledger's rows where there is a ledger."""
    from dataclasses import replace

    from rollout.meters.measure import LEDGER, activity, began, stored, until, used

    folder = folder_of(home, run)
    evidence = stored(folder)
    environment = next((r.environment for r in evidence.records.values()), "")
    records = evidence.records
    rows: dict[str, Any] | None = run_to_end(
        activity(home / LEDGER, environment=environment, since=began(records), until=until(records), namespaces=used(records))
    )
    return folder, replace(evidence, activity=rows)


def _run_of(trajectory: str, home: Path) -> str:
    """A trajectory's id begins with its run's; where no such run is there, the latest one is looked at."""
    runs = [p.name for p in (home / "rollouts").glob("*") if trajectory.startswith(f"{p.name}-")]
    return max(runs, key=len, default="")
