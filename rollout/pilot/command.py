"""`autoclave rollout pilot load | loop`: finds the stage that limits, and measures one change at a time."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from sandbox.cli import output
from sandbox.cli.options import Home, Json
from sandbox.cli.options import load as settings_of
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from rollout.setup import Options
    from sandbox.settings import Settings

app = App(name="pilot", help="Two-stage capacity pilot: load at a fixed policy, then the whole loop.")
COUNT = Number(gte=1)
Simulate = Literal["", "none", "generation", "environments", "judges", "storage", "optimisation"]


@app.command
def load(
    *,
    environment: Annotated[str, Parameter(help="The environment's name or path.")] = "shop",
    engine: Annotated[str, Parameter(help="scripted, http or vllm.")] = "scripted",
    model: Annotated[str, Parameter(help="A model's directory.")] = "",
    url: Annotated[str, Parameter(help="Where `vllm serve` listens.")] = "",
    rates: Annotated[tuple[float, ...], Parameter(help="Trajectories a second, rising.", negative="")] = (0.5, 1.0, 2.0, 4.0, 8.0),
    hold_s: Annotated[float, Parameter(validator=Number(gt=0), help="How long each rate is held.")] = 30.0,
    size: Annotated[int, Parameter(validator=COUNT, help="Namespaces.")] = 4,
    slots: Annotated[int, Parameter(validator=COUNT, help="Requests that the model serves at once.")] = 8,
    slow: Annotated[tuple[str, ...], Parameter(help="Slow a part on purpose: engine=S, database=S or judge=S.", negative="")] = (),
    simulate: Annotated[Simulate, Parameter(help="A simulator with this bottleneck in place of a pool.")] = "",
    home: Home = None,
    json: Json = False,
) -> int:
    """Offer trajectories at rising rates, at a fixed policy, until one line grows; name the stage to add capacity to.

    Exit code 1 when a stage was found.

    Example: autoclave rollout pilot load --environment shop --rates 0.5 --rates 1 --rates 2 --hold-s 20
    """
    from rollout.setup import Options

    if simulate:
        found = run_to_end(_simulated(simulate, rates, hold_s))
    else:
        options = Options(environment=environment, engine=engine, model=model, url=url, size=size, slots=slots, group_size=1)
        found = run_to_end(_real(options, settings_of(home), rates, hold_s, slow))
    if json:
        output.print_json(found)
    else:
        from rollout.pilot.shown import load_tables

        output.show(*load_tables(found))
    return 1 if found["bottleneck"] else 0


@app.command
def loop(
    *,
    environment: Annotated[str, Parameter(help="The environment's name or path.")] = "shop",
    engine: Annotated[str, Parameter(help="scripted, http or vllm.")] = "scripted",
    model: Annotated[str, Parameter(help="A model's directory.")] = "",
    url: Annotated[str, Parameter(help="Where `vllm serve` listens.")] = "",
    learner: Annotated[Literal["stepping", "grpo"], Parameter(help="What makes updates.")] = "stepping",
    trajectories: Annotated[int, Parameter(validator=COUNT, help="Of each run.")] = 32,
    size: Annotated[int, Parameter(validator=COUNT, help="Namespaces.")] = 2,
    slots: Annotated[int, Parameter(validator=COUNT, help="Requests that the model serves at once.")] = 4,
    change: Annotated[tuple[str, ...], Parameter(help="LIMIT=N: raised one after the other; may be repeated.", negative="")] = (),
    most_cost: Annotated[float, Parameter(help="Times the cost of an accepted trajectory that a change may take.")] = 1.1,
    most_failed: Annotated[float, Parameter(help="Share of trajectories that may fail.")] = 0.1,
    home: Home = None,
    json: Json = False,
) -> int:
    """Run the whole loop at a low load; then raise one limit at a time and keep what brings more accepted signals an hour.

    Every run measures the whole cycle again.

    Example: autoclave rollout pilot loop --environment shop --size 2 --change size=4 --change slots=8
    """
    from rollout.pilot.change import Bearable
    from rollout.setup import Options

    options = Options(
        environment=environment,
        engine=engine,
        model=model,
        url=url,
        learner=learner,
        trajectories=trajectories,
        size=size,
        slots=slots,
    )
    bearable = Bearable(cost=most_cost, failed=most_failed)
    found = run_to_end(_loop(options, settings_of(home), change, bearable))
    if json:
        output.print_json(found)
    else:
        from rollout.pilot.shown import loop_tables

        output.show(*loop_tables(found))
    return 0


async def _simulated(stage: str, rates: tuple[float, ...], hold_s: float) -> dict[str, Any]:
    from rollout.pilot.load import load as raise_load
    from rollout.pilot.simulator import Simulated, simulated

    async with simulated(Simulated(bottleneck="" if stage == "none" else stage)) as (on, clock):
        found = await raise_load(on, rates=rates, hold_s=hold_s, clock=clock)
    return {"simulated": stage, **found}


async def _real(
    options: Options, settings: Settings, rates: tuple[float, ...], hold_s: float, slow: tuple[str, ...]
) -> dict[str, Any]:
    from rollout.pilot.run import pilot_load
    from rollout.pilot.slowed import slow_of
    from sandbox.wiring import environment, open_pool

    added = slow_of(slow)
    progress = output.Progress()
    opened: Any = environment(options.environment, settings)
    progress.say(f"opening a pool of {options.size} namespaces of {opened.spec.name}")
    async with open_pool([opened], size=options.size, settings=settings) as pool:
        named = replace(options, environment=opened.spec.name)
        return await pilot_load(
            named, pool=pool, environment=opened, home=settings.home, rates=rates, hold_s=hold_s, slow=added, say=progress.say
        )


async def _loop(options: Options, settings: Settings, changes: tuple[str, ...], bearable: Any) -> dict[str, Any]:
    from rollout.pilot.run import apply, changes_of, pilot_loop
    from rollout.run import run
    from sandbox.clock import SystemClock
    from sandbox.wiring import environment, open_pool

    progress = output.Progress()
    wanted = changes_of(changes)

    async def once(limits: dict[str, int]) -> dict[str, Any]:
        opened: Any = environment(options.environment, settings)
        chosen = apply(replace(options, environment=opened.spec.name), limits)
        progress.say(f"the loop with {limits or 'the limits as given'}")
        async with open_pool([opened], size=chosen.size, settings=settings) as pool:
            return await run(chosen, pool=pool, environment=opened, home=settings.home, clock=SystemClock(), say=progress.say)

    found = await pilot_loop(once, options=options, changes=wanted, bearable=bearable)
    return {"bearable": asdict(bearable), **found}
