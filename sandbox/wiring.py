"""The one place that puts a pool together: settings, storage, runtime, ledger, environments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import cast

from sandbox import client, plugins, pool
from sandbox.actions import open_actions
from sandbox.actions.log import Recorder
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid
from sandbox.ledger import open_ledger
from sandbox.plugins import Group
from sandbox.ports import Environment, Ledger, Runtime, Storage
from sandbox.settings import Settings, load
from sandbox.storage import open_storage

LOCK_WAIT_S = 2.0  # a manager that is just ending gets this long to let go of the home


class Pool(pool.Pool):
    """The pool as users open it: `Pool.open()` keeps one in this process, `Pool.connect()` uses one that runs already."""

    @staticmethod
    def open(
        environments: Sequence[str | Environment],
        *,
        size: int | Mapping[str, int] = 2,
        settings: Settings | None = None,
        limits: pool.PoolLimits | None = None,
    ) -> AbstractAsyncContextManager[pool.Pool]:
        """Open a pool of these environments (names, paths or objects); `size` counts namespaces per environment."""
        return open_pool(environments, size=size, settings=settings, limits=limits)

    @staticmethod
    def connect(settings: Settings | None = None) -> client.RemotePool:
        """Use the pool that `autoclave pool up` keeps in the same home."""
        return client.connect(settings)


@asynccontextmanager
async def open_pool(
    environments: Sequence[str | Environment],
    *,
    size: int | Mapping[str, int] = 2,
    settings: Settings | None = None,
    limits: pool.PoolLimits | None = None,
) -> AsyncIterator[pool.Pool]:
    """Hold the home, the store, the runtime and the ledger; open a pool over them; close all in reverse."""
    chosen = settings or load()
    found = [environment(e, chosen) if isinstance(e, str) else e for e in environments]
    if not found:
        raise EnvironmentInvalid("a pool needs at least one environment", fix="`autoclave env list` shows those there are")
    async with (
        machinery(chosen) as (runtime, ledger),
        open_actions(chosen.actions, budget_mb=chosen.actions_mb) as actions,
        _pool(found, runtime, ledger, actions, size, limits) as opened,
    ):
        yield opened


@asynccontextmanager
async def machinery(settings: Settings) -> AsyncIterator[tuple[Runtime, Ledger]]:
    """Hold a home for this process alone, with its runtime and ledger; what `env check` and `env baseline` need, too.

    The ledger comes first: its lock on the home keeps two managers from sweeping each other's instances.
    """
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(
            open_ledger(settings.ledger, durability=settings.durability, clock=SystemClock(), lock_wait_s=LOCK_WAIT_S)
        )
        store = await open_storage(settings)
        stack.push_async_callback(store.close)
        engine = runtime(settings, store)
        stack.push_async_callback(engine.close)
        yield engine, ledger


def runtime(settings: Settings, store: Storage) -> Runtime:
    """Make the runtime that the settings name, from whichever package offers it."""
    return cast("Runtime", plugins.load(Group.RUNTIMES, settings.runtime)(settings, store))


def environment(name: str, settings: Settings) -> Environment:
    """Find an environment by name or path: registries first (directories that the user registered), then packages."""
    registries = plugins.offered(Group.REGISTRIES)
    for registry in registries:
        return cast("Environment", plugins.load(Group.REGISTRIES, registry)(settings).open(name))
    return cast("Environment", plugins.load(Group.ENVIRONMENTS, name)())


def _pool(
    found: Sequence[Environment],
    engine: Runtime,
    ledger: Ledger,
    actions: Recorder,
    size: int | Mapping[str, int],
    limits: pool.PoolLimits | None,
) -> pool.Pool:
    return pool.Pool(found, ledger=ledger, runtime=engine, clock=SystemClock(), size=size, limits=limits, actions=actions)
