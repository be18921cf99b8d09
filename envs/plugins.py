"""Finding what packages offer under our entry-point groups; nothing is imported until it is asked for."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sandbox.errors import EnvironmentInvalid

ENVIRONMENTS = "autoclave.environments"
RESOURCES = "autoclave.resources"
PROBES = "autoclave.probes"


@cache
def points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, each (name, value) once, sorted by name."""
    found = {(point.name, point.value): point for point in entry_points(group=group)}
    return tuple(found[key] for key in sorted(found))


def names(group: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(point.name for point in points(group)))


def origin(point: EntryPoint) -> str:
    """Say which package an entry point comes from, for messages."""
    return f"{point.dist.name} ({point.value})" if point.dist else point.value


def load(group: str, name: str) -> Any:
    """Import what is offered under that name; refuse a name that two packages offer, and one that fails to import."""
    found = [point for point in points(group) if point.name == name]
    if not found:
        raise EnvironmentInvalid(f"nothing is registered as {name!r} under {group} (known: {', '.join(names(group)) or 'none'})")
    if len(found) > 1:
        both = " and ".join(origin(point) for point in found)
        raise EnvironmentInvalid(f"{name!r} under {group} is offered twice: by {both}", fix="uninstall one of the two packages")
    try:
        return found[0].load()
    except Exception as error:  # a named boundary: a plug-in may fail in any way
        raise EnvironmentInvalid(
            f"the plug-in {name!r} of {origin(found[0])} does not import: {type(error).__name__}: {error}",
            fix="reinstall that package or remove it",
        ) from error
