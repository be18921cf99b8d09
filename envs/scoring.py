"""Runs a task's success check from outside the agent's reach. What the machine could not do is reward None, never 0."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as pg

from envs import browser
from envs.success import CHECKS_MOUNT, BrowserCheck, CommandCheck, SqlCheck, SqlQuery, parse, parts
from sandbox.aio import in_thread
from sandbox.errors import AutoclaveError
from sandbox.model import ExecResult, Score, TaskSpec
from sandbox.ports import Mount, SharedSubject, Subject
from sandbox.resources.postgres.schemas import search_path

log = logging.getLogger(__name__)

_CANNOT_RUN = 126  # the shell's codes from here on: not executable, not found, ended by a signal
_DETAIL = 2000
# What the agent can bring about in its own database: a table gone, a column renamed, a lock left by a prepared transaction, a
# value that no longer converts. A check that meets these has an answer, and the answer is no.
_AGENT_MADE = (pg.ProgrammingError, pg.DataError, pg.IntegrityError, pg.LockNotAvailable, pg.ObjectNotInPrerequisiteState)
_DATABASE_GONE = re.compile(r'database ".*" (does not exist|is not currently accepting connections)')


async def score(subject: Subject, task: TaskSpec) -> Score:
    """Judge the state as the agent left it."""
    check = parse(task.success)
    try:
        found = [await _part(subject, part) for part in parts(check)]
    except (AutoclaveError, psycopg.Error, OSError, TimeoutError) as error:
        log.warning("a success check could not run", extra={"task": task.id, "namespace": subject.namespace, "error": str(error)})
        return Score(reward=None, success=False, detail=f"the check could not run: {type(error).__name__}: {error}"[:_DETAIL])
    # What could not be judged decides nothing, unless another part has said no already.
    return min(found, key=lambda s: (s.success, s.reward is None)) if len(found) > 1 else found[0]


async def _part(subject: Subject, check: SqlCheck | CommandCheck | BrowserCheck) -> Score:
    if isinstance(check, SqlCheck):
        return await _sql(subject, check)
    if isinstance(check, CommandCheck):
        return await _command(subject, check)
    own = subject.sharing.own if isinstance(subject, SharedSubject) else None
    async with asyncio.timeout(check.limit_s):
        state = await browser.read(subject.endpoint(check.resource), check.origin, part=None if own is None else own.name)
        failures = browser.failures(check, state)
    return _judged(failures, len(check.claims))


def _judged(failures: list[str], total: int) -> Score:
    if failures:
        return Score(reward=0.0, success=False, detail=f"{len(failures)} of {total} do not hold: {'; '.join(failures)}"[:_DETAIL])
    return Score(reward=1.0, success=True, detail=f"all {total} hold")


async def _sql(subject: Subject, check: SqlCheck) -> Score:
    queries = check.normalized()
    failures: list[str] = []
    try:
        opened = await _connect(subject.endpoint(check.resource), check, search_path(check.search_path, subject))
    except psycopg.OperationalError as error:
        if _DATABASE_GONE.search(str(error)):
            return Score(reward=0.0, success=False, detail=str(error)[:_DETAIL])
        raise
    async with opened as connection:
        for number, query in enumerate(queries, start=1):
            label = query.name or f"query {number}"
            try:
                async with connection.transaction(force_rollback=True):
                    cursor = await connection.execute(query.query.encode(), prepare=True)  # the server refuses a second statement
                    rows = await cursor.fetchall() if cursor.description else []
            except _AGENT_MADE as error:
                failures.append(f"{label}: {str(error).splitlines()[0]}")
                continue
            if fault := _rows_fault(rows, query):
                failures.append(f"{label}: {fault}")
    return _judged(failures, len(queries))


async def _connect(conninfo: str, check: SqlCheck, path: str) -> psycopg.AsyncConnection[tuple[Any, ...]]:
    """Connect read-only with pinned settings, which win over what the agent may have set for roles and databases."""
    pinned = {
        "default_transaction_read_only": "on",
        "search_path": path.replace(" ", ""),
        "statement_timeout": str(int(check.limit_s * 1000)),
        "lock_timeout": "3000",
        "datestyle": "ISO,YMD",
        "timezone": "UTC",
        "row_security": "off",
        # An agent that owns a table can put a view in its place, whose function would then run as superuser.
        "restrict_nonsystem_relation_kind": "view,foreign-table",
        "event_triggers": "off",
    }
    for without in ((), ("event_triggers",), ("event_triggers", "restrict_nonsystem_relation_kind")):
        options = " ".join(f"-c {name}={value}" for name, value in pinned.items() if name not in without)
        try:
            return await psycopg.AsyncConnection.connect(conninfo, options=options, autocommit=True, connect_timeout=10)
        except psycopg.OperationalError as error:  # servers before 17 know neither
            if "unrecognized configuration parameter" not in str(error):
                raise
    raise AssertionError("the last attempt returns or raises")


def _rows_fault(rows: list[tuple[Any, ...]], query: SqlQuery) -> str | None:
    if query.expect is None:
        return (
            None
            if len(rows) == 1 and len(rows[0]) == 1 and rows[0][0] is True
            else f"expected one row with true, found {_shown(rows)}"
        )
    found = [[_text(value) for value in row] for row in rows]
    return None if found == query.expect else f"expected {query.expect}, found {_shown(rows)}"


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return "no rows"
    more = f" and {len(rows) - 3} more rows" if len(rows) > 3 else ""
    return "; ".join(", ".join(str(_text(v)) for v in row) for row in rows[:3]) + more


async def _command(subject: Subject, check: CommandCheck) -> Score:
    if not check.checks:
        return _exit_score(await subject.trusted_run(check.argv, env=check.env, limit_s=check.limit_s))
    staged = _staged([Path(text) for text in check.checks])
    directory = await in_thread(staged.__enter__)
    try:
        binds = (Mount(target=CHECKS_MOUNT, layers=(str(directory),), readonly=True),)
        return _exit_score(await subject.trusted_run(check.argv, env=check.env, binds=binds, limit_s=check.limit_s))
    finally:
        await in_thread(staged.__exit__, None, None, None)


@contextmanager
def _staged(sources: Sequence[Path]) -> Iterator[Path]:
    """Copy the check's files where an unprivileged user can read them: a package may lie below /root."""
    top = Path(tempfile.mkdtemp(prefix="autoclave-checks-"))
    try:
        for source in sources:
            shutil.copytree(source, top / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (top, *top.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield top
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _exit_score(result: ExecResult) -> Score:
    said = (result.stdout + result.stderr).decode("utf-8", "replace").strip()[-_DETAIL:]
    if result.timed_out or not 0 <= result.exit_code < _CANNOT_RUN:
        why = "ran past its limit" if result.timed_out else f"ended with {result.exit_code}"
        return Score(reward=None, success=False, detail=f"the check {why}: {said}"[:_DETAIL])
    passed = result.exit_code == 0
    return Score(reward=1.0 if passed else 0.0, success=passed, detail=said)
