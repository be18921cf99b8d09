"""`--contaminate`: a share of the trajectories leaves something behind, and the reset after each of them is one that misses it.

Nothing is pretended: the leak is made in the session as an agent makes it, the reset after it is the environment's own hook (what
most authors write by hand), the pool's check finds what it finds. All other resets put the sealed snapshot back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from envs import LoadedEnvironment
from envs.demo.agents import LEAKS, Leak
from rollout.running.draft import Draft
from sandbox.actions import open_actions
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError
from sandbox.model import NamespaceId, ResetMethod, Snapshot
from sandbox.pool import Pool
from sandbox.ports import Environment, Instance, Runtime
from sandbox.settings import Settings
from sandbox.wiring import machinery

log = logging.getLogger(__name__)
OTHER = (
    Leak(name="a file in its directory", shell="echo left > .left-behind"),
    Leak(name="a file in /tmp", shell="echo x > /tmp/x"),
)


class Contaminator:
    """Leaves a leak of the environment's kind in `share` of the sessions, by seed and trajectory, and marks the namespace."""

    def __init__(self, environment: str, *, share: float, seed: int) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not at {share}")
        self._leaks = LEAKS.get(environment, OTHER)
        self._share = share
        self._seed = seed
        self.marked: set[NamespaceId] = set()  # whose next reset is the hook alone

    async def __call__(self, session: Any, draft: Draft) -> None:
        number = int.from_bytes(hashlib.blake2b(f"{self._seed}/{draft.ticket.id}".encode(), digest_size=8).digest(), "big")
        if number / 2**64 >= self._share:
            return
        leak = self._leaks[number % len(self._leaks)]
        try:
            result = await session.run(["sh", "-euc", leak.shell], limit_s=60)
        except AutoclaveError as error:
            log.warning("a leak was not planted", extra={"event": "rollout.not_planted", "leak": leak.name, "error": str(error)})
            return
        if result.exit_code == 0:  # what the agent broke itself may be in the way; then nothing was planted
            draft.planted = leak.name
            self.marked.add(session.lease.namespace)


class _LeakyInstance:
    """An instance whose hook works, except after a trajectory that was marked: then it is the author's, as written."""

    def __init__(self, inner: Instance, marked: set[NamespaceId]) -> None:
        self._inner = inner
        self._marked = marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        if hook is not None and self._inner.namespace in self._marked:
            self._marked.discard(self._inner.namespace)
            await self._inner.reset_in_place(generation, hook=hook)
        else:
            await self._inner.restore(self._inner.snapshot, generation)


class LeakyRuntime:
    """A runtime that makes such instances; `marked` are the namespaces whose next reset is the hook alone."""

    def __init__(self, inner: Runtime, marked: set[NamespaceId]) -> None:
        self._inner = inner
        self._marked = marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def start(self, environment: Environment, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> Instance:
        inner = await self._inner.start(environment, snapshot, namespace, generation)
        return cast("Instance", _LeakyInstance(inner, self._marked))


@asynccontextmanager
async def open_leaky_pool(
    environment: LoadedEnvironment, contaminator: Contaminator, *, size: int, settings: Settings
) -> AsyncIterator[tuple[Pool, LoadedEnvironment]]:
    """Open a pool of one environment under its hook, which misses what the contaminator leaves and nothing else. Raises
    EnvironmentInvalid for an environment without a hook."""
    hooked = environment.with_reset(ResetMethod.HOOK)
    recorder = open_actions(settings.actions, budget_mb=settings.actions_mb)
    async with machinery(settings) as (runtime, ledger), recorder as actions:
        leaky = cast("Runtime", LeakyRuntime(runtime, contaminator.marked))
        async with Pool([hooked], ledger=ledger, runtime=leaky, clock=SystemClock(), size=size, actions=actions) as pool:
            yield pool, hooked
