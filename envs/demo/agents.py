"""The demo's scripted agents: each works on a real task of its environment, and some leave something behind, as agents do.

A leak is what a plausible agent leaves as a by-product. Each one survives the reset that most authors write by hand; what of it
a check sees is never written down here but measured, against a control session that leaves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol

from sandbox.errors import AutoclaveError
from sandbox.model import ExecResult


class Acting(Protocol):
    """What an agent needs of a session."""

    async def run(self, argv: list[str], *, stdin: bytes = b"", limit_s: float | None = None) -> ExecResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Something left behind, and the shell text that leaves it."""

    name: str
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one scripted agent does: its task's work, and perhaps a leak."""

    environment: str
    task: str
    shell: str
    stdin: bytes = b""
    leak: Leak | None = None

    async def act(self, session: Acting) -> None:
        """Do the work, then leave the leak; raise when either did not run, since a leak that was not planted proves nothing."""
        await _done(session, self.shell, self.stdin, f"task {self.task}")
        if self.leak is not None:
            await _done(session, self.leak.shell, b"", f"leak {self.leak.name}")


async def _done(session: Acting, shell: str, stdin: bytes, what: str) -> None:
    result = await session.run(["sh", "-euc", shell], stdin=stdin, limit_s=60)
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-300:]
        raise AutoclaveError(f"{what} ended with exit code {result.exit_code}: {said}")


SQL = "psql -qX -v ON_ERROR_STOP=1"
SHOP_LEAKS = (
    Leak(
        name="a helper function in its schema",
        shell=f"{SQL} -c 'create function work.total(int) returns int language sql as $$select $1$$'",
    ),
    Leak(
        name="a table with intermediate results",
        shell=f"{SQL} -c 'create table work.scratch as select id from shop.orders limit 10'",
    ),
    Leak(name="its own default search_path", shell=f"{SQL} -c 'alter role agent set search_path = work, shop'"),
    Leak(name="a new password for itself", shell=f"""{SQL} -c "alter role agent password 'mine'" """),
    Leak(name="notes in a large object", shell=f"""{SQL} -c "select lo_from_bytea(0, 'remember the coupon')" """),
    Leak(name="a prepared transaction", shell=f"""{SQL} -c "begin" -c "select 1" -c "prepare transaction 'later'" """),
    Leak(name="default privileges for everybody", shell=f"{SQL} -c 'alter default privileges grant select on tables to public'"),
    Leak(name="a start-up file for psql", shell="printf '\\\\set ON_ERROR_ROLLBACK on\\n' > ~/.psqlrc"),
)
REPO_LEAKS = (
    Leak(name="an alias in the repository's config", shell="git config alias.st 'status --short'"),
    Leak(
        name="a hook",
        shell="mkdir -p .git/hooks; printf '#!/bin/sh\\nexit 0\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    ),
    Leak(name="a branch with its solution", shell="git -c user.name=a -c user.email=a@b branch solved"),
    Leak(name="a stash", shell="echo '# note' >> README.md; git -c user.name=a -c user.email=a@b stash push -q"),
    Leak(name="an exclude rule", shell="echo '*.log' >> .git/info/exclude"),
    Leak(name="an edit that git was told to skip", shell="git update-index --skip-worktree README.md; echo '# note' >> README.md"),
    Leak(name="a repository inside the repository", shell="mkdir vendored; git init -q vendored; echo x > vendored/x"),
    Leak(name="settings in its home", shell="git config --global core.autocrlf input"),
)
LEAKS: Mapping[str, tuple[Leak, ...]] = {"shop": SHOP_LEAKS, "repo": REPO_LEAKS}


def scripts(environment: Any, count: int | None = None) -> list[Script]:
    """Return the scripts for one of the shipped environments: a control that leaves nothing, then one for each leak."""
    name = environment.spec.name
    leaks: list[Leak | None] = [None, *LEAKS[name][:count]]
    work = _shop_work(environment) if name == "shop" else _repo_work(environment)
    return [
        Script(environment=name, task=task, shell=shell, stdin=stdin, leak=leak)
        for leak, (task, shell, stdin) in zip(leaks, work, strict=False)
    ]


def _shop_work(environment: Any) -> list[tuple[str, str, bytes]]:
    """Each task's reference solution, sent as the agent."""
    solutions = {}
    for line in files("envs.shop").joinpath("solutions.jsonl").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            held = json.loads(line)
            solutions[held["id"]] = ";\n".join(held["solution"]) + ";\n"
    train = [task for task in environment.tasks.values() if task.split == "train" and task.id in solutions]
    spread = train[:: max(1, len(train) // 16)]
    return [(task.id, f"{SQL} -1 -o /dev/null -f -", solutions[task.id].encode()) for task in spread]


def _repo_work(environment: Any) -> list[tuple[str, str, bytes]]:
    """An honest attempt: run the tests that fail, and look around. (Fixing needs a model; resetting does not.)"""
    train = [task for task in environment.tasks.values() if task.split == "train"]
    look = "git status --short >/dev/null; python3 -m unittest -q >/dev/null 2>&1 || true; echo '# tried' >> NOTES.md"
    return [(task.id, look, b"") for task in train[:: max(1, len(train) // 16)]]
