"""`autoclave env list | show | add | remove`: what is registered, and what it is made of."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from envs.commands.options import opened
from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run

if TYPE_CHECKING:
    from envs.planting.kept import Kept
    from sandbox.ports import Environment
    from sandbox.settings import Settings

log = logging.getLogger(__name__)


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
    found = opened(environment, settings)
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


def _scores(settings: Settings, environment: Environment) -> Sequence[Kept]:
    """What the ledger keeps; nothing where there is none yet, or where it cannot be read as it is: that stops no command here."""
    from envs.planting.kept import kept
    from sandbox.clock import SystemClock
    from sandbox.errors import AutoclaveError
    from sandbox.ledger import open_ledger

    async def ask() -> Sequence[Kept]:
        ledger_of = open_ledger(settings.ledger, durability=settings.durability, clock=SystemClock(), read_only=True)
        async with ledger_of as ledger:
            return await kept(environment, ledger)

    if not settings.ledger.exists():
        return ()
    try:
        return run(ask())
    except AutoclaveError:
        log.warning("probe scores cannot be read", exc_info=True, extra={"event": "env.scores", "ledger": str(settings.ledger)})
        return ()
