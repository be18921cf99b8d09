"""`autoclave demo`: plays the story and shows what it found."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from envs.demo.story import Act
    from sandbox.settings import Settings

ENVIRONMENTS = ("shop", "repo")


def demo(
    *,
    size: Annotated[int, Parameter(help="Namespaces per environment.")] = 2,
    home: Home = None,
    json: Json = False,
) -> int:
    """Show the main job on this machine, on the embedded runtime, with the shipped environments `shop` and `repo`.

    Scripted agents work on real tasks and leave things behind, as agents do. First with the reset that most authors write by hand:
    the checks find what it misses, the trajectories are quarantined, the namespaces rebuilt. Then with `restore`: the same agents,
    nothing found. Its ledger and report lie in a home of its own below yours, so that your records stay yours.

    Exit code 1 when a leak was missed or a clean reset raised an alarm.

    Example: autoclave demo --json
    """
    settings = load(home)
    settings = load(settings.home / "demo")
    result = run(_play(settings, size))
    if json:
        output.print_json(result)
    else:
        from sandbox.report import terminal

        output.show(terminal.demo(result))
    good = result["leaks_caught"] == result["leaks_planted"] and result["false_alarms"] == 0
    return 0 if good else 1


async def _play(settings: Settings, size: int) -> dict[str, Any]:
    from envs.demo.story import play
    from sandbox.clock import SystemClock
    from sandbox.model import Depth, ResetMethod
    from sandbox.wiring import environment, open_pool

    clock, progress = SystemClock(), output.Progress()
    started = clock.now()
    opened: list[Any] = [environment(name, settings) for name in ENVIRONMENTS]
    acts: list[Act] = []
    in_force: dict[str, Any] = {}
    progress.say("building golden snapshots and baselines of shop and repo (kept for the next time)")
    for number, (method, depth, title) in enumerate(
        (
            (
                ResetMethod.HOOK,
                None,
                "first, the reset that most authors write: TRUNCATE and reload, git reset and git clean",
            ),
            (ResetMethod.RESTORE, Depth.DEEP, "then restore: the same agents, the same tasks, the same things left behind"),
        ),
        start=1,
    ):
        kept = [e.with_reset(method) for e in opened]
        async with open_pool(kept, size=size, settings=settings) as pool:
            progress.say(f"act {number}: {title}")
            for environment_ in kept:
                act = await play(pool, environment_, depth=depth)
                acts.append(act)
                progress.say(f"  {act.environment}: {len(act.told)} sessions, {act.alarms} quarantined")
            status = await pool.status()
            in_force = dict(status["in_force"])
            ledger = status["ledger"]
    return await _told(settings, opened, acts, in_force, ledger, started)


async def _told(
    settings: Settings, opened: list[Any], acts: list[Act], in_force: dict[str, Any], counters: Any, started: datetime
) -> dict[str, Any]:
    """Sum up, and write the report."""
    from statistics import quantiles

    from sandbox.audit import gather, publish
    from sandbox.clock import SystemClock
    from sandbox.ledger import open_ledger
    from sandbox.model import ClearanceState
    from sandbox.report import AuditReport, EnvironmentEntry, LeakEntry

    by_hand = [a for a in acts if a.method == "hook"]
    restored = [a for a in acts if a.method == "restore"]
    told = [t for act in acts for t in act.told]
    leaks = [
        LeakEntry(
            name=leak.name,
            environment=act.environment,
            caught=bool(fields),
            fields=tuple(sorted(fields)),
            repaired=all(t.state is ClearanceState.CLEARED for r in restored for t in r.told if t.script.leak == leak),
        )
        for act in by_hand
        for leak, fields in act.caught()
    ]
    clock = SystemClock()
    async with open_ledger(settings.ledger, clock=clock, read_only=True) as ledger:
        checks, leases, quarantines = await gather(ledger, since=started, environments=ENVIRONMENTS)
        baselines = {e.spec.name: (await ledger.baselines(e.spec.name))[:1] for e in opened}
    report = AuditReport(
        started=started,
        ended=clock.now(),
        environments=tuple(
            EnvironmentEntry(
                name=e.spec.name,
                version=e.spec.version,
                digest=e.spec.digest,
                reset=e.spec.reset.method,
                required_depth=e.spec.check.required_depth,
                baseline=baseline.digest,
                fields=baseline.fields,
                instances=baseline.instances,
                drift=baseline.drift,
            )
            for e in opened
            for baseline in baselines[e.spec.name]
        ),
        checks=checks,
        leases=leases,
        quarantines=quarantines,
        leaks=tuple(leaks),
        in_force=in_force,
    )
    report = await publish(replace(report), settings.reports, name="demo")
    acquired = sorted(t.acquire_s * 1e3 for t in told)
    cut = quantiles(acquired, n=100, method="inclusive")
    return {
        "environment": list(ENVIRONMENTS),
        "runtime": in_force.get("runtime"),
        "storage": in_force.get("storage"),
        "sessions": len(told),
        "leaks_planted": len(leaks),
        "leaks_caught": sum(leak.caught for leak in leaks),
        "false_alarms": sum(act.alarms for act in restored),
        "quarantined": [t.trajectory for t in told if t.state is ClearanceState.QUARANTINED],
        "cleared": [t.trajectory for t in told if t.state is ClearanceState.CLEARED],
        "reset_ms": counters["reset_ms"],
        "check_ms": counters["check_ms"],
        "acquire_ms": {"p50": round(cut[49], 3), "p99": round(cut[98], 3)},
        "leaks": [{"environment": k.environment, "name": k.name, "caught": k.caught, "fields": list(k.fields)} for k in leaks],
        "by_hand_alone": {act.environment: sorted(act.control.fields) for act in by_hand},
        "in_force": in_force,
        "home": str(settings.home),
        "report": report.html,
    }
