"""One audit: every seal digested again, every namespace read deep, what the period's quarantines had reached.

Works on a pool in this process and on one that runs elsewhere; the ledger is only read, except for the audit's own record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from sandbox.audit.gather import gather
from sandbox.audit.guards import guards
from sandbox.errors import AutoclaveError
from sandbox.model import Baseline, Depth, NamespaceId, QuarantineId, Recall, ResetMethod, StoredScore
from sandbox.ports import Clock, Environment, Ledger
from sandbox.report import AuditReport, EnvironmentEntry, ScoreEntry, SealEntry

FIRST_PERIOD = timedelta(hours=24)


class Audited(Protocol):
    """What an audit asks of a pool."""

    async def status(self) -> Mapping[str, Any]: ...
    async def audit_namespaces(self, depth: Depth = ...) -> Mapping[NamespaceId, bool | None]: ...
    async def verify_seals(self) -> Mapping[str, bool]: ...


async def examine(
    pool: Audited,
    ledger: Ledger,
    environments: Sequence[Environment],
    *,
    clock: Clock,
    started: datetime,
    sessions: Any = None,
    problems: Sequence[str] = (),
) -> AuditReport:
    """Audit these environments of the pool. Checks made since `started` decide the verdict; leases, quarantines and recalls go
    back to the audit before (a day at first). With `sessions` (a pool that may be leased from) the runtime's guards are tried from
    inside, too. `problems` is what could not be looked at already."""
    problems = list(problems)
    names = [e.spec.name for e in environments]
    seals = await pool.verify_seals()
    read = await pool.audit_namespaces(Depth.DEEP)
    problems += [f"namespace {n} is leased: it is read deep when its lease ends" for n, clean in read.items() if clean is None]
    tried = await guards(sessions, names, problems) if sessions is not None else ()
    status = await pool.status()
    checks, _, _ = await gather(ledger, since=started, environments=names)
    _, leases, quarantines = await gather(ledger, since=await _period(ledger, started), environments=names)
    recalls = [r for q in quarantines if (r := await _recall(ledger, q.id, problems)) is not None]
    baselines = {name: await ledger.baselines(name) for name in names}
    for environment in environments:
        recorded = _recorded(status["environments"].get(environment.spec.name, {}), baselines[environment.spec.name])
        suspicions = recorded.suspicions if recorded is not None else ()
        problems += [f"the baseline of {environment.spec.name} itself: {line}" for line in suspicions]
    return AuditReport(
        started=started,
        ended=clock.now(),
        environments=tuple(_entry(e, status["environments"].get(e.spec.name, {}), baselines[e.spec.name]) for e in environments),
        checks=checks,
        leases=leases,
        quarantines=quarantines,
        recalls=tuple(recalls),
        seals=tuple(_seal(name, holds, status["environments"].get(name, {})) for name, holds in seals.items() if name in names),
        scores=tuple([entry for name in names for entry in _scores(await ledger.scores(name), baselines[name])]),
        guards=tried,
        problems=tuple(problems),
        in_force=status["in_force"],
    )


async def _period(ledger: Ledger, started: datetime) -> datetime:
    before = await ledger.audits(1)
    return datetime.fromisoformat(before[0]["started"]) if before and before[0].get("started") else started - FIRST_PERIOD


async def _recall(ledger: Ledger, quarantine: QuarantineId, problems: list[str]) -> Recall | None:
    try:
        return await ledger.recall(quarantine)
    except AutoclaveError as error:
        problems.append(f"the recall of quarantine {quarantine} is not known: {error}")
        return None


def _entry(environment: Environment, live: Mapping[str, Any], baselines: Sequence[Baseline]) -> EnvironmentEntry:
    spec = environment.spec
    baseline = _recorded(live, baselines)
    return EnvironmentEntry(
        name=spec.name,
        version=spec.version,
        digest=spec.digest,
        reset=ResetMethod(spec.reset.method),
        required_depth=spec.check.required_depth,
        baseline=baseline.digest if baseline else "",
        fields=baseline.fields if baseline else 0,
        instances=baseline.instances if baseline else 0,
        drift=baseline.drift if baseline else (),
        namespaces=live.get("live", 0),
        in_force={"isolation": spec.isolation.value, "network": spec.network},
    )


def _recorded(live: Mapping[str, Any], baselines: Sequence[Baseline]) -> Baseline | None:
    return next((b for b in baselines if b.digest == live.get("baseline")), None)


def _scores(stored: Sequence[StoredScore], baselines: Sequence[Baseline]) -> list[ScoreEntry]:
    """Probe scores as a report takes them, those of present baselines and whole ones first."""
    known = {baseline.key: (baseline.state or "golden", _runtime(baseline)) for baseline in baselines}
    newest: dict[tuple[str, str], str] = {}
    for baseline in baselines:
        newest.setdefault(known[baseline.key], baseline.key)
    found = []
    for score in stored:
        state, runtime = known.get(score.baseline, ("golden", ""))
        stale = () if newest.get((state, runtime)) == score.baseline else ("baseline",)
        entry = ScoreEntry(
            environment=score.environment,
            method=score.method,
            body=score.body,
            at=score.at,
            state=state,
            runtime=runtime,
            stale=stale,
        )
        found.append((bool(stale), score.sampled, entry))
    return [entry for *_, entry in sorted(found, key=lambda item: item[:2])]


def _runtime(baseline: Baseline) -> str:
    """The name of the runtime under which it was recorded."""
    return baseline.parts.get("runtime", "").partition(",")[0]


def _seal(name: str, holds: bool, live: Mapping[str, Any]) -> SealEntry:
    detail = "" if holds else str(live.get("broken") or "digest differs")
    return SealEntry(snapshot=live.get("snapshot", ""), environment=name, digest=live.get("digest", ""), holds=holds, detail=detail)
