"""The `files` kind: a directory with seed files.

    [resources.docs]
    kind = "files"
    target = "/workspace/docs"     # default: /workspace/<name>
    seed = "seed/docs"             # a directory; empty when absent
    files = { "notes.txt" = "..." }   # small texts beside it

A task's own start state: `start.docs = { files = {...}, remove = [...] }`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResourceSpec, Role
from sandbox.ports import SeedHost
from sandbox.resources import contents, options
from sandbox.resources.at_rest import AtRest, absolute, default_target


def relative(value: str) -> str:
    """Validate a path inside a state directory; raise ValueError."""
    if not value or PurePosixPath(value).is_absolute() or ".." in PurePosixPath(value).parts:
        raise ValueError("must be a path inside the directory")
    return value


Relative = Annotated[str, AfterValidator(relative)]
Target = Annotated[str, AfterValidator(absolute)]


class FilesOptions(options.Options):
    target: Target | None = None
    seed: str | None = None
    files: dict[Relative, str] = Field(default_factory=dict)


class FilesStart(options.Options):
    files: dict[Relative, str] = Field(default_factory=dict)
    remove: list[Relative] = Field(default_factory=list)


class Files(AtRest):
    """A directory of the agent's."""

    def __init__(self, spec: ResourceSpec, chosen: FilesOptions) -> None:
        super().__init__(spec, chosen.target or default_target(spec.name))
        self._options = chosen
        self._seed = seed_directory(spec, chosen.seed)

    @cached_property
    def digest(self) -> str:
        return options.digest("files", 1, self._options.model_dump(exclude={"seed"}), files=[self._seed] if self._seed else [])

    async def seed(self, host: SeedHost) -> None:
        if self._seed is not None:
            await contents.unpack(host, await in_thread(contents.archive, self._seed), self.target, role=Role.AGENT)
        await self._write(host, self._options.files)

    async def start_state(self, host: SeedHost, options_: Mapping[str, Any]) -> None:
        start = options.read_start(self.spec, options_, FilesStart)
        if start.remove:
            argv = ("/bin/sh", "-ec", 'cd "$1"; shift; rm -r -- "$@"', "sh", self.target, *start.remove)
            contents.succeeded(await host.run(argv, role=Role.AGENT), f"start.{self.spec.name}.remove")
        await self._write(host, start.files)

    async def _write(self, host: SeedHost, files: Mapping[str, str]) -> None:
        if files:
            await contents.unpack(host, contents.archive_of(files), self.target, role=Role.AGENT)


def seed_directory(spec: ResourceSpec, seed: str | None) -> Path | None:
    """Return the seed's directory; raise EnvironmentInvalid where it is none."""
    if seed is None:
        return None
    path = Path(seed)
    if not path.is_absolute() or not path.is_dir():
        raise EnvironmentInvalid(
            f"the seed of resource {spec.name!r} cannot be used",
            problems=(f"resources.{spec.name}.seed: {seed!r} is not a directory (given as an absolute path)",),
        )
    return path


def create(spec: ResourceSpec) -> Files:
    """Make the resource; raise EnvironmentInvalid."""
    return Files(spec, options.read(spec, FilesOptions))
