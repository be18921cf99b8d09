"""The words: ids and the closed sets of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NewType

NamespaceId = NewType("NamespaceId", str)
InstanceId = NewType("InstanceId", str)
LineageId = NewType("LineageId", str)
LeaseId = NewType("LeaseId", str)
TrajectoryId = NewType("TrajectoryId", str)
SnapshotId = NewType("SnapshotId", str)
CheckId = NewType("CheckId", str)
QuarantineId = NewType("QuarantineId", str)
BatchId = NewType("BatchId", str)
UpdateId = NewType("UpdateId", str)
CheckpointId = NewType("CheckpointId", str)


class _Nothing(Mapping[str, Any]):
    """An empty mapping that can be a dataclass's default: hashable, which `MappingProxyType` is only from Python 3.12 on."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()


class Depth(StrEnum):
    """How much a check reads; deep includes quick."""

    QUICK = "quick"
    DEEP = "deep"

    @property
    def rank(self) -> int:
        return 1 if self is Depth.DEEP else 0

    def covers(self, other: Depth) -> bool:
        return self.rank >= other.rank


class VerdictStatus(StrEnum):
    """Only CLEAN is clean."""

    CLEAN = "clean"
    MISMATCH = "mismatch"
    INCONCLUSIVE = "inconclusive"


class ResetMethod(StrEnum):
    """In order of strength; escalation goes to the right."""

    HOOK = "hook"
    CLEAN = "clean"
    RESTORE = "restore"
    REBUILD = "rebuild"

    @property
    def replaces(self) -> bool:
        """True where the state is replaced wholesale, so that a new lineage begins."""
        return self in (ResetMethod.RESTORE, ResetMethod.REBUILD)

    def stronger(self) -> ResetMethod | None:
        """Return the next method of the escalation, None after `rebuild`."""
        return {
            ResetMethod.HOOK: ResetMethod.RESTORE,
            ResetMethod.CLEAN: ResetMethod.RESTORE,
            ResetMethod.RESTORE: ResetMethod.REBUILD,
        }.get(self)


class Isolation(StrEnum):
    INSTANCE = "instance"
    DATABASE = "database"
    SCHEMA = "schema"
    DIRECTORY = "directory"
    CONTEXT = "context"

    @property
    def shares(self) -> bool:
        """True where several namespaces share an instance."""
        return self is not Isolation.INSTANCE


class WindowPolicy(StrEnum):
    """Which trajectories a failed check quarantines."""

    STRICT = "strict"  # every one since the last clean check of that depth
    EXPOSED_ONLY = "exposed-only"  # spares those whose own start was verified at that depth


class ClearanceState(StrEnum):
    PENDING = "pending"
    CLEARED = "cleared"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    DISCARDED = "discarded"


class QuarantineReason(StrEnum):
    CONTAMINATED = "contaminated"
    UNVERIFIED = "unverified"


class Role(StrEnum):
    """Whose user id owns a state directory or runs a process: the agent's, or a resource's server's."""

    AGENT = "agent"
    SERVER = "server"
