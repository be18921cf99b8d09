"""The addresses of a container in one generation: the session's, and those of probes and scorers."""

from __future__ import annotations

from sandbox.errors import InstanceLost
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.reach import Reach, Relay, Spent
from sandbox.runtimes.group.together import all_of


class Addresses:
    """Open or closed; opened again for the next generation."""

    def __init__(self, definition: Definition, spent: Spent) -> None:
        self._definition, self._spent = definition, spent
        self._session: Relay | None = None
        self._trusted: Relay | None = None

    async def open(self, reach: Reach) -> None:
        self._session, self._trusted = Relay(reach, self._spent), Relay(reach, self._spent)
        for relay in (self._session, self._trusted):
            await relay.open(self._definition.places)

    async def close(self) -> None:
        """Take the addresses away and end every connection, also for a caller that is cancelled. Idempotent."""
        relays, self._session, self._trusted = (self._session, self._trusted), None, None
        await all_of(*(relay.close() for relay in relays if relay is not None))

    async def cut(self) -> None:
        """End the session's connections; new ones can be made."""
        if self._session is not None:
            await self._session.cut()

    def session(self, resource: str) -> str:
        """Return HOST:PORT of the first port or socket, or of the one that `resource:PORT` or `resource:/PATH` names."""
        return self._address(self._session, resource)

    def trusted(self, resource: str) -> str:
        return self._address(self._trusted, resource)

    def _address(self, relay: Relay | None, resource: str) -> str:
        name, _, place = resource.partition(":")
        places = self._definition.places
        if name != self._definition.resource or not places or relay is None:
            raise InstanceLost(f"environment {self._definition.spec.name} has no endpoint {resource!r}", fix="see its `ports`")
        return relay.address(int(place) if place.isdigit() else place or places[0])
