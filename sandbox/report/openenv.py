"""The audit as check results in the form of OpenEnv's report-v2, under its ids where they name the same thing.

OpenEnv's own severity policy applies to `runtime.*`; ids under `autoclave.*` are ours, for what it has no name for. Evidence
names fields and never shows values, since a value may be a credential.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.model import VerdictStatus
from sandbox.report.contents import AuditReport
from sandbox.report.text import visible

EVIDENCE = 50  # lines of evidence a check; what is left out is counted in the last line
_GUARDS = {
    "host_containment": "run `autoclave doctor` and see docs/runtimes.md: the default profile must be in force",
    "network_policy": 'set `network = "none"` and serve what the agent needs as a resource',
    "resource_bounds": "let the manager make cgroups, or accept prlimit and set [limits]",
}


def results(report: AuditReport) -> list[dict[str, Any]]:
    """Return one object a check: check_id, status, measured, evidence, remediation, duration_s."""
    found = [_isolation(report), _determinism(report)]
    guards = {guard.name: guard for guard in report.guards}
    for name, fix in _GUARDS.items():
        guard = guards.get(name)
        status = "skip" if guard is None or guard.holds is None else "pass" if guard.holds else "fail"
        evidence = guard.evidence if guard and guard.evidence else ("not looked at in this audit",) if status == "skip" else ()
        found.append(_result(f"runtime.{name}", status, dict(guard.measured) if guard else {}, evidence, fix))
    return [*found, _seals(report), _leaks(report)]


def _isolation(report: AuditReport) -> dict[str, Any]:
    """Cross-episode isolation: what one trajectory did is not there for the next."""
    unsure = sum(check.status is VerdictStatus.INCONCLUSIVE for check in report.checks)
    measured = {
        "checks": len(report.checks),
        "namespaces": len({check.namespace for check in report.checks}),
        "fields": sum(check.fields for check in report.checks),
        "mismatches": len(report.mismatches),
        "inconclusive": unsure,
        "quarantined": len(report.quarantined),
    }
    differing = any(check.status is VerdictStatus.MISMATCH for check in report.checks)
    status = "skip" if not report.checks else "fail" if differing else "error" if unsure else "pass"
    evidence = [f"{c.environment} {c.namespace}: {m.probe}/{m.field} differs" for c, m in report.mismatches]
    evidence += [f"{c.environment} {c.namespace}: {p.probe} gave no answer: {p.reason}" for c in report.checks for p in c.problems]
    fix = "see the difference view of the HTML report; a reset of method `restore` replaces the whole state"
    seconds = sum(check.seconds for check in report.checks)
    return _result(
        "runtime.episode_isolation", status, measured, evidence or ["no check was made"] * (status == "skip"), fix, seconds
    )


def _determinism(report: AuditReport) -> dict[str, Any]:
    """Every episode begins in the same state: fresh instances agree field by field."""
    baselined = [e for e in report.environments if e.baseline]
    measured = {
        "environments": len(report.environments),
        "with_baseline": len(baselined),
        "fields": sum(e.fields for e in baselined),
        "instances": min((e.instances for e in baselined), default=0),
        "drift": sum(len(e.drift) for e in baselined),
    }
    missing = [f"{e.name}: no baseline was recorded" for e in report.environments if not e.baseline]
    few = [f"{e.name}: {e.instances} instance agreed, two are needed" for e in baselined if e.instances < 2]
    drift = [f"{e.name}: {m.probe}/{m.field} differs after a rebuild from the seed" for e in baselined for m in e.drift]
    status = "skip" if not report.environments else "fail" if missing or few else "pass"
    fix = "autoclave env baseline; declare a field volatile only with a reason"
    return _result("runtime.episode_determinism", status, measured, [*missing, *few, *drift], fix)


def _seals(report: AuditReport) -> dict[str, Any]:
    broken = [f"{s.environment} {s.snapshot}: {s.detail or 'its digest is another'}" for s in report.broken_seals]
    status = "skip" if not report.seals else "fail" if broken else "pass"
    measured = {"verified": len(report.seals) - len(broken), "broken": len(broken)}
    return _result(
        "autoclave.golden_seal", status, measured, broken, "build the environment from its seed and record a new baseline"
    )


def _leaks(report: AuditReport) -> dict[str, Any]:
    missed = [f"{leak.environment}: {leak.name} was planted and not seen" for leak in report.leaks if not leak.caught]
    status = "skip" if not report.leaks else "fail" if missed else "pass"
    measured = {"planted": len(report.leaks), "caught": len(report.leaks) - len(missed)}
    return _result("autoclave.probe_score", status, measured, missed, "add a probe that reads what the missed leak changes")


def _result(
    check_id: str, status: str, measured: Mapping[str, Any], evidence: Iterable[str], fix: str, seconds: float = 0.0
) -> dict[str, Any]:
    lines = [visible(line).replace("\n", " ")[:500] for line in evidence]
    if len(lines) > EVIDENCE:
        lines = [*lines[: EVIDENCE - 1], f"and {len(lines) - EVIDENCE + 1} more"]
    return {
        "check_id": check_id,
        "status": status,
        "measured": dict(measured),
        "evidence": lines,
        "remediation": None if status in ("pass", "skip") else fix,
        "duration_s": round(seconds, 6),
    }
