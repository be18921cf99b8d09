"""Reading fresh instances of an environment as its probes read them, without a baseline to hold them against."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from envs.discovery.known import Known, known, until_answering
from envs.discovery.unstable import Fields, Kind, Reading, unstable
from probes import create_verifier
from sandbox.errors import EnvironmentInvalid
from sandbox.model import NamespaceId, Snapshot
from sandbox.pool.limits import PoolLimits
from sandbox.ports import Environment, Instance, Runtime, Subject

Say = Callable[[str], None]
LATER_S = 20.0


@runtime_checkable
class Reads(Protocol):
    """A verifier that can be asked what its probes read."""

    async def read(
        self, subject: Subject, *, like: Mapping[str, Mapping[str, str]] | None = None
    ) -> Mapping[str, Mapping[str, str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was read. `builds` are fields that differ between two builds from the seed: no trouble, since only one is sealed."""

    known: Known  # the servers that run in it; their probes read, too
    readings: tuple[Reading, ...]
    builds: tuple[Reading, ...]

    @property
    def instances(self) -> int:
        return 1 + sum(r.kind is Kind.FRESH for r in self.readings[1:])

    @property
    def between_builds(self) -> int:
        """How many fields differ between the two builds."""
        return len(unstable(self.builds))

    @property
    def fields(self) -> int:
        return sum(len(fields) for fields in self.readings[0].fields.values())


async def observe(
    environment: Environment, runtime: Runtime, *, instances: int, later_s: float = LATER_S, say: Say = lambda _: None
) -> Observed:
    """Build twice, start so many instances of the first build one after another, and read each; the first one again after
    `later_s` seconds and after a restore. Everything is removed again. Raises EnvironmentInvalid where that cannot be done."""
    spec, verifier = environment.spec, environment.verifier
    if not isinstance(verifier, Reads):
        raise EnvironmentInvalid(
            f"environment {spec.name} brings a verifier of its own, which cannot be asked what it reads",
            fix="discovery is for environments that are judged by probes",
        )
    if spec.isolation.shares:
        raise EnvironmentInvalid(
            f"environment {spec.name} shares instances; discovery looks at instances of their own",
            fix='set `isolation = "instance"` for it, and take what it proposes over',
        )
    limits = PoolLimits()
    reads: Reads = verifier
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runtime.sweep)  # last: what snapshots stand on beside their directories goes with these

        async def built() -> Snapshot:
            async with asyncio.timeout(limits.build_s):
                snapshot = await runtime.build(environment)
            stack.push_async_callback(_remove, runtime, snapshot)
            return snapshot

        async def read(instance: Instance) -> Fields:
            async with asyncio.timeout(limits.check_s):
                await until_answering(found, instance)
                return await reads.read(instance.subject(), like=readings[0].fields if readings else None)

        readings: list[Reading] = []
        say("building twice")
        golden, second = await built(), await built()
        found = Known()
        for number in range(1, instances + 1):
            say(f"fresh instance {number} of {instances}")
            async with _started(environment, runtime, golden, limits) as instance:
                if number == 1:
                    found = await known(spec, instance)
                    if found.probes:
                        reads = create_verifier(dataclasses.replace(spec, probes=(*spec.probes, *found.probes)))
                readings.append(Reading(kind=Kind.FRESH, fields=await read(instance)))
                if number > 1:
                    continue
                await asyncio.sleep(later_s)
                readings.append(Reading(kind=Kind.LATER, fields=await read(instance)))
                async with asyncio.timeout(limits.reset_s):
                    await instance.revoke()
                    await instance.restore(golden, 2)
                readings.append(Reading(kind=Kind.RESTORED, fields=await read(instance)))
        async with _started(environment, runtime, second, limits) as instance:
            builds = (readings[0], Reading(kind=Kind.FRESH, fields=await read(instance)))
    return Observed(known=found, readings=tuple(readings), builds=builds)


@asynccontextmanager
async def _started(environment: Environment, runtime: Runtime, snapshot: Snapshot, limits: PoolLimits) -> AsyncIterator[Instance]:
    async with asyncio.timeout(limits.start_s):
        instance = await runtime.start(environment, snapshot, NamespaceId(f"discover-{secrets.token_hex(4)}"), 1)
    try:
        yield instance
    finally:
        async with asyncio.timeout(limits.close_s):
            await instance.close()


async def _remove(runtime: Runtime, snapshot: Snapshot) -> None:
    for sealed in snapshot.dirs:
        await runtime.storage.remove(sealed)
