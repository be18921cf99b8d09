"""Verifies an environment's reset: probes, baseline, destructive trajectories, reset, and the same again.

The procedure is run without a pool, on instances that nobody leases. Its positive control comes with each trajectory: before the
reset the probes must find differences, since a check that sees nothing of what was just destroyed proves nothing afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from envs import browser, destructive
from envs.planting.candidates import candidates, own
from envs.planting.kept import stored
from envs.planting.score import ProbeScore, survey
from envs.trial import Trial, told
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError, EnvironmentInvalid, InstanceLost, LimitReached
from sandbox.model import Baseline, Depth, DestructiveAction, Mismatch, Problem, ResetMethod, Verdict, VerdictStatus
from sandbox.pool.limits import PoolLimits
from sandbox.pool.members import Ports, StartState
from sandbox.pool.preparation import Preparer
from sandbox.pool.review import Approve
from sandbox.ports import Environment, Ledger, Runtime

log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the procedure."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """What `env check` found."""

    environment: str
    method: ResetMethod
    baseline: Baseline
    steps: list[Step] = field(default_factory=list)
    differences: list[Mismatch] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    score: ProbeScore | None = None
    in_force: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> VerdictStatus:
        if self.differences or (self.score is not None and self.score.broken):
            return VerdictStatus.MISMATCH
        sound = not self.problems and all(step.ok for step in self.steps)
        return VerdictStatus.CLEAN if sound else VerdictStatus.INCONCLUSIVE

    def as_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "method": self.method.value,
            "baseline": {
                "digest": self.baseline.digest,
                "fields": self.baseline.fields,
                "instances": self.baseline.instances,
                "drift": [f"{m.probe}/{m.field}" for m in self.baseline.drift],
                **review(self.baseline),
            },
            "steps": [
                {"name": s.name, "ok": s.ok, "seconds": round(s.seconds, 3), **({"detail": s.detail} if s.detail else {})}
                for s in self.steps
            ],
            "differences": [
                {"probe": m.probe, "field": m.field, "expected": m.expected, "actual": m.actual} for m in self.differences
            ],
            "problems": self.problems,
            "score": None if self.score is None else self.score.as_json(),
            "in_force": dict(self.in_force),
            "verdict": self.verdict.value,
        }


def review(baseline: Baseline) -> dict[str, Any]:
    """Return what a person should look at: how it differs from the one before it, and why; what an agent could exploit."""
    return {
        "former": baseline.former or None,
        "changed": list(baseline.changed),
        "changes": [{"probe": m.probe, "field": m.field, "expected": m.expected, "actual": m.actual} for m in baseline.changes],
        "suspicions": list(baseline.suspicions),
    }


async def baseline(
    environment: Environment,
    runtime: Runtime,
    ledger: Ledger,
    *,
    rebuild: bool = False,
    task: str | None = None,
    approve: Approve | None = None,
) -> StartState:
    """Return the environment's golden (or a task's start state) with its baseline; build and record what is missing. Raises
    BaselineRefused where that differs from the baseline before it and `approve` does not accept it."""
    preparer = Preparer(Ports(ledger=ledger, runtime=runtime, clock=SystemClock(), limits=PoolLimits()), approve=approve)
    prepared = await preparer.prepare(environment, size=1, rebuild=rebuild)
    return await preparer.start_state(prepared, task) if task else prepared.golden


async def check(
    environment: Environment,
    runtime: Runtime,
    ledger: Ledger,
    *,
    task: str | None = None,
    trajectories: int = 3,
    score: bool = False,
    sample: int = 0,
    seed: int = 0,
    say: Say = lambda _: None,
) -> CheckReport:
    """Run the procedure under the environment's own reset method."""
    spec = environment.spec
    if spec.reset.method is ResetMethod.HOOK and not spec.reset.hook:
        raise EnvironmentInvalid(f"environment {spec.name} has no reset hook", fix="write `hook` or `hook_script` under [reset]")
    steps: list[Step] = []
    with _timed(steps, "probes", say) as note:
        note.append(f"probes {environment.verifier.digest[:12]}")
    with _timed(steps, "baseline", say) as note:
        start = await baseline(environment, runtime, ledger, task=task)
        note.append(f"{start.baseline.fields} fields of {start.baseline.instances} fresh instances agree")
        if start.baseline.former:
            note.append(f"{len(start.baseline.changes)} differ from the baseline before it")
    if start.baseline.suspicions:
        steps[-1] = replace(steps[-1], ok=False)
    report = CheckReport(environment=spec.name, method=spec.reset.method, baseline=start.baseline, steps=steps)
    report.problems += [f"the baseline itself: {line}" for line in start.baseline.suspicions]
    actions = destructive.within_reach(spec, spec.destructive or destructive.defaults(spec))
    async with Trial.open(environment, runtime, start) as trial:
        report.in_force = dict(trial.instance.in_force)
        first = _Round(report, trial, say)
        await first.run(_chunks(actions, trajectories))
        for name, title in (("trajectories", "trajectories"), ("reset", "reset and compare")):
            steps.append(Step(name=title, ok=first.ok[name], seconds=first.seconds[name], detail=first.detail(name)))
        whole = all(first.ok.values())
        again = _Round(report, trial, say, "repeat: ")
        await again.run([actions] if whole else first.parts[:1])
        detail = "; ".join(filter(None, (again.detail("trajectories"), again.detail("reset"))))
        done = bool(again.parts) and all(again.ok.values())
        steps.append(Step(name="repeat", ok=done, seconds=sum(again.seconds.values()), detail=detail))
        if score:
            with _timed(steps, "score", say):
                wanted, inapplicable = await candidates(environment, trial.instance)
                report.score = await survey(
                    trial, [*own(actions), *wanted], inapplicable=inapplicable, sample=sample, seed=seed, say=say
                )
            await ledger.save_score(stored(report.score, environment, start.baseline))
    return report


class _Round:
    """Acts, looks without a reset, resets and looks again, part by part. A part whose reset ends in an error is halved and tried
    on new instances, so that one action which breaks the reset does not hide what the others leave behind."""

    def __init__(self, report: CheckReport, trial: Trial, say: Say, prefix: str = "") -> None:
        self._report = report
        self._trial = trial
        self._say = say
        self._prefix = prefix
        self.parts: list[Sequence[DestructiveAction]] = []  # those whose reset ran
        self.seconds = {"trajectories": 0.0, "reset": 0.0}
        self.notes: dict[str, list[str]] = {"trajectories": [], "reset": []}
        self.ok = {"trajectories": True, "reset": True}
        self._sighted = True  # some action can be seen, so that those which nobody can see need not be
        self._browsed = False  # the part left something in a browser, which may come to its disk seconds later

    async def run(self, parts: Sequence[Sequence[DestructiveAction]]) -> None:
        self._sighted = any(not action.blind for part in parts for action in part)
        waiting = [(part, True) for part in parts]
        while waiting:
            part, whole = waiting.pop(0)
            self._say(f"{self._prefix}trajectory: {len(part)} destructive actions, {len(waiting)} trajectories follow")
            with self._spent("trajectories"):
                lost = await self._act(part, control=whole)
            with self._spent("reset"):
                error = lost or await self._reset()
                if error is None:
                    self.parts.append(part)
                    continue
                await self._trial.renew()
            if lost and len(part) == 1:
                self.notes["trajectories"].append(f"{part[0].name} ended the instance, which a pool restores")
                continue
            self.ok["reset"] = self.ok["reset"] and bool(lost)
            if len(part) > 1:
                middle = len(part) // 2
                waiting[:0] = [(part[:middle], bool(lost)), (part[middle:], bool(lost))]
            else:
                self._report.problems.append(f"after {part[0].name}, {error}")

    async def _act(self, part: Sequence[DestructiveAction], *, control: bool) -> str | None:
        """Do what is destructive and look; return why the instance was lost, None when it lives."""
        refused = {a.name: why for a in part if (why := await destructive.act(self._trial.instance, a))}
        # One that was refused may have done a part of it.
        self._browsed = any(a.browser is not None and not (self._sighted and a.blind) for a in part)
        undone = ", ".join(f"{name} ({why})" for name, why in refused.items())
        if undone:
            self.notes["trajectories"].append(f"not done: {undone}")
        if not control:  # half of a part that had its control
            return None
        try:
            verdict = await self._look(thrown_away=False, quiesce=True)
        except (InstanceLost, LimitReached) as error:  # one that outgrew its bounds is stopped
            return told(error)
        except TimeoutError:  # it lives, as far as anybody knows
            verdict = Verdict(
                status=VerdictStatus.INCONCLUSIVE,
                depth=Depth.DEEP,
                problems=(Problem(probe="all", reason="reading did not end in time"),),
            )
        if verdict.clean and self._sighted and all(a.blind for a in part):
            self.notes["trajectories"].append(f"blind: {', '.join(a.name for a in part)}")
        elif verdict.clean:
            self.ok["trajectories"] = False
            names = ", ".join(a.name for a in part if a.name not in refused and not (self._sighted and a.blind))
            said = f"without a reset, the probes saw nothing of {names}" if names else f"nothing was destroyed: {undone}"
            self._report.problems.append(f"positive control: {said}")
        elif verdict.mismatches:
            self.notes["trajectories"].append(f"without a reset {len(verdict.mismatches)} fields differ")
        else:  # that something is wrong, and not that the probes would see it
            self.ok["trajectories"] = False
            self._report.problems += [f"positive control: probe {p.probe}: {p.reason}" for p in verdict.problems]
        return None

    async def _look(self, *, thrown_away: bool, quiesce: bool) -> Verdict:
        """Look again, later, where nothing is seen of what was done in a browser and has not been thrown away."""
        verdict = await self._trial.look(quiesce=quiesce)
        if self._browsed and not thrown_away and verdict.clean:
            await asyncio.sleep(browser.SETTLED_S)
            verdict = await self._trial.look(quiesce=quiesce)
        return verdict

    async def _reset(self) -> str | None:
        """Reset and compare; return why the reset failed, None when it ran."""
        method = self._report.method
        self._say(f"{self._prefix}reset by {method.value}")
        try:
            await self._trial.reset()
        except (AutoclaveError, OSError, TimeoutError) as error:
            return f"the reset by {method.value} itself fails: {told(error)}"
        try:  # as a pool does after it: what goes on running is left
            verdict = await self._look(thrown_away=method.replaces, quiesce=False)
        except (InstanceLost, LimitReached, TimeoutError) as error:
            return f"what the reset by {method.value} left cannot be read: {told(error)}"
        known = {(m.probe, m.field) for m in self._report.differences}
        self._report.differences += [m for m in verdict.mismatches if (m.probe, m.field) not in known]
        self._report.problems += [f"probe {p.probe}: {p.reason}" for p in verdict.problems]
        self.ok["reset"] = self.ok["reset"] and verdict.clean
        self.notes["reset"].append(f"{verdict.fields} fields read, {len(verdict.mismatches)} differ")
        return None

    @contextmanager
    def _spent(self, name: str) -> Iterator[None]:
        clock = SystemClock()
        began = clock.monotonic()
        yield
        self.seconds[name] += clock.monotonic() - began

    def detail(self, name: str) -> str:
        return "; ".join(dict.fromkeys(self.notes[name]))


def _chunks(actions: Sequence[DestructiveAction], count: int) -> list[Sequence[DestructiveAction]]:
    size = max(1, -(-len(actions) // max(1, count)))
    return [actions[start : start + size] for start in range(0, len(actions), size)]


@contextmanager
def _timed(steps: list[Step], name: str, say: Say) -> Iterator[list[str]]:
    say(name)
    clock = SystemClock()
    began = clock.monotonic()
    note: list[str] = []
    yield note
    steps.append(Step(name=name, ok=True, seconds=clock.monotonic() - began, detail="; ".join(note)))
