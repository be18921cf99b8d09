"""Which version of each environment leases are had of now, and the former ones that still have holders.

A new version is prepared while the old one serves. Then requests, those that wait included, go to the new one; a lease keeps
the version that it took, is checked against that version's baseline, and its namespace retires after its check. The places
of the two together are never more than the environment's size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from sandbox.errors import EnvironmentInvalid
from sandbox.model import Depth
from sandbox.pool.members import Ports, Prepared, Superseded
from sandbox.pool.preparation import Preparer, changed_files
from sandbox.ports import Environment

log = logging.getLogger(__name__)


class Versions:
    """The environments of a pool, by name."""

    def __init__(self, ports: Ports, preparer: Preparer, *, required: dict[str, Depth]) -> None:
        self._ports = ports
        self._preparer = preparer
        self._required = required  # by digest: what a former version's trajectories need, they go on needing
        self._now: dict[str, Prepared] = {}
        self._rolling = asyncio.Lock()

    async def prepare(self, environment: Environment, *, size: int) -> Prepared:
        """Make it the version that serves under its name."""
        prepared = await self._prepared(environment, size=size)
        self._serve(prepared)
        return prepared

    async def _prepared(self, environment: Environment, *, size: int) -> Prepared:
        spec = environment.spec
        prepared = await self._preparer.prepare(environment, size=size)
        prepared.remember(await self._ports.ledger.judged(spec.digest, limit=spec.check.quarantine_window))
        return prepared

    def _serve(self, prepared: Prepared) -> None:
        spec = prepared.spec
        self._now[spec.name] = prepared
        self._required |= {spec.name: spec.check.required_depth, spec.digest: spec.check.required_depth}

    def get(self, name: str) -> Prepared:
        """Return the version that serves; raise EnvironmentInvalid naming the environments there are."""
        try:
            return self._now[name]
        except KeyError:
            known = ", ".join(sorted(self._now)) or "none"
            raise EnvironmentInvalid(f"this pool keeps no environment {name!r}", fix=f"it keeps: {known}") from None

    def now(self) -> Collection[Prepared]:
        return self._now.values()

    def all(self) -> Collection[Prepared]:
        """Return all that have anything to look after; former versions that hold nothing more are let go."""
        for prepared in self._now.values():
            prepared.former = [f for f in prepared.former if f.members or f.creating or f.hosts]
        return [version for prepared in self._now.values() for version in (prepared, *prepared.former)]

    async def roll(self, environment: Environment) -> bool:
        """Let this version serve from now on; False when it does already. An error leaves the old one in service."""
        name, digest = environment.spec.name, environment.spec.digest
        async with self._rolling:
            old = self.get(name)
            if old.spec.digest == digest:
                return False
            await self._refuse_mixing(old)
            new = await self._prepared(environment, size=old.size)
            await self._refuse_mixing(old)  # building takes its time, and leases are given meanwhile
            if new.broken is not None:  # its golden is there, and is not what was sealed
                raise new.broken
            self._serve(new)
            new.former = [old, *old.former]
            old.former = []
            old.successor = new
            for namespace in old.members.values():
                namespace.leaving = True
            old.waiting.fail_all(Superseded(f"{name} {old.spec.version} is not given out any more"))
        log.info(
            "version rolled",
            extra={"event": "pool.rolled", "environment": name, "from": old.spec.digest, "to": digest, "leased": old.leased},
        )
        return True

    async def _refuse_mixing(self, serving: Prepared) -> None:
        """A lease must not see two versions: not even because the new one was written over files that it is run with."""
        for version in (serving, *serving.former):
            if version.leased and (changed := await changed_files(version.environment)):
                raise EnvironmentInvalid(
                    f"{version.leased} leases of {version.name} {version.spec.version} are run with files that were edited since: "
                    f"{', '.join(changed)}; they would see both versions",
                    fix="put them back and roll from another directory (`autoclave pool roll ./DIR`), or wait for their end",
                )

    def status(self, prepared: Prepared) -> dict[str, Any]:
        former = [
            {"version": f.spec.version, "digest": f.spec.digest, "live": len(f.members), "leased": f.leased}
            for f in prepared.former
        ]
        return {"version": prepared.spec.version, "digest": prepared.spec.digest, "former": former}
