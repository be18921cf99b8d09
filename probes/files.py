"""The kind `files`: everything in a resource's state directory, as the host sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.manifest import TOP, TOUCHED, Digests, Skip, read_changed, read_top, read_touched, read_whole
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.errors import InstanceLost
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Tree


class FilesOptions(Options):
    """What of a state directory is read."""

    state: str | None = Field(default=None, description="which state directory, where the resource has several")
    exclude: tuple[str, ...] = Field(default=(), description="shell-style patterns of paths that are not read, with all below")
    owner: Literal["", "home", "workspace"] = Field(default="", description="a directory of the agent's that no resource has")
    running: bool = Field(default=False, description="a server writes there while it runs: read at depth deep only, when replaced")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesProbe:
    """Reads a tree of files."""

    name: str
    resource: str
    options: FilesOptions
    digest: str
    digests: Digests = field(default_factory=Digests, repr=False, compare=False)

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        if field == TOUCHED:
            return None if in_place or self.options.running else Depth.QUICK
        return Depth.QUICK if in_place or field == TOP else Depth.DEEP

    async def read(self, context: ProbeContext) -> Findings:
        try:
            tree = context.subject.tree(self.resource, self.options.state)
        except (InstanceLost, LookupError):
            if not self.options.owner and not self.options.running:
                raise
            why = "a resource lies there" if self.options.owner else "its server keeps nothing on disk"
            return Findings(fields={TOP: f"no such directory: {why}"})
        return Findings(fields=await read_in_thread(self._read, tree, context))

    def skip(self, path: str) -> bool:
        """True for a path that is left out, or that lies below one."""
        if not self.options.exclude:
            return False
        names = path.split("/")
        return any(fnmatchcase("/".join(names[:n]), p) for p in self.options.exclude for n in range(1, len(names) + 1))

    def _read(self, tree: Tree, context: ProbeContext) -> dict[str, str]:
        return read_files(tree, context, self.digests, self.skip)


def read_files(tree: Tree, context: ProbeContext, digests: Digests, skip: Skip) -> dict[str, str]:
    """Read what is due: the list of touched paths, and the manifest where everything that may have changed is read."""
    fields = {TOP: read_top(tree)} if context.in_place else {TOP: read_top(tree), TOUCHED: read_touched(tree, skip)}
    if not context.thorough:
        return fields
    if not context.deep and context.baseline is not None:
        found = read_changed(tree, digests, skip, context.baseline)
        if found is not None:
            return fields | found
    return fields | read_whole(tree, digests, skip)


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> FilesProbe:
    """Make a probe of a resource's files, or of the agent's own directory."""
    options = read_options(spec, FilesOptions, environment)
    taken = options.owner in {r.name for r in environment.resources}  # then the runtime gives its own another name
    owner = f"agent-{options.owner}" if taken else options.owner
    resource = owner if options.owner and spec.resource is None else resource_of(spec, environment)
    return FilesProbe(name=spec.name, resource=resource, options=options, digest=digest_of_kind(spec, options))
