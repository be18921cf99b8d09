"""An environment whose world is a dictionary: files by path, and processes by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sandbox.model import CheckPolicy, EnvironmentSpec, Isolation, ResetPolicy, ResourceSpec, Score, TaskSpec
from sandbox.ports import Resource, Subject
from sandbox.testing.faults import Faults
from sandbox.testing.verifier import ScriptedVerifier


class MemoryEnvironment:
    """What `memory_environment` returns: a `sandbox.ports.Environment`."""

    def __init__(self, spec: EnvironmentSpec, tasks: Mapping[str, TaskSpec], faults: Faults) -> None:
        self.spec = spec
        self.tasks = tasks
        self.resources: Sequence[Resource] = ()
        self.verifier = ScriptedVerifier()
        self.faults = faults

    async def score(self, subject: Subject, task: TaskSpec) -> Score:
        """A task's `success` maps paths to the text they must hold."""
        await self.faults.at("score")
        tree = subject.tree("state")
        wrong = [p for p, text in task.success.items() if tree.entry(p) is None or tree.read(p).decode() != text]
        return Score(reward=0.0 if wrong else 1.0, success=not wrong, detail=", ".join(wrong))


def memory_environment(
    name: str = "memory",
    *,
    files: Mapping[str, str] | None = None,
    reset: ResetPolicy | None = None,
    check: CheckPolicy | None = None,
    tasks: Sequence[TaskSpec] = (),
    per_build: Sequence[str] = (),
    per_start: Sequence[str] = (),
    version: str = "1",
    isolation: Isolation = Isolation.INSTANCE,
    namespaces_per_instance: int = 8,
    commons: Mapping[str, str] | None = None,
) -> MemoryEnvironment:
    """Make an environment of `files`. Paths below `deep/` are read by deep checks only. `per_build` and `per_start` name paths
    whose text differs with every build, or every start, as a salt or a clock would. Where namespaces share an instance, `commons`
    are files of all of them, below `common/`; a namespace's check reads those below `common/guard/`."""
    options = {
        "files": dict(files or {"orders": "3", "deep/settings": "default"}),
        "per_build": [*per_build],
        "per_start": [*per_start],
    }
    if isolation is not Isolation.INSTANCE:
        options["commons"] = dict(commons or {"common/guard/roles": "none", "common/slots": "none"})
    digest = hashlib.blake2b(repr((name, version, sorted(options.items()))).encode(), digest_size=8).hexdigest()
    spec = EnvironmentSpec(
        name=name,
        version=version,
        digest=digest,
        resources=(ResourceSpec(name="state", kind="memory", options=options),),
        reset=reset or ResetPolicy(),
        check=check or CheckPolicy(),
        isolation=isolation,
        namespaces_per_instance=namespaces_per_instance,
    )
    return MemoryEnvironment(spec, {task.id: task for task in tasks}, Faults())
