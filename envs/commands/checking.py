"""`autoclave env check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from envs.commands.options import FINDING, opened
from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from envs.planting.kept import Kept
    from sandbox.ports import Environment

Method = Literal["hook", "clean", "restore", "rebuild"]


def check(
    environment: str,
    *,
    method: Annotated[Method | None, Parameter(help="Verify this reset method instead of the environment's own.")] = None,
    task: Annotated[str, Parameter(help="Start from this task's own state.")] = "",
    score: Annotated[bool, Parameter(negative="", help="Also plant each leak of the catalogue alone: seen, and undone?")] = False,
    sample: Annotated[int, Parameter(validator=Number(gte=0), help="Plant only so many, drawn by the seed; 0: all.")] = 0,
    seed: Annotated[int, Parameter(help="Which ones --sample draws.")] = 0,
    fail_under: Annotated[
        float | None, Parameter(help="With --score or --sample: exit code 1 where less than this percentage of the leaks was seen.")
    ] = None,
    html: Annotated[Path | None, Parameter(help="Also write what was found to this file, for people.")] = None,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Verify that the reset works: baseline, destructive trajectories, reset, compare field by field, repeat.

    Exit code 1 when a field differs, or when the probes did not see what was destroyed. Leaks that --score plants and the probes
    miss change it only with --fail-under.

    Example: autoclave env check shop --method hook
    Example: autoclave env check shop --score --fail-under 95
    """
    from envs import check as procedure
    from envs import page, views
    from envs.planting.kept import kept
    from sandbox.clock import SystemClock
    from sandbox.errors import EnvironmentInvalid

    settings = load(home, runtime)
    if html is not None and not html.absolute().parent.is_dir():
        raise EnvironmentInvalid(f"--html {html}: there is no directory {html.absolute().parent}", fix="make it first")
    scored = score or sample > 0
    if fail_under is not None:
        _require_percent(fail_under, scored=scored)
    found = _under(opened(environment, settings), method)
    progress = output.Progress()

    async def verify() -> tuple[procedure.CheckReport, Sequence[Kept]]:
        from sandbox.wiring import machinery

        async with machinery(settings) as (runtime, ledger):
            await runtime.sweep()
            report = await procedure.check(
                found, runtime, ledger, task=task or None, score=scored, sample=sample, seed=seed, say=progress.say
            )
            return report, await kept(found, ledger)

    report, scores = run(verify())
    if html is not None:
        page.write(report, scores, at=SystemClock().now(), path=html)
    output.print_json(report.as_json()) if json else output.show(*views.report(report))
    code = 0 if report.verdict.value == "clean" else FINDING
    planted = report.score
    if fail_under is None or planted is None or not planted.under(fail_under):
        return code
    output.tell(f"the probes saw {planted.caught} of {planted.planted} planted leaks: less than --fail-under {fail_under:g} %")
    return FINDING


def _require_percent(fail_under: float, *, scored: bool) -> None:
    from sandbox.errors import EnvironmentInvalid

    if not scored:
        raise EnvironmentInvalid("--fail-under means nothing without a score", fix="add --score, or --sample N")
    if not 0 <= fail_under <= 100:
        raise EnvironmentInvalid(f"--fail-under {fail_under:g} is no percentage", fix="give a number from 0 to 100")


def _under(environment: Environment, method: Method | None) -> Environment:
    from envs.environment import LoadedEnvironment
    from sandbox.errors import EnvironmentInvalid
    from sandbox.model import ResetMethod

    if method is None:
        return environment
    if isinstance(environment, LoadedEnvironment):
        return environment.with_reset(ResetMethod(method))
    raise EnvironmentInvalid(f"environment {environment.spec.name} was made by a plug-in; --method works for described ones only")
