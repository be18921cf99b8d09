"""What is done to a namespace that somebody claimed: reset, made to fit, read again, taken out of service.

Each step ends with the namespace ready in its claimer's hands, on its way through a stronger reset, or out of service; what
the ledger could not follow is in nobody's reach.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from sandbox.errors import ResetFailed
from sandbox.lifecycle import State
from sandbox.model import Depth, TrajectoryId
from sandbox.pool.crew import Crew
from sandbox.pool.members import Namespace, StartState
from sandbox.pool.reset import Resetter
from sandbox.ports import Clock

log = logging.getLogger(__name__)


class Turnover:
    """Runs the resetter's steps on claimed namespaces, and says what becomes of one when a step fails."""

    def __init__(self, *, clock: Clock, resetter: Resetter, crew: Crew, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._resetter = resetter
        self._crew = crew
        self.wake = wake

    async def recycle(self, namespace: Namespace, *, since: float | None = None) -> bool:
        """Bring a namespace back to ready, or out of service; then let the next one have it."""
        prepared = namespace.environment
        # A state that is replaced anyway is replaced by the one that somebody waits for.
        promised = prepared.waiting.promise(namespace) if prepared.spec.reset.method.replaces else None
        try:
            ready = await self._resetter.recycle(namespace, start=promised.wants if promised is not None else None)
        except BaseException:
            await self.out_of_service(namespace)
            raise
        finally:
            if promised is not None and namespace.state is not State.READY:
                promised.promised = None
        if since is not None:
            prepared.cycle_s += 0.2 * (max(0.0, self._clock.now().timestamp() - since) - prepared.cycle_s)
        if ready:
            prepared.put(namespace)
        else:
            self.wake()
        return ready

    async def reopen(self, namespace: Namespace) -> None:
        """Its shared instance was rebuilt, or has left service: make its part anew, or retire it."""
        if namespace.state is not State.READY:
            await self.recycle(namespace)
        elif await self.retarget(namespace, namespace.start):
            namespace.environment.put(namespace)

    async def recheck(self, namespace: Namespace, depth: Depth, *, purpose: str) -> bool:
        """Read a claimed namespace again; False when it was not clean and is on its way through a stronger reset."""
        try:
            checked = await self._resetter.recheck(namespace, depth, purpose=purpose)
        except BaseException:
            await self.out_of_service(namespace)
            raise
        if not checked.clean:
            self._crew.spawn(self.recycle(namespace), name=f"recycle {namespace.id}")
        return checked.clean

    async def out_of_service(self, namespace: Namespace) -> None:
        """The ledger refused a step or could not write it: nobody gets this one, and the next start settles it."""
        if namespace.environment.members.pop(namespace.id, None) is not None:
            log.error("out of service", extra={"event": "pool.out_of_service", "namespace": namespace.id})
        if namespace.host is not None:
            namespace.host.leave(namespace)  # a barrier waits for it no more, and its place is free
        await self._resetter.close(namespace)
        self.wake()

    async def retarget(self, namespace: Namespace, start: StartState) -> bool:
        try:
            ready = await self._resetter.retarget(namespace, start)
        except BaseException:
            await self.out_of_service(namespace)
            raise
        if not ready:
            self.wake()
        return ready

    async def become_fork(self, namespace: Namespace, start: StartState, parent: TrajectoryId) -> bool:
        try:
            if (await self._resetter.become_fork(namespace, start, parent)).clean:
                return True
        except ResetFailed:
            log.warning("fork failed", extra={"event": "pool.fork_failed", "namespace": namespace.id, "parent": parent})
        except BaseException:
            await self.out_of_service(namespace)
            raise
        self._crew.spawn(self.recycle(namespace), name=f"recycle {namespace.id}")
        return False

    async def return_fork(self, namespace: Namespace) -> None:
        """A fork that nobody took goes back to golden."""
        if await self.retarget(namespace, namespace.environment.golden):
            namespace.environment.put(namespace)

    def is_fresh(self, namespace: Namespace) -> bool:
        """True while the last check is young enough to hand out (max_ready_age)."""
        age = namespace.environment.spec.check.max_ready_age_s
        return age <= 0 or (namespace.checked is not None and self._clock.now() - namespace.checked <= timedelta(seconds=age))
