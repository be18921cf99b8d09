"""The probe of a repository: its git state by name, and every file of the tree, `.git` included."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from pydantic import Field

from probes.canonical import digest_of, name_of
from probes.files import read_files
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.manifest import TOP, TOUCHED, Digests
from probes.probe import Findings, ProbeContext
from probes.repo import gitdir
from probes.repo.index import read_index
from probes.repo.objects import LIMIT, ObjectStore
from sandbox.aio import read_in_thread
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Tree

GIT = "git "  # every field of git's own begins so; the others are the tree's listings
COSTLY = ("git index", "git reflog/", "git objects/", "git history/", "git nested/", "git lock/")


class RepoOptions(Options):
    """Where the repository lies, and what is not read."""

    state: str | None = Field(default=None, description="which state directory, where the resource has several")
    path: str = Field(default="", description="the working tree's directory inside the state directory")
    exclude: tuple[str, ...] = Field(default=(), description="shell-style patterns of paths that are not read, with all below")


@dataclass(slots=True)
class _Histories:
    """What the history of a commit reaches in a store, by commit and object names: worked out once."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoProbe:
    """Reads one repository."""

    name: str
    resource: str
    options: RepoOptions
    digest: str
    digests: Digests = field(default_factory=Digests, repr=False, compare=False)
    histories: _Histories = field(default_factory=_Histories, repr=False, compare=False)

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    @property
    def top(self) -> str:
        return f"{self.options.path}/.git" if self.options.path else ".git"

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        if field == TOUCHED:
            return None if in_place else Depth.QUICK
        if in_place or field == TOP or (field.startswith(GIT) and not field.endswith("/") and not field.startswith(COSTLY)):
            return Depth.QUICK
        return Depth.DEEP

    async def read(self, context: ProbeContext) -> Findings:
        return Findings(fields=await read_in_thread(self._read, context.subject.tree(self.resource, self.options.state), context))

    def skip(self, path: str) -> bool:
        """True for what is read by its meaning (the index holds times), and for what the author leaves out."""
        if path == f"{self.top}/index":
            return True
        names = path.split("/")
        return any(fnmatchcase("/".join(names[:n]), p) for p in self.options.exclude for n in range(1, len(names) + 1))

    def _read(self, tree: Tree, context: ProbeContext) -> dict[str, str]:
        fields = read_files(tree, context, self.digests, self.skip)
        entry = tree.entry(self.top)
        if entry is None or entry.kind != "dir":
            return fields | {f"{GIT}head": "absent" if entry is None else f"{entry.kind} in the place of the git directory"}
        git = gitdir.read_state(tree, self.top)
        if context.thorough:
            git |= gitdir.read_logs(tree, self.top) | gitdir.read_locks(tree, self.top)
            git |= self._index(tree) | self._objects(tree) | self._nested(fields)
        return fields | {GIT + name: text for name, text in git.items()}

    def _index(self, tree: Tree) -> dict[str, str]:
        path = f"{self.top}/index"
        entry = tree.entry(path)
        if entry is None or entry.kind != "file":
            return {"index": "absent" if entry is None else entry.kind}
        fields = read_index(tree.read(path), gitdir.hash_size(tree, self.top))
        return {"index": f"present {entry.mode:04o}", **{f"index/{name}": text for name, text in fields.items()}}

    def _objects(self, tree: Tree) -> dict[str, str]:
        store = ObjectStore(tree, f"{self.top}/objects", gitdir.hash_size(tree, self.top)).open()
        names = store.names()
        digest = digest_of(n.hex() for n in sorted(names))[:32]
        fields = {"objects/names": f"{len(names)}, {digest}"}
        if len(names) > LIMIT:
            return fields | {"history/unreached objects": f"not examined: more than {LIMIT} objects"}
        head = gitdir.head_commit(tree, self.top)
        key = f"{head.hex() if head else ''} {digest}"
        if key not in self.histories.known:
            reached, commits = store.reached(head) if head else (set(), 0)
            unreached = sorted(n.hex() for n in names - reached)
            shown = f", {digest_of(unreached)[:32]}" if unreached else ""
            self.histories.known.clear()
            self.histories.known[key] = {
                "history/commits": str(commits),
                "history/unreached objects": f"{len(unreached)}{shown}",
                "history/missing objects": str(len(reached - names)),
            }
        return fields | self.histories.known[key]

    def _nested(self, fields: dict[str, str]) -> dict[str, str]:
        """Name every other `.git` of the tree, from the listings just read."""
        found = {}
        for name, text in fields.items():
            if not name.endswith("/"):
                continue
            below = name.removeprefix("./")
            if below + ".git" == "/".join(map(name_of, self.top.split("/"))) or below.startswith(f"{self.top}/"):
                continue
            for line in text.split("\n"):
                if line.startswith(".git\t"):
                    found[f"nested/{below or './'}"[:-1] if below else "nested/."] = line.split("\t")[1].split(" ")[0]
        return found


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> RepoProbe:
    """Make the probe of a `repo` resource."""
    options = read_options(spec, RepoOptions, environment)
    return RepoProbe(name=spec.name, resource=resource_of(spec, environment), options=options, digest=digest_of_kind(spec, options))
