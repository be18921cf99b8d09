"""`autoclave demo`: plays the story and shows what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, Size, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from sandbox.settings import Settings


def demo(
    *,
    size: Size = 2,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Show the main job on this machine, with the shipped environments `shop` and `repo`.

    Scripted agents work on real tasks and leave things behind, as agents do. First with the reset that most authors write by hand:
    the checks find what it misses, the trajectories are quarantined, the namespaces rebuilt. Then with `restore`: the same agents,
    nothing found. Its ledger and report lie in a home of its own below yours, so that your records stay yours.

    Exit code 1 when a leak was missed or a clean reset raised an alarm.

    Example: autoclave demo --json
    """
    own = load(home).home / "demo"
    result = run(_play(load(own, runtime), size))
    if json:
        output.print_json(result)
    else:
        from sandbox.report import terminal

        output.show(terminal.demo(result))
    good = result["leaks_caught"] == result["leaks_planted"] and result["false_alarms"] == 0
    return 0 if good else 1


async def _play(settings: Settings, size: int) -> dict[str, Any]:
    from envs.demo.outcome import tell
    from envs.demo.story import ENVIRONMENTS, TITLES, Played, play
    from sandbox.clock import SystemClock
    from sandbox.wiring import environment, open_pool

    progress = output.Progress()
    opened: list[Any] = [environment(name, settings) for name in ENVIRONMENTS]
    played = Played(environments=opened, started=SystemClock().now())
    progress.say("building golden snapshots and baselines of shop and repo (kept for the next time)")
    for number, (method, depth, title) in enumerate(TITLES, start=1):
        kept = [e.with_reset(method) for e in opened]
        async with open_pool(kept, size=size, settings=settings) as pool:
            progress.say(f"act {number}: {title}")
            for each in kept:
                act = await play(pool, each, depth=depth)
                played.acts.append(act)
                progress.say(f"  {act.environment}: {len(act.told)} sessions, {act.alarms} quarantined")
            played.status = await pool.status()
            played.seals = await pool.verify_seals()
    return await tell(played, settings)
