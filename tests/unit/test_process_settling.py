"""How long the probe of processes waits for what is just coming, and for what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from probes.kinds import load_kind
from probes.probe import ProbeContext
from sandbox.model import EnvironmentSpec, ProbeSpec, ProcessInfo, ResourceSpec, Role, VolatileField


@dataclass
class Starting:
    """A subject in which programs begin at their times (seconds after the first look)."""

    kind: str
    begins: dict[str, float]
    in_place: bool = False
    looks: int = 0
    since: float | None = None
    environment: Any = field(init=False)

    def __post_init__(self) -> None:
        self.environment = EnvironmentSpec(name="e", version="1", digest="d", resources=(ResourceSpec(name="app", kind=self.kind),))

    async def processes(self) -> Sequence[ProcessInfo]:
        now = asyncio.get_running_loop().time()
        self.since, self.looks = self.since or now, self.looks + 1
        return [
            ProcessInfo(pid=n, parent=1, role=Role.SERVER, argv=(name,))
            for n, (name, at) in enumerate(self.begins.items())
            if now - self.since >= at
        ]

    async def listeners(self) -> Sequence[Any]:
        return []

    async def mounts(self, role: Role) -> Sequence[str]:
        return []


async def read(subject: Starting, **more: Any) -> Any:
    probe = load_kind("process")(ProbeSpec(name="instance", kind="process"), subject.environment)
    return (await probe.read(ProbeContext(subject=subject, **more))).fields  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "in_place", "seen"), [("container", False, True), ("container", True, False), ("files", False, False)]
)
async def test_a_program_of_any_image_that_was_just_started_is_given_time_to_start_its_own(
    kind: str, in_place: bool, seen: bool
) -> None:
    fields = await read(Starting(kind, {"postgres": 0.0, "worker": 0.5}, in_place=in_place))

    assert ("process/server/worker" in fields) is seen


async def test_it_is_given_longer_to_become_as_another_instance_was() -> None:
    wanted = await read(Starting("container", {"postgres": 0.0, "worker": 0.0}))

    assert await read(Starting("container", {"postgres": 0.0, "worker": 1.6}), baseline=wanted) == wanted


async def test_a_fresh_instance_that_is_as_another_was_is_looked_at_until_it_stands_still() -> None:
    """The other one may have been read before its worker came: then the two must not agree."""
    early = await read(Starting("container", {"postgres": 0.0}))

    fields = await read(Starting("container", {"postgres": 0.0, "worker": 0.5}), baseline=early, fresh=True)

    assert "process/server/worker" in fields


async def test_nothing_waits_for_what_is_declared_volatile() -> None:
    patterns = ("instance/process/server/cron*", "instance/processes/server")
    volatile = tuple(VolatileField(pattern=pattern, reason="it comes and goes") for pattern in patterns)
    wanted = await read(Starting("files", {"postgres": 0.0}))
    wanted = {name: text for name, text in wanted.items() if name != "processes/server"}
    subject = Starting("files", {"postgres": 0.0, "cron 17": 0.0})

    await read(subject, baseline=wanted, volatile=volatile)

    assert subject.looks == 1
