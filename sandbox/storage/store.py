"""The storage of one store directory: names, owners, seals, budget and clean-up around one way of cloning.

A sealed directory keeps its owner and modes (a database refuses a data directory that is not its own), so only its mount keeps a
sandbox from writing to it: it is bound read-only, is an overlay's lower layer, or is copied. Its digest says whether that held.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import LimitReached, SnapshotMissing
from sandbox.model import Role, SealedDir
from sandbox.ports import Clone
from sandbox.storage.background import Deletions
from sandbox.storage.clone import StoredClone
from sandbox.storage.digest import TreeDigest, digest_tree
from sandbox.storage.method import Layout, Method
from sandbox.storage.places import CLONES, TRASH, Places, directories, disk_errors
from sandbox.storage.records import Record, Records

logger = logging.getLogger(__name__)
MIB = 1 << 20
DELETIONS_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """Whether one way of cloning works in this store, and why not."""

    name: str
    works: bool
    why: str
    chosen: bool = False


class Store:
    """Implements `Storage`. Made by `open_storage`."""

    def __init__(self, places: Places, methods: Mapping[str, Method], reports: Sequence[MethodReport]) -> None:
        self._places = places
        self._methods = methods
        self._method = methods[next(r.name for r in reports if r.chosen)]
        self._reports = tuple(reports)
        # What a killed manager had thrown away but not yet deleted.
        self._old_trash = {d for top in places.tops for d in directories(top / TRASH)}
        self._records = Records(places.snapshots)
        self._deletions = Deletions()
        self._live: set[StoredClone] = set()
        self._being_made: set[Path] = set()
        self._sealing: dict[Path, int] = {}
        self._budget = places.settings.disk_budget_mb * MIB
        self._closed = False

    @property
    def name(self) -> str:
        return self._method.name

    @property
    def in_force(self) -> Mapping[str, Any]:
        settings = self._places.settings
        why_not = {r.name: r.why for r in self._reports if not r.works}
        return {"storage": self.name, "store": str(settings.store), "scratch": str(settings.scratch), "not_chosen": why_not}

    @property
    def reports(self) -> tuple[MethodReport, ...]:
        """What was tested when the storage was chosen."""
        return self._reports

    async def blank(self, name: str, role: Role) -> Clone:
        return await self._make(SealedDir(name=name, layers=(), digest="", role=role))

    async def clone(self, sealed: SealedDir) -> Clone:
        self._known(sealed)
        return await self._make(sealed)

    async def seal(self, clone: Clone) -> SealedDir:
        """Also raises LimitReached (budget or disk), and EnvironmentInvalid where the state cannot be read; the clone survives a
        budget refusal, any other failure consumes it."""
        if not isinstance(clone, StoredClone) or clone not in self._live:
            raise SnapshotMissing("only a live clone of this storage can be sealed", fix="Make the clone with this storage")
        layout = clone.layout
        needs = await in_thread(self._needs, clone, layout)
        holder = self._places.name_for(self._places.snapshots, clone.origin.name)
        self._within_budget(needs)
        clone.consumed()
        self._sealing[holder] = needs
        try:
            record = await in_thread(self._seal, clone, layout, holder)
        except BaseException as error:
            self._records.forget([holder.name])
            await undo(error, self._throw_away(holder))
            raise
        finally:
            del self._sealing[holder]
            self._live.discard(clone)
            await run_shielded(self._throw_away(layout.holder))
        return record.sealed

    async def verify(self, sealed: SealedDir) -> bool:
        """Also False when a layer is gone."""
        record = self._records.find(sealed)
        if record is None:
            raise SnapshotMissing(
                f"{sealed.name!r} is not in the store {self._places.snapshots}", fix="Build its environment again"
            )
        return await in_thread(self._verify, self._methods[record.storage], sealed)

    async def remove(self, sealed: SealedDir) -> None:
        """Where other sealed directories or live clones lie on it, its layer goes with the last of them."""
        record = self._records.find(sealed)
        if record is None:
            return
        await in_thread(self._records.save, replace(record, removed=True))
        await run_shielded(self._collect())

    async def sweep(self, keep: Collection[SealedDir]) -> tuple[str, ...]:
        """Clones that this object handed out and still holds are left alone, and so is what it is sealing right now. The caller
        keeps sealing and sweeping apart until the sealed directory is in the ledger."""
        ids = {self._records.id_of(sealed) for sealed in keep}
        return await run_shielded(in_thread(self._sweep, ids))

    async def usage_bytes(self) -> int:
        """Return what the sealed directories take, as recorded when they were sealed; ask a clone for its own."""
        return self._records.own_bytes()

    async def close(self) -> None:
        """Destroy the clones that are left and finish background deletions, at most for half a minute; a sweep does the rest."""
        if self._closed:
            return
        self._closed = True
        await run_shielded(self._close())

    async def _close(self) -> None:
        for clone in tuple(self._live):
            await clone.destroy()
        await self._deletions.close(DELETIONS_LIMIT_S)

    async def _make(self, origin: SealedDir) -> StoredClone:
        if self._closed:
            raise SnapshotMissing("this storage is closed", fix="Open it again")
        await self._deletions.room(DELETIONS_LIMIT_S)
        parent = self._places.clones(scratch=self._method.clones_in_scratch and bool(origin.layers))
        holder = self._places.name_for(parent, origin.name)
        self._being_made.add(holder)
        try:
            layout = await in_thread(self._lay_out, origin, holder)
        except BaseException as error:
            await undo(error, self._throw_away(holder))
            raise
        finally:
            self._being_made.discard(holder)
        clone = StoredClone(origin=origin, layout=layout, method=self._method, destroy=self._destroy)
        self._live.add(clone)
        return clone

    def _lay_out(self, origin: SealedDir, holder: Path) -> Layout:
        with disk_errors(holder.parent, f"cloning {origin.name!r}"):
            self._places.make_holder(holder, origin.role)
            if not origin.layers:
                return self._method.blank(holder, self._places.owner(origin.role))
            try:
                return self._method.clone(origin.layers, holder)
            except FileNotFoundError as error:
                raise SnapshotMissing(
                    f"{origin.name!r} is not whole: {error.filename} is gone", fix="Build its environment again"
                ) from error

    def _seal(self, clone: StoredClone, layout: Layout, holder: Path) -> Record:
        name, role = clone.origin.name, clone.role
        with disk_errors(holder.parent, f"sealing {name!r}"):
            self._places.make_holder(holder, role)
            layers = self._method.seal(layout, holder)
            whole = digest_tree(self._method.sealed_tree(layers))
            holder.chmod(0o500)
            sealed = SealedDir(name=name, layers=layers, digest=whole.digest, role=role, bytes=whole.bytes, files=whole.files)
            own = self._own_bytes(layers, whole)
            record = Record(id=holder.name, sealed=sealed, storage=self.name, own_bytes=own)
            self._records.save(record)
        return record

    def _verify(self, method: Method, sealed: SealedDir) -> bool:
        with disk_errors(self._places.snapshots, f"verifying {sealed.name!r}"):
            try:
                return digest_tree(method.sealed_tree(sealed.layers)).digest == sealed.digest
            except FileNotFoundError:
                return False

    def _needs(self, clone: StoredClone, layout: Layout) -> int:
        with disk_errors(layout.holder.parent, f"measuring {clone.origin.name!r}"):
            return self._method.seal_needs(layout)

    def _own_bytes(self, layers: tuple[str, ...], whole: TreeDigest) -> int:
        alone = Layout(holder=Path(layers[0]).parent, layers=layers[:1])
        return whole.allocated if len(layers) == 1 and self.name in ("copy", "overlay") else self._method.beyond(alone)

    def _within_budget(self, needs: int) -> None:
        held = self._records.own_bytes() + sum(self._sealing.values())
        if held + needs > self._budget:
            raise LimitReached(
                f"sealing {needs / MIB:.1f} MiB more would pass the disk budget of {self._budget // MIB} MiB "
                f"({held / MIB:.1f} MiB are sealed in {self._places.snapshots})",
                fix="Remove snapshots (`autoclave gc`) or raise AUTOCLAVE_DISK_BUDGET_MB",
            )

    def _known(self, sealed: SealedDir) -> None:
        record = self._records.find(sealed)
        if record is None or record.removed:
            raise SnapshotMissing(
                f"{sealed.name!r} is not in the store {self._places.snapshots}", fix="Build its environment again"
            )
        if record.storage != self.name:
            raise SnapshotMissing(
                f"{sealed.name!r} was sealed by the storage {record.storage!r}, but {self.name!r} is in force",
                fix=f"Set AUTOCLAVE_STORAGE={record.storage}, or build its environment again",
            )

    async def _destroy(self, clone: StoredClone) -> None:
        self._live.discard(clone)
        await run_shielded(self._gone(clone.holder))

    async def _gone(self, holder: Path) -> None:
        await self._throw_away(holder)
        if any(record.removed for record in self._records.all()):
            await self._collect()

    async def _throw_away(self, holder: Path) -> None:
        await in_thread(self._deletions.throw_away, holder, self._places.trash(holder), self._method.release)

    async def _collect(self) -> None:
        """Delete what is marked as removed and lies below nothing any more."""
        kept = {r.id for r in self._records.all() if not r.removed}
        await in_thread(self._drop, self._records.unused(kept, self._layers_in_use()))

    def _drop(self, ids: Collection[str]) -> None:
        for each in ids:
            holder = self._places.snapshots / each
            self._deletions.throw_away(holder, self._places.trash(holder), self._method.release)
        self._records.forget(ids)

    def _layers_in_use(self) -> tuple[tuple[str, ...], ...]:
        return tuple(clone.origin.layers for clone in tuple(self._live))

    def _sweep(self, keep: Collection[str]) -> tuple[str, ...]:
        gone: list[str] = []
        self._records.reload()
        unused = set(self._records.unused(keep, self._layers_in_use()))
        known = {record.id for record in self._records.all()}
        # Without a record it is half made, unless it is being made right now.
        for found in sorted(directories(self._places.snapshots)):
            if found not in self._sealing and (found.name in unused or found.name not in known):
                gone.append(str(found))
        self._drop([Path(path).name for path in gone] + [each for each in unused if not (self._places.snapshots / each).is_dir()])
        held = {clone.holder for clone in tuple(self._live)} | self._being_made
        for top in self._places.tops:
            for found in sorted(directories(top / CLONES) - held):
                gone.append(str(found))
                self._deletions.throw_away(found, top / TRASH, self._method.release)
        while self._old_trash:
            old = self._old_trash.pop()
            self._deletions.throw_away(old, old.parent, self._method.release)
        return tuple(gone)
