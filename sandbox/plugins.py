"""What other packages offer under our entry-point groups. Nothing is imported before it is asked for by name."""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from sandbox.errors import EnvironmentInvalid


class Group(StrEnum):
    """Our groups. Each name in a group belongs to one package."""

    ENVIRONMENTS = "autoclave.environments"
    PROBES = "autoclave.probes"
    LEAKS = "autoclave.leaks"  # catalogues of planted leaks
    RUNTIMES = "autoclave.runtimes"
    RESOURCES = "autoclave.resources"
    COMMANDS = "autoclave.commands"
    REGISTRIES = "autoclave.registries"  # factories settings -> object with `open(name)`: environments kept elsewhere


def path_of(environment: str) -> Path | None:
    """Return the place of an environment that is asked for by a path, None where it is asked for by its name."""
    is_path = os.sep in environment or environment.startswith(".") or environment.endswith(".toml")
    return Path(environment) if is_path else None


def offered(group: Group) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of a group by name, sorted."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group.value):
        found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(found[name].values()) for name in sorted(found)}


def load(group: Group, name: str) -> Any:
    """Import what is offered under that name; raise EnvironmentInvalid when that is not one working thing."""
    points = offered(group)
    match points.get(name, ()):
        case ():
            raise EnvironmentInvalid(
                f"nothing is registered as {name!r} under {group.value}", fix=f"there are: {', '.join(points) or 'none'}"
            )
        case (point,):
            try:
                return point.load()
            except Exception as error:
                raise EnvironmentInvalid(
                    f"{name!r} of {_origin(point)} does not import: {type(error).__name__}: {error}",
                    fix="reinstall that package, or remove it",
                ) from error
        case several:
            raise EnvironmentInvalid(
                f"{name!r} under {group.value} is offered by {' and by '.join(_origin(p) for p in several)}",
                fix="uninstall one of them",
            )


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} ({point.value})" if point.dist else point.value
