"""Verifies an environment's reset: probes, baseline, destructive trajectories, reset, and the same again.

The procedure is run without a pool, on instances that nobody leases. Its positive control comes with each trajectory: before the
reset the probes must find differences, since a check that sees nothing of what was just destroyed proves nothing afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from envs import destructive
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError, EnvironmentInvalid
from sandbox.model import Baseline, Depth, DestructiveAction, Mismatch, NamespaceId, ResetMethod, Verdict, VerdictStatus
from sandbox.pool.limits import PoolLimits
from sandbox.pool.members import Ports, StartState
from sandbox.pool.preparation import Preparer
from sandbox.ports import Environment, Instance, Ledger, Runtime

log = logging.getLogger(__name__)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the procedure."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeScore:
    """How many destructive actions the probes saw before a reset, and how many the reset undid."""

    planted: int
    caught: int
    repaired: int
    missed: tuple[str, ...]


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
        if self.differences:
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
            },
            "steps": [
                {"name": s.name, "ok": s.ok, "seconds": round(s.seconds, 3), **({"detail": s.detail} if s.detail else {})}
                for s in self.steps
            ],
            "differences": [
                {"probe": m.probe, "field": m.field, "expected": m.expected, "actual": m.actual} for m in self.differences
            ],
            "problems": self.problems,
            "score": None
            if self.score is None
            else {
                "planted": self.score.planted,
                "caught": self.score.caught,
                "repaired": self.score.repaired,
                "missed": list(self.score.missed),
            },
            "in_force": dict(self.in_force),
            "verdict": self.verdict.value,
        }


async def baseline(
    environment: Environment, runtime: Runtime, ledger: Ledger, *, rebuild: bool = False, task: str | None = None
) -> StartState:
    """Return the environment's golden (or a task's start state) with its baseline; build and record what is missing."""
    preparer = Preparer(Ports(ledger=ledger, runtime=runtime, clock=SystemClock(), limits=PoolLimits()))
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
    report = CheckReport(environment=spec.name, method=spec.reset.method, baseline=start.baseline, steps=steps)
    actions = spec.destructive or destructive.defaults(spec)
    async with _Subjected.open(environment, runtime, start) as subjected:
        report.in_force = dict(subjected.instance.in_force)
        await _round(report, subjected, _chunks(actions, trajectories), "", say)
        await _round(report, subjected, [actions], "repeat: ", say)
        if score:
            with _timed(steps, "score", say):
                report.score = await _score(subjected, actions, say)
    return report


async def _round(
    report: CheckReport, subjected: _Subjected, parts: Sequence[Sequence[DestructiveAction]], prefix: str, say: Say
) -> None:
    """Act, look without a reset, reset, look again, for each part. The first round's three steps add up over its parts."""
    seconds = {"trajectories": 0.0, "reset": 0.0, "compare": 0.0}
    notes: dict[str, list[str]] = {name: [] for name in seconds}
    ok = dict.fromkeys(seconds, True)
    clock = SystemClock()
    for number, part in enumerate(parts, start=1):
        say(f"{prefix}trajectory {number} of {len(parts)}: {len(part)} destructive actions")
        began = clock.monotonic()
        refused = [f"{a.name} ({why})" for a in part if (why := await destructive.act(subjected.instance, a))]
        control = await subjected.look()
        seconds["trajectories"] += clock.monotonic() - began
        if refused:
            notes["trajectories"].append(f"not done: {', '.join(refused)}")
        if control.clean:
            ok["trajectories"] = False
            report.problems.append(f"positive control: after trajectory {number} and without a reset, the probes saw nothing")
        else:
            notes["trajectories"].append(f"without a reset {len(control.mismatches)} fields differ")
        say(f"{prefix}reset by {report.method.value}")
        began = clock.monotonic()
        try:
            await subjected.reset()
        except (AutoclaveError, OSError, TimeoutError) as error:
            ok["reset"] = False
            report.problems.append(f"reset by {report.method.value} ended in an error: {type(error).__name__}: {error}")
            seconds["reset"] += clock.monotonic() - began
            await subjected.renew()
            continue
        seconds["reset"] += clock.monotonic() - began
        began = clock.monotonic()
        verdict = await subjected.look()
        seconds["compare"] += clock.monotonic() - began
        known = {(m.probe, m.field) for m in report.differences}
        report.differences += [m for m in verdict.mismatches if (m.probe, m.field) not in known]
        report.problems += [f"probe {p.probe}: {p.reason}" for p in verdict.problems]
        ok["compare"] = ok["compare"] and verdict.clean
        notes["compare"].append(f"{verdict.fields} fields read, {len(verdict.mismatches)} differ")
    if prefix:
        detail = "; ".join(dict.fromkeys(notes["trajectories"] + notes["compare"]))
        report.steps.append(Step(name="repeat", ok=all(ok.values()), seconds=sum(seconds.values()), detail=detail))
        return
    seconds["reset"] += seconds.pop("compare")
    ok["reset"] = ok["reset"] and ok.pop("compare")
    notes["reset"] += notes.pop("compare")
    for name, spent in seconds.items():
        title = "reset and compare" if name == "reset" else name
        report.steps.append(Step(name=title, ok=ok[name], seconds=spent, detail="; ".join(dict.fromkeys(notes[name]))))


async def _score(subjected: _Subjected, actions: Sequence[DestructiveAction], say: Say) -> ProbeScore:
    """Each action alone on a fresh state: seen without a reset, and gone after it?"""
    caught = repaired = planted = 0
    missed: list[str] = []
    for action in actions:
        say(f"score: {action.name}")
        await subjected.renew()
        if await destructive.act(subjected.instance, action):
            continue
        planted += 1
        if (await subjected.look()).clean:
            missed.append(action.name)
        else:
            caught += 1
        try:
            await subjected.reset()
            repaired += (await subjected.look()).clean
        except (AutoclaveError, OSError, TimeoutError):
            log.warning("a reset failed while scoring", exc_info=True, extra={"action": action.name})
    return ProbeScore(planted=planted, caught=caught, repaired=repaired, missed=tuple(missed))


def _chunks(actions: Sequence[DestructiveAction], count: int) -> list[Sequence[DestructiveAction]]:
    size = max(1, -(-len(actions) // max(1, count)))
    return [actions[start : start + size] for start in range(0, len(actions), size)]


class _Subjected:
    """An instance that is acted on, looked at and reset, over and over."""

    def __init__(self, environment: Environment, runtime: Runtime, start: StartState) -> None:
        self._environment = environment
        self._runtime = runtime
        self._start = start
        self._limits = PoolLimits()
        self._generation = 0
        self._live: Instance | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, environment: Environment, runtime: Runtime, start: StartState) -> AsyncIterator[_Subjected]:
        subjected = cls(environment, runtime, start)
        try:
            await subjected.renew()
            yield subjected
        finally:
            await subjected._close()

    @property
    def instance(self) -> Instance:
        if self._live is None:
            raise AssertionError("used outside its context")
        return self._live

    async def renew(self) -> None:
        """Start a new instance from the snapshot."""
        await self._close()
        self._generation += 1
        namespace = NamespaceId(f"check-{secrets.token_hex(4)}")
        async with asyncio.timeout(self._limits.start_s):
            self._live = await self._runtime.start(self._environment, self._start.snapshot, namespace, self._generation)

    async def look(self) -> Verdict:
        """Kill what the agent left running, then read everything: a live process could change what is being read."""
        async with asyncio.timeout(self._limits.check_s):
            await self.instance.quiesce()
            return await self._environment.verifier.check(self.instance.subject(), self._start.baseline, Depth.DEEP)

    async def reset(self) -> None:
        policy = self._environment.spec.reset
        self._generation += 1
        async with asyncio.timeout(self._limits.reset_s):
            await self.instance.revoke()
            if policy.method is ResetMethod.HOOK:
                async with asyncio.timeout(policy.hook_limit_s):
                    await self.instance.reset_in_place(self._generation, hook=policy.hook)
            elif policy.method is ResetMethod.CLEAN:
                await self.instance.reset_in_place(self._generation, hook=None)
            elif policy.method is ResetMethod.RESTORE:
                await self.instance.restore(self._start.snapshot, self._generation)
            else:
                await self.renew()

    async def _close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            async with asyncio.timeout(self._limits.close_s):
                await live.close()


@contextmanager
def _timed(steps: list[Step], name: str, say: Say) -> Iterator[list[str]]:
    say(name)
    clock = SystemClock()
    began = clock.monotonic()
    note: list[str] = []
    yield note
    steps.append(Step(name=name, ok=True, seconds=clock.monotonic() - began, detail="; ".join(note)))
