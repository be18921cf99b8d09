"""`autoclave pool up | status | roll | resume | drain`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sandbox.cli import output
from sandbox.cli.options import NOT_NEGATIVE, By, Home, Json, Reason, RuntimeName, Size, load
from sandbox.cli.running import INTERRUPTED, run
from sandbox.errors import AutoclaveError, EnvironmentInvalid
from sandbox.plugins import path_of

if TYPE_CHECKING:
    from sandbox.model import Baseline
    from sandbox.pool import Pool

app = App(name="pool", help="Keep a pool that other processes use.")


@app.command
def up(*environments: str, size: Size = 4, runtime: RuntimeName = None, home: Home = None, json: Json = False) -> int:
    """Keep a pool of ENVIRONMENTS in the foreground until it is drained, or interrupted.

    Every process of the same user reaches it with `Pool.connect()`. Ctrl-C drains it: the last trajectories are checked too.

    Example: autoclave pool up shop repo --size 8
    """
    from sandbox.clock import SystemClock
    from sandbox.service import Server
    from sandbox.wiring import environment, open_pool

    if not environments:
        raise EnvironmentInvalid("a pool of which environments?", fix="`autoclave env list` shows those there are")
    settings = load(home, runtime)
    progress = output.Progress()
    answered = False

    async def keep() -> None:
        nonlocal answered
        progress.say(f"preparing {', '.join(environments)}: golden snapshots and baselines are built at the first use")
        began = SystemClock().now()
        async with open_pool(environments, size=size, settings=settings) as pool:
            try:
                async with Server(pool, settings, find=lambda name: environment(name, settings)) as server:
                    review = await _new_baselines(pool, began)
                    for name, new in review.items():
                        progress.say(
                            f"the baseline of {name} is a new one ({', '.join(new.changed)} changed), in which {len(new.changes)}"
                            f" fields differ from the one before it: `autoclave env baseline {name}` shows them"
                        )
                    for one in (await pool.status())["environments"].values():
                        if one["halted"]:
                            progress.say(f"not leased: {one['halted']}")
                    up_now = {
                        "socket": str(server.path),
                        "environments": list(environments),
                        "size": size,
                        "baselines_to_review": {
                            name: {"former": new.former, "changed": new.changed, "changes": new.changes}
                            for name, new in review.items()
                        },
                    }
                    if json:
                        output.print_json(up_now)
                        answered = True
                    progress.say(f"the pool is up: {server.path} (Pool.connect(), `autoclave pool status`; Ctrl-C drains it)")
                    await server.ended.wait()
            except asyncio.CancelledError:
                progress.say("draining: the last namespaces are reset and checked")
                raise

    try:
        run(keep())
    except KeyboardInterrupt:  # what follows the one JSON object goes to stderr
        output.fail("interrupted; the pool is drained and closed", kind="Interrupted", as_json=json and not answered)
        return INTERRUPTED
    except AutoclaveError as error:
        if not (json and answered):
            raise
        output.fail(error.message, fix=error.fix, kind=type(error).__name__)
        return error.exit_code
    progress.say("the pool is drained and closed")
    return 0


async def _new_baselines(pool: Pool, began: datetime) -> dict[str, Baseline]:
    """Return the baselines that were recorded since then in the place of others."""
    found = {name: pool.environment(name).golden.baseline for name in (await pool.status())["environments"]}
    return {name: b for name, b in found.items() if b.former and b.recorded is not None and b.recorded >= began}


@app.command
def status(*, home: Home = None, json: Json = False) -> int:
    """Show what the running pool holds: namespaces by state, waiting requests, leases, checks, clearances.

    Example: autoclave pool status --json
    """
    from sandbox.client import connect

    async def ask() -> dict[str, object]:
        async with connect(load(home)) as pool:
            return dict(await pool.status())

    found = run(ask())
    if json:
        output.print_json(found)
    else:
        from sandbox.report import terminal

        output.show(terminal.pool_status(found))
    return 0


@app.command
def roll(environment: str, *, home: Home = None, json: Json = False) -> int:
    """Let the running pool give out ENVIRONMENT as it is now: a newer version under the same name.

    It is built and its baseline recorded while the former version serves. Leases keep the version that they took, and their
    trajectories are judged by that version's baseline; requests that wait get the new one.

    Example: autoclave pool roll shop
    """
    from sandbox.client import connect

    name = named(environment)

    async def ask() -> tuple[bool, Mapping[str, Any]]:
        async with connect(load(home)) as pool:
            rolled = await pool.roll(name)
            return rolled, (await pool.status())["environments"]

    with output.Progress().step(f"preparing {environment}"):
        rolled, stand = run(ask())
    if json:
        output.print_json({"rolled": rolled, "environments": stand})
    elif rolled:
        output.show("rolled: new leases get the new version; `autoclave pool status` shows who still holds a former one")
    else:
        output.show("this version is in service already")
    return 0


def named(environment: str) -> str:
    """Return a path as an absolute one: the process that keeps the pool works in another directory."""
    path = path_of(environment)
    return environment if path is None else str(path.absolute())


@app.command
def resume(environment: str, *, by: By, reason: Reason, home: Home = None, json: Json = False) -> int:
    """Give leases of ENVIRONMENT again after check.quarantine_limit stopped them; the counting starts anew.

    Example: autoclave pool resume shop --by jo --reason "the reset hook is mended"
    """
    from sandbox.client import connect

    async def ask() -> bool:
        async with connect(load(home)) as pool:
            return await pool.resume(environment, by=by, note=reason)

    stopped = run(ask())
    if json:
        output.print_json({"environment": environment, "resumed": stopped})
    else:
        output.show(f"{environment} is leased again" if stopped else f"{environment} was not stopped")
    return 0


@app.command
def drain(
    *,
    grace: Annotated[
        float, Parameter(validator=NOT_NEGATIVE, help="Seconds that running sessions get before they are ended.")
    ] = 30.0,
    home: Home = None,
    json: Json = False,
) -> int:
    """End the running pool: admit nobody, let sessions end, check the last trajectories, close.

    Example: autoclave pool drain --grace 60
    """
    from sandbox.client import connect

    async def ask() -> None:
        async with connect(load(home)) as pool:
            await pool.drain(grace_s=grace)

    with output.Progress().step("draining"):
        run(ask())
    if json:
        output.print_json({"drained": True})
    return 0
