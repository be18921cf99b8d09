"""Saved states, readings of them, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.model.environment import VolatileField
from sandbox.model.terms import NOTHING, Depth, ResetMethod, Role, SnapshotId, VerdictStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedDir:
    """One immutable directory of a snapshot: `layers` top first (one for storages that do not stack), and the digest of the
    merged tree at sealing time."""

    name: str  # "<resource>/<state directory>"
    layers: tuple[str, ...]
    digest: str
    role: Role
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable saved state with a digest over its directories, and the parent it grew from (None: it is golden)."""

    id: SnapshotId
    environment: str  # the environment's digest
    digest: str
    dirs: tuple[SealedDir, ...]
    parent: SnapshotId | None = None
    task: str | None = None  # set where it is a task's own start state
    storage: str = ""
    runtime: str = ""

    def dir(self, name: str) -> SealedDir:
        return next(d for d in self.dirs if d.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProof:
    """Physical proof, made before start, that a clone equals its sealed snapshot. `holds` False carries `detail`."""

    method: str  # "empty-upper", "shared-extents", "subvolume-generation", "digest"
    holds: bool
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one probe returned: canonical text by field. Two readings are equal exactly when their fields are."""

    probe: str
    depth: Depth
    fields: Mapping[str, str]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a probe could not vouch: it erred, timed out, lacked a privilege, wrote, or returned no fields."""

    probe: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One field that differs. None means absent on that side. `depth` is the depth at which the field is read. `shared`: the field
    belongs to an instance that several namespaces share, so that it concerns all of them."""

    probe: str
    field: str
    expected: str | None
    actual: str | None
    depth: Depth = Depth.QUICK
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check found: the whole difference, never only the first."""

    status: VerdictStatus
    depth: Depth
    mismatches: tuple[Mismatch, ...] = ()
    problems: tuple[Problem, ...] = ()
    fields: int = 0
    seconds: float = 0.0
    in_force: Mapping[str, Any] = NOTHING

    @property
    def clean(self) -> bool:
        return self.status is VerdictStatus.CLEAN

    @property
    def failed_depth(self) -> Depth | None:
        """The depth whose watermark the window uses, None when clean: quick for a quick check, and for a deep one in which
        nothing but quick fields differ. A deep-only field that differs, or a probe that gave no answer in a deep check, needs
        the deep one, also where quick fields differ beside it."""
        if self.clean:
            return None
        return Depth.QUICK if self.depth is Depth.QUICK or self._only(Depth.QUICK) else Depth.DEEP

    @property
    def quick_clean(self) -> bool:
        """True where every quick field was read and agreed: a clean check, or one that failed in deep-only fields alone."""
        return self.clean or (self.depth is Depth.DEEP and self._only(Depth.DEEP))

    def _only(self, depth: Depth) -> bool:
        """True where every probe answered and all that differs is of that depth."""
        known = self.status is VerdictStatus.MISMATCH and bool(self.mismatches) and not self.problems
        return known and all(m.depth is depth for m in self.mismatches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Readings of fresh instances that agreed. `key` joins the digests of environment, probes, snapshot, runtime, storage;
    `drift` holds fields that differ only on the instance rebuilt from the seed (reported, and still compared)."""

    key: str
    digest: str
    readings: tuple[Reading, ...]
    instances: int
    volatile: tuple[VolatileField, ...] = ()
    drift: tuple[Mismatch, ...] = ()
    recorded: datetime | None = None
    state: str = ""  # of which start state: "golden", or a task's id
    parts: Mapping[str, str] = NOTHING  # what the key joins, by name
    former: str = ""  # digest of the baseline of the same state that it took the place of
    changed: tuple[str, ...] = ()  # the parts of the key that are not as they were then
    changes: tuple[Mismatch, ...] = ()  # and what it reads differently: `expected` is the former's
    suspicions: tuple[str, ...] = ()  # what an agent could exploit although every reset brings it back (P13)

    @property
    def fields(self) -> int:
        return sum(len(r.fields) for r in self.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScore:
    """A probe score as the ledger keeps it: of what was planted, how much the probes saw and the reset undid. It holds for one
    baseline and one reset method; `catalogue` is the digest of the leaks there were, `body` what `env check --json` calls score."""

    baseline: str  # its key
    environment: str  # its name
    method: ResetMethod
    catalogue: str
    body: Mapping[str, Any]
    sampled: bool = False
    at: datetime | None = None  # None: when it is saved
