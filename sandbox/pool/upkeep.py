"""The background duties, each a small class that does one round; what they share is when and how often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from sandbox.errors import PoolBroken, SealBroken
from sandbox.lifecycle import State
from sandbox.model import Depth
from sandbox.pool.creation import Creator
from sandbox.pool.crew import Crew
from sandbox.pool.leasing import Leasing
from sandbox.pool.members import Namespace, Ports, Prepared
from sandbox.pool.preparation import Preparer
from sandbox.pool.reset import Resetter
from sandbox.pool.turnover import Turnover

log = logging.getLogger(__name__)
Environments = Callable[[], Collection[Prepared]]


class Duty(Protocol):
    """One background duty. `round` may raise: it is logged and tried again with back-off."""

    @property
    def every_s(self) -> float: ...
    async def round(self) -> None: ...


class Upkeep:
    """Runs duties for as long as the pool is open. A failing one is slowed down, never dropped, and shows in `troubles`."""

    def __init__(self, ports: Ports, crew: Crew) -> None:
        self._ports = ports
        self._crew = crew
        self.troubles: dict[str, str] = {}

    def start(self, duties: Collection[Duty]) -> None:
        for duty in duties:
            self._crew.keep(self._keep(duty), name=f"duty {type(duty).__name__}")

    async def _keep(self, duty: Duty) -> None:
        name, failures = type(duty).__name__, 0
        while True:
            try:
                await duty.round()
            except Exception as error:
                failures += 1
                said = f"{type(error).__name__}: {error}"
                if self.troubles.get(name) != said:  # what goes on failing for one reason is told once
                    log.exception("duty failed", extra={"event": "pool.duty_failed", "duty": name, "failures": failures})
                self.troubles[name] = said
            else:
                failures = 0
                self.troubles.pop(name, None)
            pause = duty.every_s if not failures else min(self._ports.limits.duty_backoff_s, max(duty.every_s, 0.1) * 2.0**failures)
            await self._ports.clock.sleep(pause)


class Spares:
    """Keeps every environment at its size, as far as the breaker lets it."""

    def __init__(
        self, ports: Ports, *, creator: Creator, retirement: Retirement, crew: Crew, leasing: Leasing, environments: Environments
    ) -> None:
        self.every_s = ports.limits.upkeep_s
        self._creator = creator
        self._retirement = retirement
        self._crew = crew
        self._leasing = leasing
        self._environments = environments

    async def round(self) -> None:
        for prepared in self._environments():
            self.fill(prepared)

    def fill(self, prepared: Prepared) -> None:
        """Start what is missing; with an open breaker one attempt, after its pause."""
        while prepared.missing > 0 and prepared.breaker.can_try() and not self._leasing.closed:
            prepared.creating += 1
            self._crew.spawn(self._create(prepared), name=f"create {prepared.name}")
            if prepared.breaker.is_open:
                prepared.breaker.begin()
        self._leasing.refuse_forks(prepared)

    async def _create(self, prepared: Prepared) -> None:
        namespace = await self._creator.create(prepared)
        if namespace is not None:
            prepared.put(namespace)
            if prepared.successor is not None:  # overtaken while it was made: it stands in the place of one that somebody waits for
                await self._retirement.round()
        elif prepared.breaker.is_open and not prepared.members:
            prepared.waiting.fail_all(PoolBroken(f"no namespace of {prepared.name} can be made: {prepared.breaker.reason}"))
        self.fill(prepared)


class Expiry:
    """Ends leases whose deadline has passed, and finishes ends that the ledger could not write."""

    def __init__(self, ports: Ports, *, leasing: Leasing, crew: Crew) -> None:
        self.every_s = ports.limits.upkeep_s
        self._leasing = leasing
        self._crew = crew

    async def round(self) -> None:
        for session in [s for s in self._leasing.sessions.values() if s.outcome is None and s.has_expired]:
            log.warning(
                "lease expired",
                extra={"event": "pool.expired", "namespace": session.lease.namespace, "trajectory": session.trajectory_id},
            )
            self._crew.spawn(self._leasing.end(session, outcome="expired"), name=f"expire {session.lease.namespace}")
        if refused := await self._leasing.finish_all():
            raise refused[0]


class Rechecks:
    """Reads ready namespaces again: deep where that is due for what waits on them, quick where their check grows old."""

    def __init__(self, ports: Ports, *, turnover: Turnover, crew: Crew, environments: Environments) -> None:
        self.every_s = ports.limits.upkeep_s
        self._ports = ports
        self._turnover = turnover
        self._crew = crew
        self._environments = environments

    async def round(self) -> None:
        for prepared in self._environments():
            for namespace in list(prepared.ready()):
                if (depth := self.due(namespace)) is not None:
                    self.begin(namespace, depth, purpose="recheck")

    def due(self, namespace: Namespace) -> Depth | None:
        policy = namespace.environment.spec.check
        since = namespace.deep_since
        if namespace.deep_wanted or (since is not None and self._ports.clock.monotonic() - since >= policy.deep_after_s):
            return Depth.DEEP
        return None if self._turnover.is_fresh(namespace) else Depth.QUICK

    def begin(self, namespace: Namespace, depth: Depth, *, purpose: str) -> asyncio.Task[bool | None] | None:
        """Claim a ready namespace and read it again in the background; None when it is not to be had."""
        if not namespace.environment.claim(namespace):
            return None
        return self._crew.spawn(self._recheck(namespace, depth, purpose), name=f"recheck {namespace.id}")

    async def _recheck(self, namespace: Namespace, depth: Depth, purpose: str) -> bool:
        clean = await self._turnover.recheck(namespace, depth, purpose=purpose)
        if clean:
            namespace.environment.put(namespace)
        return clean


class Retirement:
    """Takes ready namespaces out of service: older than max_age, of a retired environment, or of a former version."""

    def __init__(self, ports: Ports, *, resetter: Resetter, turnover: Turnover, crew: Crew, environments: Environments) -> None:
        self.every_s = ports.limits.upkeep_s
        self._ports = ports
        self._crew = crew
        self._resetter = resetter
        self._turnover = turnover
        self._environments = environments

    async def round(self) -> None:
        for prepared in self._environments():
            oldest = prepared.spec.reset.max_age_s
            for namespace in list(prepared.ready()):
                too_old = 0 < oldest <= self._ports.clock.monotonic() - namespace.born
                ends = prepared.broken is not None or prepared.successor is not None
                if (too_old or ends) and prepared.claim(namespace):
                    self._crew.spawn(self._leave(namespace), name=f"retire {namespace.id}")

    async def _leave(self, namespace: Namespace) -> None:
        prepared = namespace.environment
        try:
            if prepared.broken is None:
                await self._resetter.close_chain(namespace)
            await self._resetter.retire(namespace, note=_why_it_leaves(prepared))
        except BaseException:
            if namespace.state is State.READY and namespace.id in prepared.members:
                prepared.put(namespace)  # nothing has happened to it: a later round tries again
            else:
                await self._turnover.out_of_service(namespace)
            raise
        self._turnover.wake()


def _why_it_leaves(prepared: Prepared) -> str:
    if prepared.broken is not None:
        return str(prepared.broken)
    return "max_age reached" if prepared.successor is None else f"version {prepared.successor.spec.version} has taken its place"


class Seals:
    """Digests goldens again now and then; a broken seal retires the environment."""

    def __init__(self, ports: Ports, *, preparer: Preparer, environments: Environments) -> None:
        self.every_s = ports.limits.seal_every_s
        self._preparer = preparer
        self._environments = environments
        self._first = True

    async def round(self) -> None:
        if self._first:  # they were verified when the pool opened
            self._first = False
            return
        for prepared in self._environments():
            if prepared.broken is None:
                await self.verify(prepared)

    async def verify(self, prepared: Prepared) -> bool:
        """Verify golden and the task start states in use; False when the environment is retired now."""
        try:
            starts = (prepared.golden, *prepared.starts.values())
            await self._preparer.verify_seal(prepared.environment, *(start.snapshot for start in starts))
        except SealBroken as error:
            log.error("seal broken", extra={"event": "pool.seal_broken", "environment": prepared.name, "reason": str(error)})
            prepared.breaks(error)
            return False
        return True
