"""What is to be replayed: the suspects of a failed check with what they did, from the ledger and the action log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from envs.bisect.search import Segment
from sandbox.actions import Recording, read
from sandbox.errors import EnvironmentInvalid, RecordMissing
from sandbox.model import Depth, ResetMethod, TrajectoryId
from sandbox.ports import Ledger
from sandbox.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`sought` are the fields that differed, as `probe/field`. The last `suspects` of the segments are the window's; those before
    used the same state earlier. `gaps` says, by trajectory, what of it cannot be done again."""

    quarantine: str
    check: str | None
    environment: str
    digest: str
    namespace: str
    runtime: str
    method: ResetMethod | None  # that of the reset which the check followed
    sought: Mapping[str, Depth]  # and the depth at which each is read
    segments: tuple[Segment, ...]
    suspects: int
    gaps: Mapping[str, tuple[str, ...]]


async def history(name: str, ledger: Ledger, settings: Settings) -> History:
    """Gather it for a quarantine, a failed check or a trajectory; raise EnvironmentInvalid where it cannot be replayed at all."""
    found = await ledger.suspects(name)
    if found["shared"]:
        raise EnvironmentInvalid(
            f"{found['quarantine']} is about an instance that several namespaces share, whose trajectories ran beside each other",
            fix="bisect replays the history of one namespace; name a quarantine of a namespace's own",
        )
    method = ResetMethod(found["method"]) if found["method"] else None
    leases = _same_state(found["leases"], method)
    recordings = await read(settings.actions, [TrajectoryId(lease["trajectory"]) for lease in leases])
    return History(
        quarantine=found["quarantine"],
        check=found["check"],
        environment=found["environment"],
        digest=found["environment_digest"],
        namespace=found["namespace"],
        runtime=found["runtime"],
        method=method,
        sought={f"{m['probe']}/{m['field']}": Depth(m["depth"]) for m in found["mismatches"]},
        segments=tuple(_segment(lease, recordings[lease["trajectory"]]) for lease in leases),
        suspects=sum(lease["suspect"] for lease in leases),
        gaps={lease["trajectory"]: gaps for lease in leases if (gaps := _gaps(lease, recordings[lease["trajectory"]]))},
    )


def need(found: History) -> None:
    """Raise RecordMissing or EnvironmentInvalid where there is nobody to look at."""
    if not found.segments:
        raise RecordMissing(
            f"nobody used the namespace in the window of {found.quarantine}",
            fix="a later quarantine or an earlier one may hold somebody",
        )
    if all(not segment.actions and found.gaps.get(segment.trajectory) for segment in found.segments):
        raise EnvironmentInvalid(
            f"nothing that the trajectories of {found.quarantine} did is recorded",
            fix="actions are kept while AUTOCLAVE_ACTIONS_MB is not 0, the oldest going first; raise it for the next time",
        )


def _same_state(leases: Sequence[Mapping[str, Any]], method: ResetMethod | None) -> list[Mapping[str, Any]]:
    """Leave out those whose state was replaced before the last one's began: under a reset in place, nothing of theirs is left."""
    last = leases[-1] if leases else None
    if last is None or (method is not None and method.replaces):
        return list(leases)
    return [lease for lease in leases if lease["lineage"] == last["lineage"]]


def _segment(lease: Mapping[str, Any], recording: Recording) -> Segment:
    resets = tuple(ResetMethod(method) for method, _ in groupby(lease["resets"]))  # the same twice in a row is once
    return Segment(trajectory=lease["trajectory"], actions=recording.actions, task=lease["task"] or "", resets=resets)


def _gaps(lease: Mapping[str, Any], recording: Recording) -> tuple[str, ...]:
    said = [recording.gap, f"it began as a fork of {lease['parent']}, and is replayed from the start" if lease["parent"] else ""]
    said += [f"action {a.number}: {a.obstacle}" for a in recording.actions if a.obstacle]
    return tuple(text for text in said if text)
