"""The `repo` kind: a git repository with one commit and nothing behind it.

    [resources.code]
    kind = "repo"
    target = "/workspace"      # default: /workspace/<name>
    seed = "library"           # a directory whose files are committed
    script = "build.sh"        # or, instead: text run by /bin/sh in the empty directory; what it leaves is committed
    message = "Start"

A task's own start state: `files` (whole texts by path), `replace` (one text by another in a file), `patch` (a unified diff) and
`remove`; the result is one new root commit, and the objects of the old one are gone, so that the repair cannot be looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from sandbox import binaries
from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid, ResetFailed
from sandbox.model import ResourceSpec, Role
from sandbox.ports import LiveResource, SeedHost
from sandbox.resources import contents, options
from sandbox.resources.at_rest import GOLDEN, AtRest, default_target, golden_mount
from sandbox.resources.files import Relative, Target, seed_directory

# Nothing of the repository's own configuration may decide what runs or what is written while a trusted git works on it.
_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Autoclave",
    "GIT_AUTHOR_EMAIL": "autoclave@localhost",
    "GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Autoclave",
    "GIT_COMMITTER_EMAIL": "autoclave@localhost",
    "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "TZ": "UTC",
    "LC_ALL": "C",
}
_GIT = """
cd "$1"
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.logAllRefUpdates=false \\
  -c core.autocrlf=false -c gc.auto=0 -c protocol.allow=never -c advice.detachedHead=false "$@"; }
"""
# One root commit; every other ref, the reflogs, and every object that it does not reach go.
_FINISH = """
git add -A -f
git commit -q --no-verify --allow-empty --amend -m "$2"
git for-each-ref --format='%(refname)' | while read -r ref; do [ "$ref" = refs/heads/main ] || git update-ref -d "$ref"; done
rm -rf .git/logs .git/COMMIT_EDITMSG .git/ORIG_HEAD .git/FETCH_HEAD .git/hooks .git/description .git/branches
git repack -a -d -q -f --threads=1
git prune --expire=now
git pack-refs --all --prune
git update-index -q --really-refresh
[ "$(git rev-list --all --count)" = 1 ] || { echo "more than one commit is reachable" >&2; exit 3; }
[ -z "$(git count-objects -v | sed -n 's/^count: 0$//p;s/^count: //p')" ] || { echo "loose objects are left" >&2; exit 3; }
[ -z "$(git status --porcelain)" ] || { echo "the working tree is not what was committed" >&2; exit 3; }
"""
_BUILD = f"set -eu\n{_GIT}\ncommand git init -q --template= -b main .\ngit commit -q --allow-empty -m start\n{_FINISH}"
_AMEND = f"set -eu\n{_GIT}\n{_FINISH}"
_CLEAN = f"""set -eu
base=$(command git -c core.fsmonitor=false --git-dir="$2/.git" rev-parse refs/heads/main)
{_GIT}
rm -rf .git/objects
cp -a "$2/.git/objects" .git/objects
rm -f .git/index.lock .git/HEAD.lock .git/MERGE_HEAD .git/CHERRY_PICK_HEAD .git/REVERT_HEAD
git symbolic-ref HEAD refs/heads/main
git reset -q --hard "$base"
git clean -q -ffdx
git stash clear
git for-each-ref --format='%(refname)' | while read -r ref; do [ "$ref" = refs/heads/main ] || git update-ref -d "$ref"; done
rm -f .git/ORIG_HEAD
"""


class Replacement(options.Options):
    file: Relative
    old: str = Field(min_length=1)
    new: str


class RepoOptions(options.Options):
    target: Target | None = None
    seed: str | None = None
    script: str = ""
    message: str = Field("Start", min_length=1)

    @model_validator(mode="after")
    def _one_source(self) -> RepoOptions:
        if (self.seed is None) == (not self.script):
            raise ValueError("give exactly one of `seed` (a directory) and `script` (text for /bin/sh)")
        return self


class RepoStart(options.Options):
    files: dict[Relative, str] = Field(default_factory=dict)
    replace: list[Replacement] = Field(default_factory=list)
    patch: str = ""
    remove: list[Relative] = Field(default_factory=list)
    message: str = ""

    @model_validator(mode="after")
    def _something(self) -> RepoStart:
        if not (self.files or self.replace or self.patch or self.remove):
            raise ValueError("changes nothing: give files, replace, patch or remove")
        return self


class Repo(AtRest):
    """A repository at rest in the agent's directory."""

    def __init__(self, spec: ResourceSpec, chosen: RepoOptions) -> None:
        super().__init__(spec, chosen.target or default_target(spec.name))
        self._options = chosen
        self._seed = seed_directory(spec, chosen.seed)

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"target": self.target, "git": binaries.git_version()}

    @cached_property
    def digest(self) -> str:
        return options.digest("repo", 1, self._options.model_dump(exclude={"seed"}), files=[self._seed] if self._seed else [])

    async def seed(self, host: SeedHost) -> None:
        await in_thread(binaries.git)
        if self._seed is not None:
            await contents.unpack(host, await in_thread(contents.archive, self._seed), self.target, role=Role.AGENT)
        else:
            argv = ("/bin/sh", "-ec", f'cd "$1"\n{self._options.script}', "sh", self.target)
            contents.succeeded(await host.run(argv, role=Role.AGENT, env=_ENV), f"resources.{self.spec.name}.script")
        await self._git(host, _BUILD, self._options.message)

    async def start_state(self, host: SeedHost, options_: Mapping[str, Any]) -> None:
        start = options.read_start(self.spec, options_, RepoStart)
        if start.remove:
            removing = ("/bin/sh", "-ec", 'cd "$1"; shift; rm -r -- "$@"', "sh", self.target, *start.remove)
            contents.succeeded(await host.run(removing, role=Role.AGENT), f"start.{self.spec.name}.remove")
        texts = dict(start.files) | await self._replaced(host, start)
        if texts:
            await self._overwrite(host, texts)
        if start.patch:
            script = f"set -eu\n{_GIT}\ngit apply --whitespace=nowarn -"
            argv = ("/bin/sh", "-c", script, "sh", self.target)
            done = await host.run(argv, role=Role.AGENT, env=_ENV, stdin=start.patch.encode())
            contents.succeeded(done, f"start.{self.spec.name}.patch")
        await self._git(host, _AMEND, start.message or self._options.message)

    async def clean(self, live: LiveResource) -> None:
        """What a careful author does: back to the commit, untracked and ignored files away, other refs and the stash away. The
        objects are those of the beginning: one that was left loose could stand in for a packed one, or hold a note."""
        argv = ("/bin/sh", "-c", _CLEAN, "sh", self.target, GOLDEN)
        done = await live.run(argv, role=Role.AGENT, env=_ENV, binds=(golden_mount(live, self.STATE),))
        if done.exit_code or done.timed_out:
            said = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise ResetFailed(f"resource {self.spec.name}: git could not bring the repository back: {said}")

    async def _replaced(self, host: SeedHost, start: RepoStart) -> dict[str, str]:
        texts: dict[str, str] = {}
        for change in start.replace:
            text = texts.get(change.file)
            if text is None:
                argv = ("cat", "--", f"{self.target}/{change.file}")
                read = contents.succeeded(await host.run(argv, role=Role.AGENT), f"start.{self.spec.name}.replace: {change.file}")
                text = read.decode()
            if text.count(change.old) != 1:
                raise EnvironmentInvalid(
                    f"start.{self.spec.name}.replace: the text to replace occurs {text.count(change.old)} times in {change.file}, "
                    "and must occur once",
                    fix="give more of the lines around it",
                )
            texts[change.file] = text.replace(change.old, change.new)
        return texts

    async def _overwrite(self, host: SeedHost, texts: Mapping[str, str]) -> None:
        """Write through existing files, so that they keep their mode."""
        for name, text in texts.items():
            argv = ("/bin/sh", "-ec", 'cd "$1"; mkdir -p -- "$(dirname -- "$2")"; cat > "$2"', "sh", self.target, name)
            done = await host.run(argv, role=Role.AGENT, stdin=text.encode())
            contents.succeeded(done, f"start.{self.spec.name}.files: {name}")

    async def _git(self, host: SeedHost, script: str, message: str) -> None:
        done = await host.run(("/bin/sh", "-c", script, "sh", self.target, message), role=Role.AGENT, env=_ENV)
        contents.succeeded(done, f"committing the files of resource {self.spec.name}")


def create(spec: ResourceSpec) -> Repo:
    """Make the resource; raise EnvironmentInvalid."""
    return Repo(spec, options.read(spec, RepoOptions))
