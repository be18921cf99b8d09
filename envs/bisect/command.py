"""`autoclave bisect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandbox.cli import output
from sandbox.cli.options import NOT_NEGATIVE, Home, Json, RuntimeName, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from envs.bisect.report import BisectReport

FINDING = 1


def bisect(
    mismatch: str,
    *,
    field: Annotated[tuple[str, ...], Parameter(help="Look for PROBE/FIELD (* is any text) instead of what differed.")] = (),
    environment: Annotated[str, Parameter(help="The environment's name or path, where it is not registered as recorded.")] = "",
    shorten: Annotated[int, Parameter(validator=NOT_NEGATIVE, help="Replays to spend on leaving out what is not needed.")] = 60,
    write: Annotated[Path | None, Parameter(help="Add the reproduction to this environment.toml (or new file).")] = None,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Find what left MISMATCH: a quarantine, a failed check, or a quarantined trajectory.

    Does again in fresh namespaces, with the same resets and a deep check, what the suspects did; names the first trajectory and the
    first action after which the reset does not hold; makes the shortest reproduction an action of environment.toml, and tries that
    alone. Exit code 0 when everything was done again and the reset held, 1 otherwise.

    Example: autoclave bisect quarantine-1 --write ./my-env/environment.toml
    """
    from envs.bisect import reproduction, shown
    from envs.bisect.history import history, need
    from envs.bisect.procedure import bisect as search
    from envs.bisect.procedure import require_same
    from envs.environment import LoadedEnvironment
    from envs.registry import Registry
    from sandbox.cli.records import reading
    from sandbox.errors import EnvironmentInvalid

    settings = load(home, runtime)
    if write is not None:
        reproduction.require_place(write)
    progress = output.Progress()

    async def find() -> BisectReport:
        from sandbox.wiring import machinery

        async with reading(settings) as ledger:
            past = await history(mismatch, ledger, settings)
        need(past)
        try:
            found = Registry(settings).open(environment or past.environment)
        except EnvironmentInvalid as error:
            if environment:
                raise
            fix = "name it, or its directory, with --environment"
            raise EnvironmentInvalid(f"the environment of {past.quarantine}: {error.message}", fix=fix) from error
        require_same(past, found)
        if past.method is not None and past.method is not found.spec.reset.method and isinstance(found, LoadedEnvironment):
            found = found.with_reset(past.method)  # the pool had it so
        async with machinery(replace(settings, runtime=runtime or past.runtime)) as (engine, ledger):
            await engine.sweep()
            return await search(past, found, engine, ledger, patterns=field, shortening=shorten, write=write, say=progress.say)

    report = run(find())
    output.print_json(report.as_json()) if json else output.show(*shown.report(report))
    return 0 if report.verdict.value == "clean" else FINDING
