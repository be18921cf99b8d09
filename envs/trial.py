"""An instance that nobody leases (or a part of one that could be shared), to be acted on, looked at and reset, over and over."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from sandbox.errors import RuntimeUnavailable
from sandbox.model import Depth, InstanceId, NamespaceId, ResetMethod, Verdict, VerdictStatus
from sandbox.pool.limits import PoolLimits
from sandbox.pool.members import StartState
from sandbox.ports import Environment, Instance, Runtime, SharedInstance, SharingRuntime, Subject


def told(error: BaseException, *, most: int = 400) -> str:
    """What went wrong with an instance, as one line of so many characters at most."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:most]


class Trial:
    """One start state, one instance of it at a time."""

    def __init__(self, environment: Environment, runtime: Runtime, start: StartState) -> None:
        self._environment = environment
        self._runtime = runtime
        self._start = start
        self._limits = PoolLimits()
        self._generation = 0
        self._live: Instance | None = None
        self._shared: SharedInstance | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, environment: Environment, runtime: Runtime, start: StartState) -> AsyncIterator[Trial]:
        trial = cls(environment, runtime, start)
        try:
            await trial.renew()
            yield trial
        finally:
            await trial._close()

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
            self._live = await self._begin(namespace)

    async def _begin(self, namespace: NamespaceId) -> Instance:
        runtime, snapshot = self._runtime, self._start.snapshot
        if not self._environment.spec.isolation.shares:
            return await runtime.start(self._environment, snapshot, namespace, self._generation)
        if not isinstance(runtime, SharingRuntime):
            raise RuntimeUnavailable(f"runtime {runtime.name} cannot share an instance", fix='set `isolation = "instance"`')
        self._shared = await runtime.start_shared(self._environment, snapshot, InstanceId(f"{namespace}-shared"), 1)
        return await self._shared.open(namespace, self._generation)

    async def look(self, *, quiesce: bool = True) -> Verdict:
        """Kill what the agent left running, then read everything: a live process could change what is being read. Without `quiesce`
        it is the check of a pool after a reset, for which whatever runs still is a difference."""
        verifier, whole = self._environment.verifier, self._start.instance
        async with asyncio.timeout(self._limits.check_s):
            if quiesce:
                await self.instance.quiesce()
            verdict = await verifier.check(self.instance.subject(), self._start.baseline, Depth.DEEP)
            if self._shared is None or whole is None:
                return verdict
            return _both(verdict, await verifier.check(self._shared.subject(), whole, Depth.DEEP))

    @property
    def method(self) -> ResetMethod:
        """By which it resets."""
        return self._environment.spec.reset.method

    async def read(self, depth: Depth) -> Verdict:
        """Read as after a reset in place, where no proof vouches for anything; with whatever runs still running."""
        async with asyncio.timeout(self._limits.check_s):
            subject = cast("Subject", _InPlace(self.instance.subject()))
            return await self._environment.verifier.check(subject, self._start.baseline, depth)

    async def reset(self, method: ResetMethod | None = None) -> None:
        """By the environment's own method, or by another one."""
        policy = self._environment.spec.reset
        method = method or policy.method
        self._generation += 1
        async with asyncio.timeout(self._limits.reset_s):
            await self.instance.revoke()
            if method is ResetMethod.HOOK:
                async with asyncio.timeout(policy.hook_limit_s):
                    await self.instance.reset_in_place(self._generation, hook=policy.hook)
            elif method is ResetMethod.CLEAN:
                await self.instance.reset_in_place(self._generation, hook=None)
            elif method is ResetMethod.RESTORE:
                await self.instance.restore(self._start.snapshot, self._generation)
            else:
                await self.renew()

    async def _close(self) -> None:
        live, self._live = self._live, None
        shared, self._shared = self._shared, None
        try:
            if live is not None:
                async with asyncio.timeout(self._limits.close_s):
                    await live.close()
        finally:
            if shared is not None:
                async with asyncio.timeout(self._limits.close_s):
                    await shared.close()


class _InPlace:
    """A subject that was reset in place, as far as a check can tell."""

    in_place = True
    proof = None

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def _both(part: Verdict, whole: Verdict) -> Verdict:
    """One verdict of a part and of the instance that it shares: the worse of the two, with all that differs."""
    worse = max(part.status, whole.status, key=[VerdictStatus.CLEAN, VerdictStatus.MISMATCH, VerdictStatus.INCONCLUSIVE].index)
    return dataclasses.replace(
        part,
        status=worse,
        mismatches=tuple(dict.fromkeys((*part.mismatches, *whole.mismatches))),
        problems=(*part.problems, *whole.problems),
        fields=part.fields + whole.fields,
    )
