"""`autoclave why | quarantine | recall`: what the ledger knows, beside a running pool or without one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from cyclopts import App

from sandbox.cli import output
from sandbox.cli.options import By, Home, Json, Reason, load
from sandbox.cli.running import run
from sandbox.errors import EnvironmentInvalid
from sandbox.model import ClearanceState, QuarantineId, TrajectoryId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandbox.ports import Ledger
    from sandbox.settings import Settings

quarantine = App(name="quarantine", help="Trajectories that lost clearance: look, release, discard.")


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Ledger]:
    """Open a home's ledger to look only, which works beside a running pool; EnvironmentInvalid where there is none."""
    from sandbox.clock import SystemClock
    from sandbox.ledger import open_ledger

    if not settings.ledger.exists():
        raise EnvironmentInvalid(
            f"there is no ledger in {settings.home} yet", fix="a pool makes one: autoclave demo, autoclave pool up"
        )
    async with open_ledger(settings.ledger, durability=settings.durability, clock=SystemClock(), read_only=True) as ledger:
        yield ledger


def why(trajectory: str, *, home: Home = None, json: Json = False) -> int:
    """Show why TRAJECTORY stands where it stands: start and end checks, window, lineage, siblings, batches, updates.

    Example: autoclave why t-6f2c1a90
    """

    async def ask() -> dict[str, Any]:
        async with reading(load(home)) as ledger:
            return dict(await ledger.why(TrajectoryId(trajectory)))

    found = run(ask())
    if json:
        output.print_json(found)
    else:
        from sandbox.report import terminal

        output.show(terminal.why(found))
    return 0


@quarantine.command(name="list")
def list_(*, home: Home = None, json: Json = False) -> int:
    """List quarantines, newest first.

    Example: autoclave quarantine list --json
    """

    async def ask() -> list[dict[str, Any]]:
        async with reading(load(home)) as ledger:
            return [dict(q) for q in await ledger.quarantines()]

    found = run(ask())
    if json:
        output.print_json({"quarantines": found})
    else:
        from sandbox.report import terminal

        output.show(terminal.quarantines(found))
    return 0


@quarantine.command
def show(quarantine_id: str, *, home: Home = None, json: Json = False) -> int:
    """Show one quarantine: its window, every field that differed, and the trajectories it took.

    Example: autoclave quarantine show q-1
    """

    async def ask() -> dict[str, Any]:
        async with reading(load(home)) as ledger:
            return dict(await ledger.quarantine(QuarantineId(quarantine_id)))

    found = run(ask())
    if json:
        output.print_json(found)
    else:
        from sandbox.report import terminal

        output.show(terminal.quarantine(found))
    return 0


@quarantine.command
def release(*trajectories: str, by: By, reason: Reason, home: Home = None, json: Json = False) -> int:
    """Let quarantined TRAJECTORIES be trained on, with a name and a reason.

    Example: autoclave quarantine release t-6f2c1a90 --by ada --reason "the differing field is a cache"
    """
    return _set_aside(trajectories, ClearanceState.RELEASED, by=by, reason=reason, home=home, json=json)


@quarantine.command
def discard(*trajectories: str, by: By, reason: Reason, home: Home = None, json: Json = False) -> int:
    """Give quarantined TRAJECTORIES up, with a name and a reason.

    Example: autoclave quarantine discard t-6f2c1a90 --by ada --reason "not worth a look"
    """
    return _set_aside(trajectories, ClearanceState.DISCARDED, by=by, reason=reason, home=home, json=json)


def recall(quarantine_id: str | None = None, *, home: Home = None, json: Json = False) -> int:
    """List what quarantined trajectories had already reached: batches, updates, checkpoints, group siblings.

    Exit code 1 when an update was reached.

    Example: autoclave recall q-1 --json
    """

    async def ask() -> Any:
        async with reading(load(home)) as ledger:
            return await ledger.recall(None if quarantine_id is None else QuarantineId(quarantine_id))

    found = run(ask())
    if json:
        output.print_json(found)
    else:
        from sandbox.report import terminal

        output.show(terminal.recall(found))
    return 1 if found.updates else 0


def _set_aside(trajectories: Sequence[str], state: ClearanceState, *, by: str, reason: str, home: Home, json: bool) -> int:
    if not trajectories:
        raise EnvironmentInvalid("no trajectory named", fix="autoclave quarantine list shows them")
    settings = load(home)
    ids = [TrajectoryId(t) for t in trajectories]

    async def act() -> Any:
        from sandbox.client import connect
        from sandbox.client.place import listens
        from sandbox.clock import SystemClock
        from sandbox.ledger import open_ledger

        if listens(settings):
            async with connect(settings) as pool:
                change = pool.release if state is ClearanceState.RELEASED else pool.discard
                return await change(ids, by=by, note=reason)
        async with open_ledger(settings.ledger, durability=settings.durability, clock=SystemClock()) as ledger:
            return await ledger.set_aside(ids, state, by=by, note=reason)

    changed = run(act())
    if json:
        output.print_json({"clearances": changed})
    else:
        for clearance in changed:
            output.Progress().say(f"{clearance.trajectory}: {clearance.state.value} by {by}: {reason}")
    return 0
