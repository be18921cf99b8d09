"""The arms of the contamination experiment: which resets miss something, and whether a check's verdict counts.

Nothing labels or changes a reward. A share of the resets is the environment's own hook, which misses what the trajectory before
wrote; the checks after them are real. Where quarantine is off, a mismatch is written down here and the pool is told `clean`.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

from envs import LoadedEnvironment
from rollout.contaminate import LeakyRuntime
from rollout.running.draft import Draft
from sandbox.clock import SystemClock
from sandbox.model import Baseline, Depth, NamespaceId, ResetMethod, Verdict, VerdictStatus
from sandbox.pool import Pool
from sandbox.ports import Environment, Runtime, Subject, Verifier
from sandbox.settings import Settings
from sandbox.wiring import machinery

OWN_WORK = "its own work"


class Arm(StrEnum):
    """What is done about contamination."""

    NONE = "none"  # every reset is right
    OFF = "off"  # some miss something, and nothing is done about it
    ON = "on"  # some miss something, and the checks' verdicts count


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of an experiment. `rate` is the share of resets that miss what the trajectory before wrote."""

    arm: Arm
    rate: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1 or (self.arm is Arm.NONE) != (self.rate == 0):
            raise ValueError(f"arm {self.arm} at rate {self.rate}: 0 for none, above 0 up to 1 for the others")

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.rate:g}-{self.seed}"


@dataclass(slots=True, kw_only=True)
class Watch:
    """What really was, whatever the pool was told: namespaces whose latest check found a mismatch, and who started there."""

    dirty: set[NamespaceId] = field(default_factory=set)
    mismatches: int = 0
    dirty_starts: set[str] = field(default_factory=set)


class WatchedVerifier:
    """Passes the real verdicts on and notes them; with `blind`, a mismatch is passed on as clean, and labelled so."""

    def __init__(self, inner: Verifier, watch: Watch, *, blind: bool) -> None:
        self._inner = inner
        self._watch = watch
        self._blind = blind

    @property
    def digest(self) -> str:
        return self._inner.digest

    async def record(self, subjects: Sequence[Subject], rebuilt: Subject | None, *, key: str) -> Baseline:
        return await self._inner.record(subjects, rebuilt, key=key)

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        verdict = await self._inner.check(subject, baseline, depth)
        if verdict.status is VerdictStatus.CLEAN:
            self._watch.dirty.discard(subject.namespace)
        if verdict.status is not VerdictStatus.MISMATCH:
            return verdict
        self._watch.mismatches += 1
        self._watch.dirty.add(subject.namespace)
        if not self._blind:
            return verdict
        label = {**verdict.in_force, "quarantine": "off (contamination experiment)"}
        return replace(verdict, status=VerdictStatus.CLEAN, mismatches=(), in_force=label)


class _Watched:
    """An environment under another verifier."""

    def __init__(self, inner: LoadedEnvironment, verifier: WatchedVerifier) -> None:
        self._inner = inner
        self.verifier = verifier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Forgetful:
    """Marks the namespaces of a `rate` of the trajectories, by seed and trajectory: the next reset there is the hook alone."""

    def __init__(self, cell: Cell, watch: Watch) -> None:
        self._cell = cell
        self._watch = watch
        self.marked: set[NamespaceId] = set()

    async def __call__(self, session: Any, draft: Draft) -> None:
        if session.lease.namespace in self._watch.dirty:
            self._watch.dirty_starts.add(draft.id)
        key = f"{self._cell.seed}/{draft.ticket.group.rpartition('-')[2]}/{draft.ticket.member}/{draft.ticket.attempt}"
        number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
        if number / 2**64 < self._cell.rate:
            draft.planted = OWN_WORK
            self.marked.add(session.lease.namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An open pool with the world to learn in, under an arm, and the world to be judged in, whose resets are all right."""

    pool: Pool
    training: LoadedEnvironment
    held_out: LoadedEnvironment
    forgetful: Forgetful
    watch: Watch


@asynccontextmanager
async def open_stage(
    training: LoadedEnvironment, held_out: LoadedEnvironment, cell: Cell, *, size: int, settings: Settings
) -> AsyncIterator[Stage]:
    """Open one pool of both: `size` namespaces of each. EnvironmentInvalid where the training world has no hook."""
    hooked = training.with_reset(ResetMethod.HOOK)
    watch = Watch()
    forgetful = Forgetful(cell, watch)
    watched = _Watched(hooked, WatchedVerifier(hooked.verifier, watch, blind=cell.arm is Arm.OFF))
    async with machinery(settings) as (runtime, ledger):
        leaky = cast("Runtime", LeakyRuntime(runtime, forgetful.marked))
        environments = [cast("Environment", watched), cast("Environment", held_out)]
        async with Pool(environments, ledger=ledger, runtime=leaky, clock=SystemClock(), size=size) as pool:
            yield Stage(pool=pool, training=hooked, held_out=held_out, forgetful=forgetful, watch=watch)
