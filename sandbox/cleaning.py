"""Deletes what nothing needs any more, within one home: leftovers of killed managers, superseded snapshots, old evidence."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox import plugins
from sandbox.aio import in_thread
from sandbox.errors import AutoclaveError
from sandbox.model import Snapshot, SnapshotId
from sandbox.plugins import Group
from sandbox.pool.retention import of_a_session
from sandbox.ports import Ledger
from sandbox.runtimes.docker.labels import identity_in
from sandbox.runtimes.docker.leftovers import forget
from sandbox.settings import Settings, load
from sandbox.storage import HOME, delete_tree, open_storage
from sandbox.wiring import environment, machinery, runtime

# Where stores, uppers and sockets of homes lie that name no place of their own: see `sandbox.settings`.
DEFAULT_PLACES = (Path("/var/lib/autoclave"), Path("/dev/shm"), Path("/tmp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was deleted (or would be). `evidence` counts rows of the ledger; it is 0 in a dry run, which does not open them."""

    snapshots: tuple[SnapshotId, ...]
    leftovers: tuple[str, ...]
    evidence: int
    used_mb: int
    kept: tuple[str, ...]  # why snapshots of unknown environments were kept


async def clean(settings: Settings, *, evidence_older_than_s: float, keep_checks: int, dry_run: bool) -> Cleaned:
    """Clean one home. Raises PoolBroken when a manager holds it."""
    async with machinery(settings) as (runtime, ledger):
        known = await ledger.snapshots()
        stale, kept = await _superseded(settings, ledger, known)
        leftovers: tuple[str, ...] = ()
        evidence = 0
        if dry_run:
            leftovers = await runtime.sweep(dry_run=True)
        else:
            for snapshot in stale:
                await ledger.forget_snapshot(snapshot.id)
            remaining = [sealed for snapshot in known if snapshot not in stale for sealed in snapshot.dirs]
            swept = (*await runtime.sweep(), *await runtime.storage.sweep(remaining))
            leftovers = (*swept, *await runtime.sweep())  # what stood on snapshots that have gone now
            evidence = await ledger.prune(evidence_older_than_s=evidence_older_than_s, keep_checks=keep_checks)
        return Cleaned(
            snapshots=tuple(snapshot.id for snapshot in stale),
            leftovers=leftovers,
            evidence=evidence,
            used_mb=await runtime.storage.usage_bytes() // 1_000_000,
            kept=kept,
        )


async def _superseded(settings: Settings, ledger: Ledger, known: Sequence[Snapshot]) -> tuple[list[Snapshot], tuple[str, ...]]:
    """Return the snapshots whose environment has another digest now, or that a session saved and no namespace stands on.

    An environment that cannot be opened keeps its snapshots: gc never deletes for want of knowledge.
    """
    names = {n.environment: n.environment_name for n in await ledger.namespaces(retired=True)}
    in_use = {n.snapshot for n in await ledger.namespaces()}
    current: dict[str, str | None] = {}
    kept: list[str] = []
    for name in sorted(set(names.values()) | set(plugins.offered(Group.ENVIRONMENTS))):
        try:
            current[name] = environment(name, settings).spec.digest
        except AutoclaveError as error:
            current[name] = None
            kept.append(f"environment {name} cannot be opened ({error.message}): its snapshots stay")
    living = set(current.values())
    needed = {
        s.id
        for s in known
        if s.id in in_use or (s.environment in living and not of_a_session(s)) or current.get(names.get(s.environment, "")) is None
    }
    by_id = {s.id: s for s in known}
    for snapshot in [by_id[i] for i in needed]:
        parent = snapshot.parent
        while parent is not None and parent in by_id and parent not in needed:
            needed.add(parent)
            parent = by_id[parent].parent
    return [s for s in known if s.id not in needed], tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A directory of a home that is not there any more."""

    home: Path
    directory: Path


def orphans(places: Sequence[Path] = DEFAULT_PLACES) -> list[Orphan]:
    """Return the directories of ours, in the places that homes use by default, whose home is gone."""
    return [Orphan(home=home, directory=path) for path, home in _of_homes(places) if not os.path.lexists(home)]


async def remove_orphans(found: Sequence[Orphan]) -> tuple[list[Orphan], list[str]]:
    """End what still runs of these homes and delete the directories; return those that are gone, and why others are not."""
    gone: list[Orphan] = []
    kept: list[str] = []
    for home in dict.fromkeys(orphan.home for orphan in found):
        mine = [orphan for orphan in found if orphan.home == home]
        directories = {orphan.directory for orphan in mine}
        settings = load({}, home=home)
        try:
            if os.path.lexists(home):
                raise FileExistsError(f"{home} is there again")
            if settings.store in directories:
                await _end_what_runs(settings)
                directories |= {settings.scratch, settings.run}
            for directory in sorted(directories):
                if os.path.lexists(directory):
                    await in_thread(delete_tree, str(directory))
        except (AutoclaveError, OSError) as error:
            kept.append(f"{', '.join(str(orphan.directory) for orphan in mine)}: {error}")
        else:
            gone += mine
    return gone, kept


async def _end_what_runs(settings: Settings) -> None:
    """Kill by the home's own label, and remove subvolumes and the like as their own method removes them; what the home has on a
    Docker engine goes by its identity, of which the store holds a copy."""
    if identity := identity_in(settings.store):
        await forget(identity)
    store = await open_storage(settings)
    try:
        engine = runtime(settings, store)
        try:
            await engine.sweep()
        finally:
            await engine.close()
        await store.sweep([])
    finally:
        await store.close()


def _of_homes(places: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield every directory of this user in these places that says of which home it is. In a place that all may write to, names
    can be guessed: what is not ours is passed over."""
    for place in places:
        for path in sorted(place.iterdir()) if place.is_dir() else []:
            note = path / HOME
            try:
                mine = path.lstat().st_uid == os.geteuid() == note.lstat().st_uid
                if mine and stat.S_ISDIR(path.lstat().st_mode) and stat.S_ISREG(note.lstat().st_mode):
                    home = Path(note.read_text().rstrip("\n"))
                    if home.is_absolute() and path in (load({}, home=home).store, *_scratches(home)):
                        yield path, home
            except (OSError, ValueError):
                continue


def _scratches(home: Path) -> tuple[Path, ...]:
    settings = load({}, home=home)
    return settings.scratch, Path("/dev/shm") / settings.run.name
