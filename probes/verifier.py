"""Judging instances: runs the probes of one environment and compares what they read with the baseline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from probes.baseline import fields_of, settle
from probes.canonical import digest_of
from probes.compare import compare, is_volatile, strip
from probes.probe import Findings, Probe, ProbeContext, SharedProbe, sharing_of
from sandbox.clock import SystemClock
from sandbox.errors import BaselineUnstable
from sandbox.model import Baseline, CheckPolicy, Depth, Mismatch, Problem, Verdict, VerdictStatus, VolatileField
from sandbox.ports import Clock, Subject

log = logging.getLogger(__name__)

IDENTITY = "identity"  # the name of the physical proof, as a probe and as its one field
TRIES = 2  # a loaded machine is not dirt
AT_ONCE = 4
KEPT = 1000  # expectations: a baseline has some for each probe and depth, and a task's start state is a baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    probe: Probe
    findings: Findings


class ProbeVerifier:
    """Implements `sandbox.ports.Verifier` with probes. Fails closed (P1): an error, a timeout, a lacking privilege, a write or
    no fields at all is a problem, and a verdict with a problem is inconclusive."""

    def __init__(
        self, probes: Sequence[Probe], *, policy: CheckPolicy, volatile: tuple[VolatileField, ...] = (), clock: Clock | None = None
    ) -> None:
        names = [p.name for p in probes]
        if len(set(names)) != len(names) or IDENTITY in names:
            raise ValueError(f"probe names must be unique and not {IDENTITY!r}: {sorted(names)}")
        self._probes = tuple(probes)
        self._policy = policy
        self._volatile = volatile
        self._clock: Clock = clock or SystemClock()
        self._expected: dict[tuple[str, str, Depth, bool], Mapping[str, str]] = {}
        self._digest = digest_of(
            [*(part for p in self._probes for part in (p.name, p.digest)), *(f"{v.pattern}\0{v.reason}" for v in volatile)]
        )

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def probes(self) -> tuple[Probe, ...]:
        return self._probes

    async def record(self, subjects: Sequence[Subject], rebuilt: Subject | None, *, key: str) -> Baseline:
        clones: list[Mapping[str, Mapping[str, str]]] = []
        for subject in subjects:
            clones.append(await self.read(subject, like=clones[0] if clones else None))
        drift = await self.read(rebuilt) if rebuilt is not None else None
        due = self._due(subjects[0]) if subjects else self._probes
        return settle(due, clones, drift, key=key, volatile=self._volatile, recorded=self._clock.now())

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        began = self._clock.monotonic()
        mismatches, problems = _identity(subject)
        reads = await self._read(subject, depth, partial(fields_of, baseline))
        fields = 0
        if not reads:
            problems.append(Problem(probe="verifier", reason=f"no probe reads anything at depth {depth}"))
        for read in reads:
            expected = fields_of(baseline, read.probe.name)
            if expected is None:
                problems.append(Problem(probe=read.probe.name, reason="the baseline holds no reading of it: record a new one"))
                continue
            problems.extend(Problem(probe=read.probe.name, reason=reason) for reason in read.findings.problems)
            depth_of = partial(read.probe.depth_of, in_place=subject.in_place)
            due = _due(read.findings.fields, depth_of=depth_of, depth=depth)
            actual = strip(read.probe.name, due, baseline.volatile)
            fields += len(actual)
            wanted = self._wanted(read.probe, baseline, expected, depth, subject.in_place)
            mismatches += [
                m
                for m in compare(
                    read.probe.name,
                    wanted,
                    actual,
                    depth_of=depth_of,
                    partial=bool(read.findings.problems),
                    shared=_whose(read.probe, subject),
                )
                if not is_volatile(read.probe.name, m.field, baseline.volatile)
            ]
        status = VerdictStatus.INCONCLUSIVE if problems else VerdictStatus.MISMATCH if mismatches else VerdictStatus.CLEAN
        return Verdict(
            status=status,
            depth=depth,
            mismatches=tuple(mismatches),
            problems=tuple(problems),
            fields=fields,
            seconds=self._clock.monotonic() - began,
            in_force=_in_force(subject, depth),
        )

    def _wanted(
        self, probe: Probe, baseline: Baseline, fields: Mapping[str, str], depth: Depth, in_place: bool
    ) -> Mapping[str, str]:
        """Return what a check of this depth expects of a probe; worked out once for a baseline, which every reset is checked by."""
        key = (baseline.digest, probe.name, depth, in_place)
        if key not in self._expected:
            if len(self._expected) > KEPT:
                self._expected.clear()
            self._expected[key] = _due(fields, depth_of=partial(probe.depth_of, in_place=in_place), depth=depth)
        return self._expected[key]

    def _due(self, subject: Subject) -> tuple[Probe, ...]:
        """Of a shared instance as a whole, those read that know it as a whole."""
        sharing = sharing_of(subject)
        whole = sharing is not None and sharing.own is None
        return tuple(p for p in self._probes if not whole or isinstance(p, SharedProbe))

    async def read(self, subject: Subject, *, like: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Mapping[str, str]]:
        """Return all that the probes read of a fresh instance, by probe. One that is starting is given the moment that a check
        gives it to become as the other was, `like`. Raises BaselineUnstable naming those that cannot read."""
        expected = {name: strip(name, fields, self._volatile) for name, fields in (like or {}).items()}
        reads = await self._read(subject, Depth.DEEP, expected.get, fresh=True)
        broken = tuple(f"{r.probe.name}: {reason}" for r in reads for reason in r.findings.problems)
        if broken:
            raise BaselineUnstable(
                f"{len(broken)} probes could not read the fresh instance {subject.namespace}",
                fields=broken,
                fix="mend the probe or the environment; a probe that cannot read proves nothing",
            )
        return {r.probe.name: r.findings.fields for r in reads}

    async def _read(
        self, subject: Subject, depth: Depth, expected: Callable[[str], Mapping[str, str] | None], *, fresh: bool = False
    ) -> list[_Read]:
        """Run every probe: those that must be alone first, one after another, then the others side by side."""
        backends: set[int] = set()
        results: dict[str, Findings] = {}
        places = asyncio.Semaphore(AT_ONCE)

        async def one(probe: Probe) -> None:
            async with places:
                context = ProbeContext(
                    subject=subject,
                    depth=depth,
                    baseline=expected(probe.name),
                    volatile=self._volatile,
                    fresh=fresh,
                    backends=backends,
                    limit_s=self._policy.probe_limit_s,
                )
                results[probe.name] = await _attempt(probe, context)

        due = [p for p in self._due(subject) if depth.covers(p.depth)]
        for probe in due:
            if probe.alone:
                await one(probe)
        async with asyncio.TaskGroup() as group:
            for probe in due:
                if not probe.alone:
                    group.create_task(one(probe))
        return [_Read(probe=p, findings=results[p.name]) for p in due]


async def _attempt(probe: Probe, context: ProbeContext) -> Findings:
    """Read within the limit, once more after a problem. Never raises for the probe's fault."""
    findings = Findings(fields={})
    for again in range(TRIES):
        try:
            async with asyncio.timeout(context.limit_s):
                findings = await probe.read(context)
            if not findings.fields and not findings.problems:
                findings = Findings(fields={}, problems=("it returned no fields at all",))
        except TimeoutError:
            findings = Findings(fields={}, problems=(f"no answer within {context.limit_s:g} s (check.probe_limit_s)",))
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a probe raises makes the verdict inconclusive
            findings = Findings(fields={}, problems=(_reason(error),))
        if not findings.problems:
            break
        log.warning(
            "probe gave no full answer",
            extra={
                "probe": probe.name,
                "namespace": context.subject.namespace,
                "reasons": findings.problems,
                "last_try": again == TRIES - 1,
            },
        )
    return findings


def _due(fields: Mapping[str, str], *, depth_of: Any, depth: Depth) -> dict[str, str]:
    """Keep the fields that a check of this depth reads."""
    return {n: t for n, t in fields.items() if (at := depth_of(n)) is not None and depth.covers(at)}


def _whose(probe: Probe, subject: Subject) -> Callable[[str], bool]:
    """Return which fields belong to a shared instance."""
    sharing = sharing_of(subject)
    if sharing is None or not isinstance(probe, SharedProbe):
        return lambda _: False
    return (lambda _: True) if sharing.own is None else probe.of_instance


def _identity(subject: Subject) -> tuple[list[Mismatch], list[Problem]]:
    """Judge the physical proof, which a replaced state must have."""
    if subject.in_place:
        return [], []
    proof = subject.proof
    if proof is None:
        return [], [Problem(probe=IDENTITY, reason="no physical proof that the clone equals its sealed snapshot was made")]
    if proof.holds:
        return [], []
    detail = f"{proof.method}: {proof.detail or 'differs'}"
    return [Mismatch(probe=IDENTITY, field=IDENTITY, expected=f"{proof.method}: holds", actual=detail, depth=Depth.QUICK)], []


def _in_force(subject: Subject, depth: Depth) -> Mapping[str, Any]:
    proof = subject.proof
    scope = "in place: servers and files of the agent's were not replaced" if subject.in_place else "replaced"
    if sharing_of(subject) is not None:
        scope = str(subject.in_force.get("reset_scope", "the whole of a shared instance"))
    return {
        **subject.in_force,
        "depth": depth.value,
        "reset_scope": scope,
        "proof": None if proof is None or subject.in_place else proof.method,
    }


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
