"""The audit as JSON: the keys that `autoclave audit --json` promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from enum import Enum
from typing import Any

from sandbox.report.contents import AuditReport, EnvironmentEntry, ScoreEntry
from sandbox.report.openenv import results


def audit(report: AuditReport) -> dict[str, Any]:
    """Return one object of JSON types."""
    return {
        "started": report.started.isoformat(),
        "seconds": round(report.seconds, 3),
        "environments": [_environment(entry, report.scores) for entry in report.environments],
        "checks": len(report.checks),
        "mismatches": [
            {
                "environment": check.environment,
                "namespace": check.namespace,
                "check": check.id,
                "probe": mismatch.probe,
                "field": mismatch.field,
                "expected": mismatch.expected,
                "actual": mismatch.actual,
                "depth": mismatch.depth.value,
            }
            for check, mismatch in report.mismatches
        ],
        "problems": [
            *report.problems,
            *(f"{c.environment} {c.namespace}: probe {p.probe}: {p.reason}" for c in report.checks for p in c.problems),
        ],
        "quarantined": list(report.quarantined),
        "recalled_updates": list(report.recalled_updates),
        "recalls": [plain(asdict(recall)) for recall in report.recalls],
        "seals": {"verified": len(report.seals) - len(report.broken_seals), "broken": [s.snapshot for s in report.broken_seals]},
        "leaks": {"planted": len(report.leaks), "caught": sum(leak.caught for leak in report.leaks)},
        "verdict": report.verdict.value,
        "reports": {"html": report.html, "junit": report.junit},
        "in_force": plain(report.in_force),
        "checks_openenv": results(report),
    }


def _environment(entry: EnvironmentEntry, scores: Sequence[ScoreEntry]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "version": entry.version,
        "digest": entry.digest,
        "reset": entry.reset.value,
        "required_depth": entry.required_depth.value,
        "baseline": {"digest": entry.baseline, "fields": entry.fields, "instances": entry.instances} if entry.baseline else None,
        "drift": [f"{m.probe}/{m.field}" for m in entry.drift],
        "namespaces": entry.namespaces,
        "scores": [_score(score) for score in scores if score.environment == entry.name],
        "in_force": plain(entry.in_force),
    }


def _score(score: ScoreEntry) -> dict[str, Any]:
    of_it = ("planted", "caught", "repaired", "missed", "sample")
    return {
        "method": score.method.value,
        "state": score.state,
        "runtime": score.runtime or None,
        **{name: plain(score.body[name]) for name in of_it},
        "stale": list(score.stale),
    }


def plain(value: Any) -> Any:
    """Return a value in JSON types; what JSON does not know becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
