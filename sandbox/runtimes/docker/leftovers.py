"""Finds and removes what managers of this home left on the engine. What carries another home's label, or none, is never touched."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandbox.errors import AutoclaveError
from sandbox.runtimes.docker import containers
from sandbox.runtimes.docker.address import from_environment
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import ENVIRONMENT, HOME, OWNER, PART, SNAPSHOT, TAG, saved_image

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing of ours on the engine. `kind`: container, network, volume, image."""

    kind: str
    id: str
    labels: Mapping[str, str]

    def __str__(self) -> str:
        what = " ".join(filter(None, (self.labels.get(ENVIRONMENT), self.labels.get(PART))))
        return f"{self.kind} {self.id.removeprefix('sha256:')[:24]}{f' ({what})' if what else ''}"


async def found(engine: Engine, keep: Collection[str] = ()) -> list[Leftover]:
    """List what is ours and has no tag or owner of `keep` or `engine.held`: containers first, for they hold the rest.
    Images that are saved states belong to their snapshots."""
    held = frozenset(keep) | engine.held
    everything = await engine.call(lambda client: list(_ours(client, engine.home)), doing="listing what is ours")
    return [item for item in everything if not held & {item.labels.get(TAG, ""), item.labels.get(OWNER, "")}]


async def sweep(engine: Engine, keep: Collection[str] = (), *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove all of that and say what was removed (with `dry_run`: what would be). What the engine will not remove is logged, and
    found again by the next sweep."""
    gone = []
    there = await found(engine, keep)
    if not dry_run:  # what is there is in the list, unless a living instance holds it, which is told below
        await tried_again(engine)
    for item in there:
        if dry_run or await _removed(engine, item):
            gone.append(str(item))
    return tuple(gone)


async def settle(engine: Engine) -> None:
    """Remove what could not be removed before, or may have come late: everything is tried, then the first error is raised."""
    errors: list[AutoclaveError] = []
    for container in tuple(engine.doubtful):
        try:
            await containers.remove(engine, container)
        except AutoclaveError as error:
            errors.append(error)
    try:
        await remove_volumes(engine, tuple(engine.doubtful_volumes))
    except AutoclaveError as error:
        errors.append(error)
    if errors:
        raise errors[0]


async def tried_again(engine: Engine) -> None:
    """The same for whoever has other work to do: what fails is logged, and tried again another time."""
    try:
        await settle(engine)
    except AutoclaveError as error:
        log.warning("something of ours is still on the engine", extra={"event": "docker.doubtful", "reason": str(error)})


async def remove_volumes(engine: Engine, names: Collection[str]) -> None:
    """Remove volumes; those that could not be stay in `engine.doubtful_volumes`. Idempotent."""
    engine.doubtful_volumes.update(names)
    for name in names:
        await engine.call(partial(_no_volume, name=name), doing=f"removing volume {name}")
        engine.doubtful_volumes.discard(name)


async def forget(home: str) -> tuple[str, ...]:
    """Remove everything of a home that is gone, saved states included; `home` is its identity."""
    engine = Engine(from_environment(), home=home)
    try:
        everything = await engine.call(lambda client: list(_ours(client, home, saved=True)), doing="listing what is a gone home's")
        return tuple([str(item) for item in everything if await _removed(engine, item)])
    finally:
        await engine.close()


async def _removed(engine: Engine, item: Leftover) -> bool:
    try:
        if item.kind == "container":
            await containers.remove(engine, item.id)
        else:
            await engine.call(lambda client: _REMOVE[item.kind](client, item.id), doing=f"removing {item}")
    except AutoclaveError as error:
        log.warning("a leftover could not be removed", extra={"kind": item.kind, "id": item.id, "reason": str(error)})
        return False
    return True


def _ours(client: Any, home: str, *, saved: bool = False) -> Iterator[Leftover]:
    wanted = {"label": [f"{HOME}={home}"]}
    for item in client.containers(all=True, filters=wanted):
        yield Leftover(kind="container", id=item["Id"], labels=item.get("Labels") or {})
    for item in client.networks(filters=wanted):
        yield Leftover(kind="network", id=item["Id"], labels=item.get("Labels") or {})
    for item in client.volumes(filters=wanted).get("Volumes") or ():
        yield Leftover(kind="volume", id=item["Name"], labels=item.get("Labels") or {})
    for item in client.images(filters=wanted):
        labels = item.get("Labels") or {}
        if labels.get(PART) != SNAPSHOT:
            yield Leftover(kind="image", id=item["Id"], labels=labels)
        elif saved:
            yield Leftover(kind="image", id=saved_image(item, labels.get(TAG, "")), labels=labels)


def _no_volume(client: Any, name: str) -> None:
    _REMOVE["volume"](client, name)


def _missing_is_fine(remove: Callable[[Any, str], Any]) -> Callable[[Any, str], None]:
    def work(client: Any, name: str) -> None:
        from docker import errors

        with contextlib.suppress(errors.NotFound):
            remove(client, name)

    return work


_REMOVE: Mapping[str, Callable[[Any, str], None]] = {
    "network": _missing_is_fine(lambda client, name: client.remove_network(name)),
    "volume": _missing_is_fine(lambda client, name: client.remove_volume(name, force=True)),
    "image": _missing_is_fine(lambda client, name: client.remove_image(name, force=True)),
}
