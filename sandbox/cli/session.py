"""`autoclave session ENV -- CMD`: one command in a fresh session, from the shell."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from sandbox.cli import output
from sandbox.cli.options import NOT_NEGATIVE, POSITIVE, Home, Json, RuntimeName, load
from sandbox.cli.running import run
from sandbox.errors import EnvironmentInvalid


def session(
    environment: str,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    task: Annotated[str | None, Parameter(help="The task whose start state it gets.")] = None,
    score: Annotated[bool, Parameter(negative="", help="Run the task's own check after the command.")] = False,
    wait: Annotated[float, Parameter(validator=NOT_NEGATIVE, help="Seconds to wait for a namespace.")] = 300.0,
    limit: Annotated[float, Parameter(validator=POSITIVE, help="Seconds that the command may take.")] = 60.0,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Run a command in a session of ENVIRONMENT, then reset and check its namespace.

    Uses the running pool where there is one, else a pool of one namespace for this command alone. Stdin is passed on when it is not
    a terminal. The exit code is 0 when the command ran and the check came back clean, 1 when the check found something.

    Example: autoclave session shop -- psql -Atc "select count(*) from shop.orders"
    """
    if not command:
        raise EnvironmentInvalid("no command given", fix=f"autoclave session {environment} -- psql -Atc 'select 1'")
    if score and task is None:
        raise EnvironmentInvalid("--score needs --task", fix="autoclave env show NAME lists the tasks")
    stdin = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    settings = load(home, runtime)

    async def use(pool: Any) -> tuple[dict[str, Any], bytes, bytes]:
        async with pool.session(environment, task=task, wait=wait, ttl=limit + 120) as held:
            result = await held.run(list(command), stdin=stdin, limit_s=limit)
            reward = await held.score() if score else None
            in_force = dict(held.in_force)
        clearance = (await pool.cleared([held.trajectory_id], timeout=300))[held.trajectory_id]
        facts = {
            "environment": environment,
            "task": task,
            "trajectory": held.trajectory_id,
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
            "truncated": result.truncated,
            "timed_out": result.timed_out,
            "duration_s": round(result.duration_s, 4),
            "score": reward,
            "clearance": clearance,
            "in_force": in_force,
        }
        return facts, result.stdout, result.stderr

    async def with_a_pool() -> tuple[dict[str, Any], bytes, bytes]:
        from sandbox.client import connect
        from sandbox.client.place import listens
        from sandbox.wiring import Pool

        if listens(settings):
            async with connect(settings) as running:
                return await use(running)
        output.Progress().say(f"opening a pool of one namespace of {environment}")
        async with Pool.open([environment], size=1, settings=settings) as pool:
            return await use(pool)

    facts, stdout, stderr = run(with_a_pool())
    cleared = facts["clearance"].state.value == "cleared"
    if json:
        output.print_json(facts)
        return 0 if cleared else 1
    sys.stdout.buffer.write(stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(stderr)
    sys.stderr.flush()
    progress = output.Progress()
    if facts["score"] is not None:
        progress.say(f"score: {facts['score'].reward} {facts['score'].detail}")
    ended = "timed out" if facts["timed_out"] else f"exit code {facts['exit_code']}"
    progress.say(f"{ended} in {facts['duration_s']:g} s; trajectory {facts['trajectory']} is {facts['clearance'].state.value}")
    return 0 if cleared else 1
