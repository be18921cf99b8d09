"""`autoclave env list | show | add | remove | new | check | baseline`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from envs.planting.kept import Kept
    from sandbox.model import Baseline
    from sandbox.pool.members import StartState
    from sandbox.ports import Environment
    from sandbox.settings import Settings

FINDING = 1
log = logging.getLogger(__name__)
Instances = Annotated[int, Parameter(validator=Number(gte=2), help="How many fresh instances to look at.")]
Method = Literal["hook", "clean", "restore", "rebuild"]
app = App(name="env", help="Environments: write one, register it, and verify that its reset works.")


@app.command(name="list")
def list_(*, home: Home = None, json: Json = False) -> int:
    """List the environments: ours, other packages', and those that `env add` registered.

    Example: autoclave env list
    """
    from envs import views
    from envs.registry import Broken, Registry

    rows: list[dict[str, Any]] = []
    settings = load(home)
    registry = Registry(settings)
    for entry in registry.survey():
        if isinstance(entry, Broken):
            rows.append({"name": entry.name, "origin": entry.origin, "error": str(entry.error)})
            continue
        environment = registry.open(entry.name)
        spec = environment.spec
        rows.append(
            {
                "name": spec.name,
                "version": spec.version,
                "digest": spec.digest,
                "resources": [r.kind for r in spec.resources],
                "tasks": len(environment.tasks),
                "reset": spec.reset.method.value,
                "origin": entry.origin,
                "error": None,
                "score": next((score.as_json() for score in _scores(settings, environment)), None),
            }
        )
    if json:
        output.print_json({"environments": rows})
    else:
        output.show(*views.environments(rows))
    return 0


@app.command
def show(
    environment: str = "",
    *,
    task: Annotated[str, Parameter(help="Show one of its tasks.")] = "",
    schema: Annotated[bool, Parameter(negative="", help="Print the JSON Schema of environment.toml, for editors.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Show what an environment is made of, and its tasks.

    Example: autoclave env show shop
    """
    from envs import views
    from envs.spec import json_schema
    from sandbox.errors import EnvironmentInvalid

    if schema:
        output.print_json(json_schema())
        return 0
    if not environment:
        raise EnvironmentInvalid("which environment?", fix="autoclave env show NAME, or --schema")
    settings = load(home)
    found = _open(environment, settings)
    if task:
        if task not in found.tasks:
            raise EnvironmentInvalid(f"environment {environment} has no task {task!r}", fix=f"autoclave env show {environment}")
        output.print_json(found.tasks[task]) if json else output.show(*views.task(found.tasks[task]))
        return 0
    tasks = list(found.tasks.values())
    scores = [score.as_json() for score in _scores(settings, found)]
    described = {
        "environment": found.spec.name,
        "spec": found.spec,
        "tasks": {
            "count": len(tasks),
            "families": dict(Counter(t.family for t in tasks)),
            "difficulties": dict(Counter(t.difficulty for t in tasks)),
            "splits": dict(Counter(t.split for t in tasks)),
            "ids": [t.id for t in tasks],
        },
        "scores": scores,
    }
    output.print_json(described) if json else output.show(*views.environment(found.spec, tasks, scores))
    return 0


@app.command
def add(directory: Path, *, home: Home = None, json: Json = False) -> int:
    """Register the environment in DIRECTORY under its name. Its files stay where they are.

    Example: autoclave env add ./my-env
    """
    from envs.registry import Registry

    environment, link = Registry(load(home)).add(directory)
    if json:
        output.print_json({"environment": environment.spec.name, "digest": environment.spec.digest, "registered": link})
    else:
        output.show(f"{environment.spec.name} is registered. Next: autoclave env check {environment.spec.name}")
    return 0


@app.command
def remove(name: str, *, home: Home = None, json: Json = False) -> int:
    """Take the directory that `env add` registered as NAME out of the registry. Its files stay, and so do snapshots until `gc`.

    Example: autoclave env remove helpdesk
    """
    from envs.registry import Registry

    place = Registry(load(home)).remove(name)
    if json:
        output.print_json({"removed": name, "directory": place})
    else:
        output.show(f"{name} is not registered any more; its files stay in {place}")
    return 0


@app.command
def new(
    name: str,
    *,
    kind: Annotated[Literal["files", "repo", "postgres"], Parameter(help="The kind of its first resource.")] = "files",
    into: Annotated[Path | None, Parameter(help="The directory to make (default: ./NAME).")] = None,
    from_: Annotated[str, Parameter(name="--from", help="Draft it from a directory, postgresql://..., or an image.")] = "",
    instances: Instances = 5,
    home: Home = None,
    json: Json = False,
) -> int:
    """Write a small environment that works, with comments on every part; or draft one from what is there already.

    With --from, fresh instances are started and read, and the probes and volatile fields that they call for are written down, each
    with its reason. Nothing of the original is changed.

    Example: autoclave env new helpdesk --kind postgres
    Example: autoclave env new tickets --from postgresql://localhost/tickets
    """
    from envs import skeleton

    if from_:
        return _drafted(name, from_, into or Path(name), instances, home, json)
    written = skeleton.write(name, kind=kind, directory=into or Path(name))
    if json:
        output.print_json({"environment": name, "directory": written[0].parent, "files": written})
    else:
        target = written[0].parent
        output.show(*(str(path) for path in written), f"Next: autoclave env check {target}{'' if '/' in str(target) else '/'}")
    return 0


@app.command
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
    found = _under(_open(environment, settings), method)
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


@app.command
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
    found = _open(environment, settings)
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


def _drafted(name: str, given: str, into: Path, instances: int, home: Path | None, json: bool) -> int:
    from envs import skeleton
    from envs.discovery.procedure import begin

    skeleton.refuse_name(name)
    settings = load(home)
    found = begin(given, name, into, settings=settings, instances=instances, say=output.Progress().say)
    files, seen = run(found)
    if json:
        output.print_json({"environment": name, "directory": into, "files": files, "discovery": seen.as_json()})
    else:
        under = "" if seen.runtime == settings.runtime else f" --runtime {seen.runtime}"
        output.show_text("\n".join(str(path) for path in files[:10]))
        output.show_text(f"Next: read {files[0]}, then autoclave env check {into} --score{under}")
    return FINDING if seen.left else 0


def _scores(settings: Settings, environment: Environment) -> Sequence[Kept]:
    """What the ledger keeps; nothing where there is none yet, or where it cannot be read as it is: that stops no command here."""
    from envs.planting.kept import kept
    from sandbox.clock import SystemClock
    from sandbox.errors import AutoclaveError
    from sandbox.ledger import open_ledger

    async def ask() -> Sequence[Kept]:
        opened = open_ledger(settings.ledger, durability=settings.durability, clock=SystemClock(), read_only=True)
        async with opened as ledger:
            return await kept(environment, ledger)

    if not settings.ledger.exists():
        return ()
    try:
        return run(ask())
    except AutoclaveError:
        log.warning("probe scores cannot be read", exc_info=True, extra={"event": "env.scores", "ledger": str(settings.ledger)})
        return ()


def _open(name: str, settings: Settings) -> Environment:
    from envs.registry import Registry

    return Registry(settings).open(name)


def _under(environment: Environment, method: Method | None) -> Environment:
    from envs.environment import LoadedEnvironment
    from sandbox.errors import EnvironmentInvalid
    from sandbox.model import ResetMethod

    if method is None:
        return environment
    if isinstance(environment, LoadedEnvironment):
        return environment.with_reset(ResetMethod(method))
    raise EnvironmentInvalid(f"environment {environment.spec.name} was made by a plug-in; --method works for described ones only")
