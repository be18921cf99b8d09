"""Probe scores that were stored: which hold for an environment as it is now, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.planting.score import ProbeScore
from probes.leaks.catalogue import digest
from sandbox.model import Baseline, StoredScore
from sandbox.ports import Environment, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A stored score. `stale` names what is not as it was then, nothing where the score holds; `state` is the start state, and
    `runtime` the name of that under which it was measured, empty where that was not recorded."""

    score: StoredScore
    state: str = "golden"
    runtime: str = ""
    stale: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        body = self.score.body
        return {
            "method": self.score.method.value,
            "state": self.state,
            "runtime": self.runtime or None,
            "at": None if self.score.at is None else self.score.at.isoformat(timespec="seconds"),
            "planted": body["planted"],
            "caught": body["caught"],
            "repaired": body["repaired"],
            "missed": body["missed"],
            "left": body["left"],
            "false_alarms": body["false_alarms"],
            "sample": body["sample"],
            "baseline": self.score.baseline,
            "stale": list(self.stale),
        }


def stored(score: ProbeScore, environment: Environment, baseline: Baseline) -> StoredScore:
    """Return a score as the ledger takes it."""
    return StoredScore(
        baseline=baseline.key,
        environment=environment.spec.name,
        method=score.method,
        catalogue=digest(),
        body=score.as_json(),
        sampled=score.seed is not None,
    )


async def kept(environment: Environment, ledger: Ledger) -> Sequence[Kept]:
    """Return the environment's stored scores: those that hold first, whole ones before samples, newest first."""
    leaks = digest()
    found = []
    for score in await ledger.scores(environment.spec.name):
        recorded = await ledger.baseline(score.baseline)
        found.append(_judged(score, recorded, environment, leaks))
    return sorted(found, key=lambda k: (bool(k.stale), k.score.sampled))


def _judged(score: StoredScore, recorded: Baseline | None, environment: Environment, leaks: str) -> Kept:
    now = {"environment": environment.spec.digest, "probes": environment.verifier.digest}
    parts = {} if recorded is None else recorded.parts
    stale = [name for name, text in now.items() if parts.get(name) != text]
    if score.catalogue != leaks:
        stale.append("catalogue")
    state = (recorded.state if recorded else "") or "golden"
    return Kept(score=score, state=state, runtime=parts.get("runtime", "").partition(",")[0], stale=tuple(stale))
