"""Doing deliberately destructive things to an instance, as the environment's author wrote them down."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence

import psycopg
from psycopg import sql

from envs import browser
from sandbox.errors import InstanceLost, LimitReached, RuntimeUnavailable
from sandbox.model import DestructiveAction, EnvironmentSpec, PageStep
from sandbox.pages import open_pages
from sandbox.ports import Instance
from sandbox.resources.at_rest import default_target
from sandbox.resources.browser.cdp import Refused

LIMIT_S = 30.0
NO_ROW = ("UPDATE 0", "DELETE 0", "INSERT 0 0")  # as the server says it
_WITH = re.compile(r"\bwith\b", re.IGNORECASE)


def defaults(spec: EnvironmentSpec) -> tuple[DestructiveAction, ...]:
    """What is done to an environment whose author wrote nothing down: one thing of each kind that its agent can do."""
    trees = [r for r in spec.resources if r.kind in ("files", "repo") or isinstance(r.options.get("target"), str)]
    places = [str(r.options.get("target") or default_target(r.name)) for r in trees]
    files = [
        DestructiveAction(name=f"file-left-in{place}", argv=("/bin/sh", "-c", 'echo left > "$0/.autoclave-left"', place))
        for place in dict.fromkeys(places)
    ]
    tables = [
        DestructiveAction(
            name=f"table-left-in-{r.name}",
            resource=r.name,
            role="" if spec.isolation.shares else "postgres",
            sql=(f"create table {'' if spec.isolation.shares else 'public.'}left_behind ()",),
        )
        for r in spec.resources
        if r.kind == "postgres"
    ]
    for resource in (r for r in spec.resources if r.kind == "container"):
        for place in dict.fromkeys(("/tmp", *resource.options.get("volumes", ()))):
            argv = ("/bin/sh", "-c", 'echo left > "$0/.autoclave-left"', str(place))
            files.append(DestructiveAction(name=f"file-left-in{place}", argv=argv))
    process = DestructiveAction(
        name="background-process",
        argv=("/bin/sh", "-c", "(setsid sleep 300 >/dev/null 2>&1 &)"),
        blind="what an agent left running is ended before the state is read",
    )
    return (*files, *tables, process)


def within_reach(spec: EnvironmentSpec, actions: Sequence[DestructiveAction]) -> tuple[DestructiveAction, ...]:
    """Where namespaces share an instance, only what a holder can do is done, by the holder itself: what a stronger role breaks
    there is everybody's, and costs the instance."""
    if not spec.isolation.shares:
        return tuple(actions)
    agents = {str(r.options.get("role", "agent")) for r in spec.resources if r.kind == "postgres"}
    return tuple(dataclasses.replace(a, role="") for a in actions if a.role in ("", *agents))


async def act(instance: Instance, action: DestructiveAction) -> str | None:
    """Do it; return why it could not be done, None when it was. A refusal by the sandbox or the database is no fault."""
    if action.argv:
        try:
            result = await instance.run(action.argv, limit_s=LIMIT_S)
        except InstanceLost:  # it killed its own channel; whatever it left is what the check is about
            return None
        except LimitReached as error:
            return error.message.splitlines()[0][:120]
        if result.exit_code == 0:
            return None
        said = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()
        return f"exit {result.exit_code}{': ' + said[-1][:120] if said else ''}"
    if action.resource is None:
        return "it names no resource"
    if action.browser is not None:
        try:
            if action.browser.steps:
                return await _take(instance.endpoint(action.resource), action.browser.steps)
            await browser.act(instance.endpoint(action.resource), action.browser, limit_s=LIMIT_S)
        except (Refused, InstanceLost, RuntimeUnavailable) as error:
            return error.message.splitlines()[0][:120]
        return None
    try:
        changed = await _send(instance, action.resource, action)
    except psycopg.Error as error:
        return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
    return None if changed else "its statements changed no row"


async def _take(address: str, steps: Sequence[PageStep]) -> str | None:
    """Take the steps on the browser's page as a session's holder does."""
    limit = LIMIT_S * len(steps)
    try:
        async with open_pages() as pages, asyncio.timeout(limit):
            await pages.page("steps", address)
            for step in steps:
                try:
                    seen = await pages.act("steps", address, step.action)
                except InstanceLost:  # it ended its own browser, as a command may: whatever that left is what the check is about
                    return None
                if not (seen.ok or step.may_fail):
                    said = seen.text.partition("\n")[0]
                    return f"{step.action.line}: {said}"[:120]
    except TimeoutError:
        return f"its steps did not end within {limit:g} s"
    return None


async def _send(instance: Instance, resource: str, action: DestructiveAction) -> bool:
    """Send each statement on its own, as the agent or, through the superuser, as the role that the author named. Return False where
    all of them are about rows, and none changed one."""
    address = instance.subject().endpoint(resource) if action.role else instance.endpoint(resource)
    async with await psycopg.AsyncConnection.connect(address, autocommit=True, connect_timeout=10) as connection:
        await connection.execute("set statement_timeout = '30s'")
        if action.role and action.role != "postgres":
            await connection.execute(sql.SQL("set session authorization {}").format(sql.Identifier(action.role)))
        changed = False
        for statement in action.sql:
            done = await connection.execute(statement.encode())
            said = [done.statusmessage]
            while done.nextset():
                said.append(done.statusmessage)
            # Of rows that a part under WITH changed, the server says nothing.
            changed = changed or bool(_WITH.search(statement)) or not all(text in NO_ROW for text in said)
        return changed
