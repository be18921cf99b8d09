"""`autoclave env baseline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from envs.commands.options import FINDING, Instances, opened
from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from sandbox.model import Baseline
    from sandbox.pool.members import StartState
    from sandbox.ports import Environment
    from sandbox.settings import Settings


def baseline(
    environment: str,
    *,
    task: Annotated[str, Parameter(help="The baseline of this task's own start state.")] = "",
    rebuild: Annotated[bool, Parameter(negative="", help="Build golden from the seed again first.")] = False,
    discover: Annotated[
        bool, Parameter(negative="", help="Record nothing: print the probes and volatile fields that fresh instances call for.")
    ] = False,
    instances: Instances = 5,
    yes: Annotated[
        bool, Parameter(negative="", help="Accept what differs from the baseline before it, without being asked.")
    ] = False,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Build the environment if need be, and record what fresh instances read.

    Where a field differs from the baseline before it, the difference is shown and a yes is asked for: on the terminal, or --yes.
    Without it nothing is recorded (exit code 1), and the baseline before it stays, golden state included.

    Example: autoclave env baseline shop --rebuild
    """
    from envs import check as procedure
    from envs import views
    from sandbox.cli import asking
    from sandbox.errors import EnvironmentInvalid

    given = [option for option, holds in (("--task", task), ("--rebuild", rebuild), ("--yes", yes)) if holds]
    if discover and given:
        raise EnvironmentInvalid(
            f"{', '.join(given)} means nothing with --discover, which records nothing and looks at a golden state of its own",
            fix=f"leave out {', '.join(given)}",
        )
    settings = load(home, runtime)
    found = opened(environment, settings)
    if discover:
        return _discovered(found, instances, settings, json)

    async def accepted(new: Baseline) -> bool:
        if yes:
            return True
        output.tell(*views.baseline(found.spec.name, new))
        return asking.somebody_is_there() and await asking.agreed("Record it in the place of the one before it? [y/N]")

    async def record() -> StartState:
        from sandbox.wiring import machinery

        async with machinery(settings) as (runtime, ledger):
            await runtime.sweep()
            return await procedure.baseline(found, runtime, ledger, rebuild=rebuild, task=task or None, approve=accepted)

    output.Progress().say(f"baseline of {found.spec.name}")
    start = run(record())
    if json:
        output.print_json(
            {
                "environment": found.spec.name,
                "snapshot": {"id": start.snapshot.id, "digest": start.snapshot.digest},
                "baseline": {
                    "key": start.baseline.key,
                    "digest": start.baseline.digest,
                    "fields": start.baseline.fields,
                    "instances": start.baseline.instances,
                    "drift": start.baseline.drift,
                    **procedure.review(start.baseline),
                },
                "in_force": {name: start.baseline.parts.get(name) for name in ("runtime", "storage")},
            }
        )
    else:
        output.show(*views.baseline(found.spec.name, start.baseline))
    return 0


def _discovered(found: Environment, instances: int, settings: Settings, json: bool) -> int:
    from envs.discovery.procedure import Discovery
    from envs.discovery.procedure import discover as look
    from sandbox.wiring import machinery

    progress = output.Progress()

    async def observe() -> Discovery:
        async with machinery(settings) as (runtime, _):
            await runtime.sweep()
            return await look(found, runtime, instances=instances, say=progress.say)

    seen = run(observe())
    output.print_json(seen.as_json()) if json else output.show_text(seen.text.rstrip())
    return FINDING if seen.left else 0
