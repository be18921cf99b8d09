"""The environment as the pool takes it: specification, resources, verifier, tasks and scoring in one object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from envs import digest, reader, scoring
from sandbox import plugins
from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, ResetMethod, ResetPolicy, Score, TaskSpec
from sandbox.plugins import Group
from sandbox.ports import Resource, Subject, Verifier


class LoadedEnvironment:
    """Implements `sandbox.ports.Environment` over a description that was read and found right."""

    def __init__(self, definition: reader.Definition) -> None:
        self._definition = definition

    @property
    def spec(self) -> EnvironmentSpec:
        return self._definition.spec

    @property
    def base(self) -> Path:
        """The directory it was read from."""
        return self._definition.base

    @property
    def tasks(self) -> Mapping[str, TaskSpec]:
        return self._definition.tasks

    @cached_property
    def resources(self) -> Sequence[Resource]:
        return tuple(plugins.load(Group.RESOURCES, r.kind)(r) for r in self.spec.resources)

    @cached_property
    def verifier(self) -> Verifier:
        from probes import create_verifier

        verifier: Verifier = create_verifier(self.spec)
        return verifier

    def changed_files(self) -> Sequence[str]:
        """Return which of the files that its instances are run with are not what they were when it was read. Blocking."""
        return [text for text, before in self._definition.used.items() if _digest(self.base / text) != before]

    async def score(self, subject: Subject, task: TaskSpec) -> Score:
        return await scoring.score(subject, task)

    def with_reset(self, method: ResetMethod, **policy: Any) -> LoadedEnvironment:
        """Return the same environment under another reset method. Its states and digest stay the same: how a state is brought
        back does not change what it is. `policy` sets further fields of ResetPolicy."""
        reset: ResetPolicy = dataclasses.replace(self.spec.reset, method=method, **policy)
        if method is ResetMethod.HOOK and not reset.hook:
            raise EnvironmentInvalid(
                f"environment {self.spec.name} has no reset hook",
                problems=("reset: method hook needs `hook` or `hook_script`",),
                fix="write one under [reset], or choose clean, restore or rebuild",
            )
        if method.replaces and "restore_every" not in policy:
            reset = dataclasses.replace(reset, restore_every=0)
        spec = dataclasses.replace(self.spec, reset=reset)
        return LoadedEnvironment(dataclasses.replace(self._definition, spec=spec))

    def with_check(self, **policy: Any) -> LoadedEnvironment:
        """Return the same environment checked otherwise: `policy` sets fields of CheckPolicy."""
        spec = dataclasses.replace(self.spec, check=dataclasses.replace(self.spec.check, **policy))
        return LoadedEnvironment(dataclasses.replace(self._definition, spec=spec))


def _digest(path: Path) -> str:
    try:
        return digest.of_path(path)
    except OSError:
        return ""  # gone, or not to be read: not what it was


def load(path: Path | str) -> LoadedEnvironment:
    """Read an environment's directory (or its file). Raises EnvironmentInvalid with every problem."""
    return LoadedEnvironment(reader.read(Path(path)))


def define(data: Mapping[str, Any], base: Path | str) -> LoadedEnvironment:
    """The same from Python: `data` holds the tables of `environment.toml`, relative paths start at `base`."""
    return LoadedEnvironment(reader.define(data, Path(base)))
