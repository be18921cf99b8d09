"""The rules of clearing and quarantine: interval arithmetic over one namespace's chain of leases, no I/O.

A chain is numbered by `sequence`; a check at position n is one made after lease n. Each depth has a watermark, the position of
its last clean check, and a failed check taints the half-open interval (watermark, n].

Clearing. A first holder of a lineage whose start was verified at depth d needs no more than a clean check of that depth made
after its release, whatever lineage that check reads: what it was given is proven, and the check proves that what it did is gone.
Every other holder was given a state that a hook or clean made out of somebody else's; only reading that same lineage again can
vouch for it.

End of a lineage. After a mismatch the escalation replaces the state, and a lineage that is replaced (or whose namespace is
retired) can never be read again. The later holders of it that are still pending then (spared by `exposed-only`, or never
checked) can never be cleared, so they end quarantined as `unverified`. That is decided when the lineage really ends and not
at the mismatch: until then a closing check of the same lineage may still come and clear them. First holders go on waiting for
the successor's check, which may clear them.

Shared instances. Leases on all namespaces of an instance are numbered in one sequence too, and the instance has one watermark:
where that stood at its last clean check, which is made when nobody holds a lease on it. A field of the instance that differs,
whoever reads it, taints what the sequence gave after that watermark, running leases included, whatever their namespaces. A
namespace's own checks clear at quick; deep clearance takes a clean check of the instance as well, since deep means all that can be
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sandbox.model import (
    Clearance,
    ClearanceState,
    Depth,
    LineageId,
    QuarantineReason,
    StartCheck,
    TrajectoryId,
    Verdict,
    VerdictStatus,
    WindowPolicy,
)

DEEPEST_FIRST = (Depth.DEEP, Depth.QUICK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The position of the last clean check of each depth. A clean deep check includes quick, so `deep` never passes `quick`."""

    quick: int = 0
    deep: int = 0

    def of(self, depth: Depth) -> int:
        return self.deep if depth is Depth.DEEP else self.quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The positions (after, through] that a failed check taints, and the depth whose watermark gave `after`."""

    after: int
    through: int
    depth: Depth

    def __contains__(self, sequence: int) -> bool:
        return self.after < sequence <= self.through


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One link of the chain: a trajectory's use of the namespace, and where its clearance stands."""

    trajectory: TrajectoryId
    sequence: int
    lineage: LineageId
    first_of_lineage: bool
    verified: Depth  # how deep its start was verified
    ended: bool
    state: ClearanceState = ClearanceState.PENDING
    depth: Depth | None = None
    shared: bool = False  # other namespaces share its instance
    own: Depth | None = None  # there: how deep its own namespace's checks cleared it

    @property
    def reached(self) -> Depth | None:
        """How deep its own namespace's chain has vouched for it."""
        return self.own if self.shared else self.depth

    @property
    def awaits_instance(self) -> bool:
        """True where nothing but a clean check of the shared instance is missing for a deep clearance."""
        return self.shared and self.state is ClearanceState.CLEARED and self.own is Depth.DEEP and self.depth is not Depth.DEEP


def window(verdict: Verdict, marks: Marks, position: int) -> Window:
    """Return what a failed check at `position` taints."""
    depth = verdict.failed_depth
    if depth is None:
        raise ValueError("a clean verdict has no window")
    return Window(after=marks.of(depth), through=position, depth=depth)


def instance_window(mark: int, sequence: int) -> Window:
    """Return the positions of an instance's sequence that a field of the instance taints when it differs: everything given since
    the last clean check of the instance. One check reads all of it, so that there is one watermark."""
    return Window(after=mark, through=sequence, depth=Depth.DEEP)


def own_part(verdict: Verdict) -> Verdict:
    """Return what a verdict says of the namespace alone, the fields of its shared instance left out."""
    own = tuple(m for m in verdict.mismatches if not m.shared)
    if len(own) == len(verdict.mismatches):
        return verdict
    status = VerdictStatus.INCONCLUSIVE if verdict.problems else VerdictStatus.MISMATCH if own else VerdictStatus.CLEAN
    return replace(verdict, status=status, mismatches=own)


def is_empty(reach: Window) -> bool:
    """True where no lease lies in it."""
    return reach.after >= reach.through


def concerns_instance(verdict: Verdict, marks: Marks, position: int, *, was_ready: bool) -> bool:
    """True where a field of the shared instance differs; and where one of the namespace's own does although it was ready and nobody
    used it since: then somebody on another namespace changed it."""
    if any(m.shared for m in verdict.mismatches):
        return True
    return was_ready and bool(verdict.mismatches) and is_empty(window(verdict, marks, position))


def advanced(verdict: Verdict, marks: Marks, position: int) -> Marks:
    """Return the watermarks after a check: all that it read clean moves up to `position`."""
    if verdict.clean and verdict.depth is Depth.DEEP:
        return Marks(quick=position, deep=position)
    if verdict.quick_clean:
        return Marks(quick=position, deep=marks.deep)
    return marks


def reason(verdict: Verdict) -> QuarantineReason:
    """One field that differs is contamination, even where another probe gave no answer."""
    differs = verdict.status is VerdictStatus.MISMATCH or verdict.mismatches
    return QuarantineReason.CONTAMINATED if differs else QuarantineReason.UNVERIFIED


def clearing(held: Held, check: Depth, lineage: LineageId | None) -> Depth | None:
    """Return the depth at which a clean check clears it, None where that gains nothing.

    `lineage` is the one that the check reads; None stands for any later one. On a shared instance this is what its own namespace
    vouches for; `granted` says what may be written.
    """
    if not held.ended or not _movable(held):
        return None
    for depth in DEEPEST_FIRST:
        if held.reached is depth:
            return None
        if check.covers(depth) and not needs_own_lineage(held, depth, lineage):
            return depth
    return None


def granted(held: Held, gain: Depth, *, instance_vouched: bool) -> Held:
    """Return it cleared at `gain`: at quick where the instance is shared and no clean check of it followed the lease yet."""
    depth = Depth.QUICK if held.shared and not instance_vouched else gain
    return replace(held, state=ClearanceState.CLEARED, depth=depth, own=gain if held.shared else None)


def needs_own_lineage(held: Held, depth: Depth, lineage: LineageId | None = None) -> bool:
    """True where only a check that reads its own lineage may clear it at `depth`, and `lineage` is another one."""
    any_lineage = held.first_of_lineage and held.verified.covers(depth)
    return not any_lineage and held.lineage != lineage


def pends(held: Held, depth: Depth) -> bool:
    """True where it ended and waits for a check of `depth` that must read its own lineage."""
    short = held.state is ClearanceState.PENDING or (
        held.state is ClearanceState.CLEARED and (held.reached is None or not held.reached.covers(depth))
    )
    return held.ended and short and needs_own_lineage(held, depth)


def gains_after_lineage(held: Held) -> bool:
    """True where a check of a later lineage, or of the shared instance, may still clear it, or clear it deeper."""
    open_depths = [depth for depth in DEEPEST_FIRST if held.reached is None or not held.reached.covers(depth)]
    return held.awaits_instance or (_movable(held) and any(not needs_own_lineage(held, depth) for depth in open_depths))


def stranded(held: Held) -> bool:
    """True where the end of its lineage leaves it pending for ever."""
    return held.state is ClearanceState.PENDING and not gains_after_lineage(held)


def tainted(chain: Iterable[Held], reach: Window, policy: WindowPolicy) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Split those in the window into the tainted and the spared.

    `exposed-only` spares a trajectory whose own start was verified at the failed depth: it was given a clean world, whatever it
    made of it.
    """
    inside = [held for held in chain if held.sequence in reach]
    if policy is WindowPolicy.STRICT:
        return tuple(inside), ()
    spared = tuple(held for held in inside if held.verified.covers(reach.depth))
    return tuple(held for held in inside if not held.verified.covers(reach.depth)), spared


def fork_start(own: StartCheck, parent: StartCheck) -> StartCheck:
    """Return what vouches for a fork's start: never more than what vouched for its parent's.

    The clone's identity proves that it equals the parent's snapshot, so it is worth what the parent's start was worth.
    """
    depth = own.depth if parent.verified.covers(own.depth) else parent.verified
    return StartCheck(check=own.check, depth=depth, identity=own.identity and parent.verified is Depth.DEEP)


def refusal(clearance: Clearance, required: Depth, *, optimistic: bool) -> str | None:
    """Return why a trajectory may not ship, None where it may."""
    if clearance.ships_at(required):
        return None
    if optimistic and clearance.state in (ClearanceState.PENDING, ClearanceState.CLEARED):
        return None
    if clearance.state is ClearanceState.CLEARED:
        return f"cleared at {clearance.depth}, {required} is required"
    return describe(clearance)


def describe(clearance: Clearance) -> str:
    """Return a clearance in words: `pending`, `cleared (deep)`, `quarantined (contaminated)`."""
    detail = clearance.depth or clearance.reason
    return f"{clearance.state} ({detail})" if detail else str(clearance.state)


def _movable(held: Held) -> bool:
    """A check moves what is pending or cleared; quarantine is left by a person's act only."""
    return held.state in (ClearanceState.PENDING, ClearanceState.CLEARED)
