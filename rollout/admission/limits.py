"""Everything that trajectories share, each with an owner, a limit and a bounded line; and who holds what, since when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rollout.admission.line import Line
from rollout.deadline import deadline
from rollout.errors import Saturated
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock

MODEL, SESSION, JUDGE, STORAGE = "model", "session", "judge", "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Something that bounds the run from outside. `owner` is who answers for it; `waiting` bounds its line; `wait_s` each wait.

    `per_s` bounds how many may begin in a second (0: any number), for what a rate limit guards. With `safe` in line (0: never), it
    has reached its safe limit: tasks of lower worth are not admitted before anything times out.
    """

    name: str
    owner: str
    limit: int
    waiting: int
    wait_s: float = 600.0
    safe: int = 0
    per_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.owner.strip() or self.limit < 1 or self.waiting < 0 or self.wait_s <= 0 or self.per_s < 0:
            raise EnvironmentInvalid(
                f"dependency {self.name!r}: owner {self.owner!r}, limit {self.limit}, line {self.waiting}, "
                f"wait {self.wait_s}, rate {self.per_s}",
                fix="name an owner, a limit of at least 1, a line of at least 0, a wait above 0 and no negative rate",
            )


@dataclass(slots=True, kw_only=True)
class Use:
    """What happened at one dependency. Seconds."""

    taken: int = 0
    refused: int = 0
    most_held: int = 0
    most_waiting: int = 0
    queue_s: float = 0.0
    service_s: float = 0.0
    holders: dict[str, float] = field(default_factory=dict)  # by trajectory, since when


@dataclass(slots=True, kw_only=True)
class Place:
    """One taken place. `queue_s` is how long it took to come."""

    queue_s: float


class Limits:
    """The dependencies of one run."""

    def __init__(self, dependencies: Sequence[Dependency], *, clock: Clock) -> None:
        self._clock = clock
        self._dependencies: dict[str, Dependency] = {}
        self._lines: dict[str, Line] = {}
        self.uses: dict[str, Use] = {}
        self._moments: dict[str, float] = {}  # when the next one may begin
        self._waits: dict[str, float] = {}  # trajectories in a tool wait that hold a model slot, since when
        self.slot_held_during_tool_wait_s = 0.0
        for dependency in dependencies:
            if dependency.name in self._lines:
                raise EnvironmentInvalid(f"dependency {dependency.name!r} is registered twice")
            self._dependencies[dependency.name] = dependency
            self._lines[dependency.name] = Line(dependency.name, limit=dependency.limit, waiting=dependency.waiting)
            self.uses[dependency.name] = Use()

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def of(self, name: str) -> Dependency:
        try:
            return self._dependencies[name]
        except KeyError:
            raise EnvironmentInvalid(
                f"nobody registered a dependency {name!r}", fix=f"registered are: {', '.join(self._dependencies)}"
            ) from None

    def strained(self) -> tuple[str, ...]:
        """The dependencies at their safe limit."""
        return tuple(n for n, d in self._dependencies.items() if d.safe and self._lines[n].waiting >= d.safe)

    def line(self, name: str) -> Line:
        self.of(name)
        return self._lines[name]

    @asynccontextmanager
    async def hold(self, name: str, who: str, *, priority: float = 0) -> AsyncIterator[Place]:
        """Hold one place of `name` for `who`. Saturated when the line is full, TimeoutError when no place came in time."""
        dependency, line, use = self.of(name), self._lines[name], self.uses[name]
        began = self._clock.monotonic()
        try:
            use.most_waiting = max(use.most_waiting, line.waiting + (line.held >= line.limit))
            async with deadline(self._clock, dependency.wait_s):
                await self._taken(dependency, line, priority)
        except Saturated:
            use.refused += 1
            use.most_waiting = max(use.most_waiting, line.waiting)
            raise
        taken = self._clock.monotonic()
        use.taken += 1
        use.most_held = max(use.most_held, line.held)
        use.queue_s += taken - began
        use.holders[who] = taken
        if name == MODEL and who in self._waits:
            self._waits[who] = taken
        try:
            yield Place(queue_s=taken - began)
        finally:
            now = self._clock.monotonic()
            if name == MODEL and who in self._waits:
                self.slot_held_during_tool_wait_s += now - self._waits[who]
            use.service_s += now - use.holders.pop(who)
            line.release()

    async def _taken(self, dependency: Dependency, line: Line, priority: float) -> None:
        """Take a place, and where a rate guards it, wait for its moment."""
        await line.acquire(priority)
        if not dependency.per_s:
            return
        now = self._clock.monotonic()
        moment = max(now, self._moments.get(dependency.name, now))
        self._moments[dependency.name] = moment + 1 / dependency.per_s
        try:
            await self._clock.sleep(moment - now)
        except asyncio.CancelledError:
            line.release()
            raise

    @asynccontextmanager
    async def tool_wait(self, who: str) -> AsyncIterator[None]:
        """Mark that `who` waits for a tool, and measure how long it held a model slot the while: it should be 0."""
        self._waits[who] = self._clock.monotonic()
        try:
            yield
        finally:
            since = self._waits.pop(who)
            if who in self.uses[MODEL].holders:
                self.slot_held_during_tool_wait_s += self._clock.monotonic() - since

    def lines(self) -> dict[str, dict[str, int]]:
        """How many wait and hold now, and how many ever got a place, by dependency."""
        return {
            name: {"waiting": self._lines[name].waiting, "held": self._lines[name].held, "taken": use.taken}
            for name, use in self.uses.items()
        }

    def held(self) -> Mapping[str, Mapping[str, float]]:
        """Who holds what, and for how many seconds."""
        now = self._clock.monotonic()
        return {
            name: {who: round(now - since, 3) for who, since in use.holders.items()}
            for name, use in self.uses.items()
            if use.holders
        }

    def shown(self) -> Mapping[str, Mapping[str, Any]]:
        """What each dependency saw, for reports."""
        return {
            name: {
                "owner": self._dependencies[name].owner,
                "limit": self._dependencies[name].limit,
                "line": self._dependencies[name].waiting,
                "taken": use.taken,
                "refused": use.refused,
                "most_held": use.most_held,
                "most_waiting": use.most_waiting,
                "queue_s": round(use.queue_s, 3),
                "service_s": round(use.service_s, 3),
            }
            for name, use in self.uses.items()
        }
