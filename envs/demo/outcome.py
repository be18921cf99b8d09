"""Sums the demo up: its JSON, and a report like an audit's."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

from envs.demo.story import ENVIRONMENTS, Played
from sandbox.audit import gather, publish
from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.model import ClearanceState, Depth, ResetMethod, VerdictStatus
from sandbox.report import AuditReport, EnvironmentEntry, LeakEntry, SealEntry
from sandbox.settings import Settings


async def tell(played: Played, settings: Settings) -> dict[str, Any]:
    """Write the report and return what `demo --json` prints."""
    clock = SystemClock()
    async with open_ledger(settings.ledger, clock=clock, read_only=True) as ledger:
        checks, leases, quarantines = await gather(ledger, since=played.started, environments=ENVIRONMENTS)
        resets = (await ledger.activity(played.started))["resets"]
        known = {e.spec.name: {b.digest: b for b in await ledger.baselines(e.spec.name)} for e in played.environments}
    leaks = leak_entries(played)
    report = AuditReport(
        started=played.started,
        ended=clock.now(),
        environments=tuple(_environment(e, known[e.spec.name], played) for e in played.environments),
        checks=checks,
        leases=leases,
        quarantines=quarantines,
        leaks=leaks,
        seals=tuple(_seal(name, holds, played) for name, holds in played.seals.items()),
        in_force=played.status["in_force"],
    )
    report = await publish(report, settings.reports, name="demo")
    told = [t for act in played.acts for t in act.told]
    quick = [c.seconds for c in checks if c.depth is Depth.QUICK and c.status is VerdictStatus.CLEAN]
    return {
        "environment": list(ENVIRONMENTS),
        "runtime": played.status["in_force"].get("runtime"),
        "storage": played.status["in_force"].get("storage"),
        "sessions": len(told),
        "leaks_planted": len(leaks),
        "leaks_caught": sum(leak.caught for leak in leaks),
        "false_alarms": sum(act.alarms for act in played.under(ResetMethod.RESTORE)),
        "quarantined": [t.trajectory for t in told if t.state is ClearanceState.QUARANTINED],
        "cleared": [t.trajectory for t in told if t.state is ClearanceState.CLEARED],
        "reset_ms": percentiles([r["seconds"] for r in resets if r["method"] == ResetMethod.RESTORE]),
        "reset_by_hand_ms": percentiles([r["seconds"] for r in resets if r["method"] == ResetMethod.HOOK]),
        "check_ms": percentiles(quick),
        "acquire_ms": percentiles([t.acquire_s for t in told]),
        "leaks": [{"environment": k.environment, "name": k.name, "caught": k.caught, "fields": list(k.fields)} for k in leaks],
        "by_hand_alone": {act.environment: sorted(act.control.fields) for act in played.under(ResetMethod.HOOK)},
        "in_force": dict(played.status["in_force"]),
        "home": str(settings.home),
        "report": report.html,
    }


def leak_entries(played: Played) -> tuple[LeakEntry, ...]:
    """Each leak: what showed it after the reset by hand, and whether it was gone after `restore`."""
    restored = played.under(ResetMethod.RESTORE)
    return tuple(
        LeakEntry(
            name=leak.name,
            environment=act.environment,
            caught=bool(fields),
            fields=tuple(sorted(fields)),
            repaired=all(t.state is ClearanceState.CLEARED for r in restored for t in r.told if t.script.leak == leak),
        )
        for act in played.under(ResetMethod.HOOK)
        for leak, fields in act.caught()
    )


def percentiles(seconds: list[float]) -> dict[str, float | None]:
    """Return p50 and p99 in milliseconds, None where nothing was measured."""
    if len(seconds) < 2:
        return dict.fromkeys(("p50", "p99"), round(seconds[0] * 1e3, 3) if seconds else None)
    cut = quantiles(sorted(seconds), n=100, method="inclusive")
    return {"p50": round(cut[49] * 1e3, 3), "p99": round(cut[98] * 1e3, 3)}


def _environment(environment: Any, known: dict[str, Any], played: Played) -> EnvironmentEntry:
    spec = environment.spec
    live = played.status["environments"][spec.name]
    baseline = known.get(live["baseline"])
    return EnvironmentEntry(
        name=spec.name,
        version=spec.version,
        digest=spec.digest,
        reset=spec.reset.method,
        required_depth=spec.check.required_depth,
        baseline=live["baseline"],
        fields=baseline.fields if baseline else 0,
        instances=baseline.instances if baseline else 0,
        drift=baseline.drift if baseline else (),
        namespaces=live["live"],
    )


def _seal(name: str, holds: bool, played: Played) -> SealEntry:
    return SealEntry(snapshot=played.status["environments"][name]["snapshot"], environment=name, digest="", holds=holds)
