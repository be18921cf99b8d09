"""Planting one leak in a running instance, by the rights that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import psycopg

from envs import browser, destructive
from envs.planting.candidates import BRACES, Candidate
from envs.planting.names import OUTSIDE, of_address
from probes.leaks import Needs, ShellLeak, SqlLeak
from probes.leaks.browser import BrowserLeak
from sandbox.aio import poll
from sandbox.errors import AutoclaveError, InstanceLost
from sandbox.model import BrowserAction
from sandbox.ports import Instance

LIMIT_S = 60.0
ENDING_S = 10.0
_SIGNALLED = 128  # exit codes above it are of a command that a signal ended


async def plant(instance: Instance, candidate: Candidate, held: AsyncExitStack) -> str | None:
    """Return why it could not be planted, None when it was. Sessions that are part of a leak stay open until `held` closes."""
    try:
        if candidate.action is not None:
            return await destructive.act(instance, candidate.action)
        if isinstance(candidate.leak, SqlLeak):
            return await _sql(instance, candidate, candidate.leak, held)
        if isinstance(candidate.leak, BrowserLeak):
            await _browse(instance, candidate, candidate.leak)
            return None
        assert isinstance(candidate.leak, ShellLeak)
        return await _shell(instance, candidate, candidate.leak)
    except (psycopg.Error, AutoclaveError, OSError, TimeoutError) as error:
        return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__


async def _sql(instance: Instance, candidate: Candidate, leak: SqlLeak, held: AsyncExitStack) -> str | None:
    """As the agent where its own role suffices, else as superuser: a leak is not less real for being somebody else's work."""
    trusted, agents = instance.subject().endpoint(candidate.resource), instance.endpoint(candidate.resource)
    names = {**candidate.names, **of_address(agents)}
    strong = leak.needs is not Needs.OWNER or bool(leak.needs_library) or leak.database != "{database}"
    address = trusted if strong else agents
    place = {"dbname": filled(leak.database, names).strip('"')}
    connection = await _connect(address, **place)
    held.push_async_callback(connection.close)
    if any("{outside}" in statement for statement in leak.sql):
        await connection.execute(f"copy (select 1) to program 'mkdir -p -m 700 {OUTSIDE}'".encode())
    if leak.needs_library:
        await connection.execute(f"set {leak.needs_library}.track = 'top'".encode())
    skipped: list[str] = []
    connection.add_notice_handler(lambda notice: skipped.extend(_skipped(notice)))
    for statement in leak.sql:
        done = await connection.execute(filled(statement, names).encode())
        if done.statusmessage in destructive.NO_ROW:  # that would be planted and never seen
            return f"it changes no row here: {filled(statement, names)}"[:160]
    if skipped:
        return skipped[0]
    if not leak.held:
        await connection.close()
    if leak.then:
        async with await _connect(trusted, **place) as second:
            for statement in leak.then:
                await second.execute(filled(statement, names).encode())
    return None


def _skipped(notice: psycopg.errors.Diagnostic) -> list[str]:
    """Granting and vacuuming what one may not only warn, and leave nothing."""
    said = notice.message_primary or ""
    return [said] if notice.sqlstate in ("01006", "01007") or "permission denied" in said else []


async def _connect(address: str, **changes: Any) -> psycopg.AsyncConnection[Any]:
    made = await psycopg.AsyncConnection.connect(address, autocommit=True, connect_timeout=20, **changes)
    await made.execute("set statement_timeout = '30s'")
    return made


async def _shell(instance: Instance, candidate: Candidate, leak: ShellLeak) -> str | None:
    # A repository of ours is made without git's templates: directories that a leak writes into are made with it.
    missing = " ".join(d for d in (".git/hooks", ".git/info", ".git/objects/info") if f"{d}/" in leak.shell)
    needed = "".join(_needed(words.split("|")) for words in leak.programs)
    # Nothing else is made: it would be seen in the leak's place.
    outside = 'mkdir -p "$OUTSIDE" && ' if "$OUTSIDE" in leak.shell else ""
    inside = f"mkdir -p {missing} && " if missing else ""
    script = f'{needed}{outside}cd "$PLACE" && {inside}{{ {leak.shell}\n}}'
    author = {f"GIT_{who}_{what}": "planter" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    try:
        result = await instance.run(["/bin/sh", "-c", script], env={**author, **candidate.names}, limit_s=LIMIT_S)
    except InstanceLost:
        return None  # that is what it left
    if result.exit_code == 0 or (result.exit_code > _SIGNALLED and await poll(_ended(instance), timeout=ENDING_S)):
        return None
    said = (result.stderr or result.stdout).decode(errors="replace").strip().splitlines()
    return said[-1][:160] if said else f"exit {result.exit_code}"


def _ended(instance: Instance) -> Callable[[], Awaitable[bool]]:
    """An engine says a moment later that a container has ended than whoever ran in it."""

    async def ended() -> bool:
        return not await instance.alive()

    return ended


def _needed(programs: Sequence[str]) -> str:
    there = " || ".join(f"command -v {program} >/dev/null" for program in programs)
    return f"{{ {there}; }} || {{ echo 'there is no {' and no '.join(programs)}' >&2; exit 127; }}\n"


async def _browse(instance: Instance, candidate: Candidate, leak: BrowserLeak) -> None:
    action = BrowserAction(visit=leak.visit, script=leak.script, calls=leak.calls)
    there = replace(action, visit=filled(action.visit, candidate.names), script=filled(action.script, candidate.names))
    calls = tuple((method, filled(params, candidate.names)) for method, params in leak.calls)
    await browser.plant(instance.endpoint(candidate.resource), replace(there, calls=calls), limit_s=LIMIT_S)


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """Put names in the place of their braces; other braces are the text's own."""
    if isinstance(value, str):
        return BRACES.sub(lambda found: names.get(found[1], found[0]), value)
    if isinstance(value, Mapping):
        return {k: filled(v, names) for k, v in value.items()}
    return [filled(v, names) for v in value] if isinstance(value, list | tuple) else value
