"""What a plug-in gives the pool, and who judges its instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from sandbox.model import (
    Baseline,
    Depth,
    EnvironmentSpec,
    ResourceSpec,
    Score,
    TaskSpec,
    Verdict,
)
from sandbox.ports.instance import Subject
from sandbox.ports.resource import Resource


class Verifier(Protocol):
    """Judges one environment's instances. Never raises for a probe's fault: that is an inconclusive verdict. A probe that gave
    no answer is tried once more before that, since a loaded machine is not dirt."""

    @property
    def digest(self) -> str:
        """Covers the probes: kinds, options, versions."""

    async def record(self, subjects: Sequence[Subject], rebuilt: Subject | None, *, key: str) -> Baseline:
        """Read every subject deep; raise BaselineUnstable naming each field that differs and is not declared volatile."""

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict: ...


class Environment(Protocol):
    """What a plug-in gives the pool."""

    @property
    def spec(self) -> EnvironmentSpec: ...
    @property
    def resources(self) -> Sequence[Resource]: ...
    @property
    def verifier(self) -> Verifier: ...
    @property
    def tasks(self) -> Mapping[str, TaskSpec]: ...
    async def score(self, subject: Subject, task: TaskSpec) -> Score:
        """Run the task's own check from outside, over the state as the agent left it."""


@runtime_checkable
class UsesFiles(Protocol):
    """An environment whose instances are run with files that somebody may edit: mounted where they lie, not copied into golden."""

    def changed_files(self) -> Sequence[str]:
        """Return those that are not what they were when the environment was read. Blocking."""


ResourceFactory = Callable[[ResourceSpec], Resource]
EnvironmentFactory = Callable[[], Environment]
