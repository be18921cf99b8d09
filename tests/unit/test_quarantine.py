"""The rules of clearing and quarantine on plain values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.model import (
    CheckId,
    Clearance,
    ClearanceState,
    Depth,
    LineageId,
    Mismatch,
    Problem,
    QuarantineReason,
    StartCheck,
    TrajectoryId,
    Verdict,
    VerdictStatus,
    WindowPolicy,
)
from sandbox.quarantine import (
    Held,
    Marks,
    advanced,
    clearing,
    describe,
    fork_start,
    gains_after_lineage,
    pends,
    reason,
    refusal,
    stranded,
    tainted,
    window,
)

QUICK, DEEP = Depth.QUICK, Depth.DEEP
MARKS = Marks(quick=4, deep=2)
L1, L2 = LineageId("one"), LineageId("two")


def verdict(depth: Depth, *fields: Depth, silent: bool = False) -> Verdict:
    """A verdict with one differing field of each given depth, and perhaps a probe that gave no answer."""
    mismatches = tuple(Mismatch(probe="p", field=str(i), expected="1", actual=None, depth=d) for i, d in enumerate(fields))
    status = VerdictStatus.INCONCLUSIVE if silent else VerdictStatus.MISMATCH if fields else VerdictStatus.CLEAN
    problems = (Problem(probe="q", reason="timed out"),) if silent else ()
    return Verdict(status=status, depth=depth, mismatches=mismatches, problems=problems)


def held(sequence: int = 1, *, first: bool = False, verified: Depth = QUICK, lineage: LineageId = L1, ended: bool = True) -> Held:
    return Held(
        trajectory=TrajectoryId(f"t{sequence}"),
        sequence=sequence,
        lineage=lineage,
        first_of_lineage=first,
        verified=verified,
        ended=ended,
    )


@pytest.mark.parametrize(
    ("failed", "positions"),
    [
        (verdict(QUICK, QUICK), {5}),
        (verdict(DEEP, QUICK), {5}),  # quick fields use the quick watermark, also in a deep check
        (verdict(DEEP, DEEP), {3, 4, 5}),
        (verdict(DEEP, QUICK, DEEP), {3, 4, 5}),  # the deep-only field may be older than the quick one
        (verdict(QUICK, silent=True), {5}),
        (verdict(DEEP, silent=True), {3, 4, 5}),
        (verdict(DEEP, QUICK, silent=True), {3, 4, 5}),  # nobody knows what the silent probe would have read
    ],
)
def test_window_of_a_failed_check_at_5_after_deep_2_and_quick_4(failed: Verdict, positions: set[int]) -> None:
    reach = window(failed, MARKS, 5)

    assert {n for n in range(10) if n in reach} == positions


def test_a_clean_check_has_no_window() -> None:
    with pytest.raises(ValueError, match="clean"):
        window(verdict(DEEP), MARKS, 5)


@pytest.mark.parametrize(
    ("made", "marks"),
    [
        (verdict(QUICK), Marks(quick=5, deep=2)),
        (verdict(DEEP), Marks(quick=5, deep=5)),
        (verdict(DEEP, DEEP), Marks(quick=5, deep=2)),  # every quick field agreed
        (verdict(DEEP, DEEP, QUICK), MARKS),
        (verdict(DEEP, QUICK), MARKS),
        (verdict(DEEP, DEEP, silent=True), MARKS),
        (verdict(DEEP, silent=True), MARKS),
        (verdict(QUICK, QUICK), MARKS),
        (verdict(QUICK, silent=True), MARKS),
    ],
)
def test_watermarks(made: Verdict, marks: Marks) -> None:
    assert advanced(made, MARKS, 5) == marks


@pytest.mark.parametrize(
    ("link", "check", "lineage", "gain"),
    [
        # a first holder: the lesser of its start's depth and the check's, whatever lineage is read
        (held(first=True, verified=DEEP), QUICK, L2, QUICK),
        (held(first=True, verified=DEEP), DEEP, L2, DEEP),
        (held(first=True, verified=QUICK), DEEP, L2, QUICK),
        (held(first=True, verified=QUICK), QUICK, L2, QUICK),
        # on its own lineage the check's depth is what counts
        (held(first=True, verified=QUICK), DEEP, L1, DEEP),
        (held(verified=QUICK), DEEP, L1, DEEP),
        (held(verified=DEEP), QUICK, L1, QUICK),
        # a later holder: never by another lineage
        (held(verified=DEEP), DEEP, L2, None),
        (held(verified=QUICK), QUICK, L2, None),
        # never while it runs
        (held(first=True, verified=DEEP, ended=False), DEEP, L1, None),
    ],
)
def test_clearing(link: Held, check: Depth, lineage: LineageId, gain: Depth | None) -> None:
    assert clearing(link, check, lineage) is gain


def test_a_clearance_deepens_and_never_weakens() -> None:
    quick = Held(
        trajectory=TrajectoryId("t"), sequence=1, lineage=L1, first_of_lineage=False, verified=QUICK, ended=True,
        state=ClearanceState.CLEARED, depth=QUICK,
    )  # fmt: skip

    assert clearing(quick, QUICK, L1) is None
    assert clearing(quick, DEEP, L1) is DEEP
    assert clearing(quick, DEEP, L2) is None


@pytest.mark.parametrize("state", [ClearanceState.QUARANTINED, ClearanceState.RELEASED, ClearanceState.DISCARDED])
def test_no_check_moves_what_is_quarantined_or_decided(state: ClearanceState) -> None:
    link = Held(trajectory=TrajectoryId("t"), sequence=1, lineage=L1, first_of_lineage=True, verified=DEEP, ended=True, state=state)

    assert (clearing(link, DEEP, L1), pends(link, DEEP), gains_after_lineage(link), stranded(link)) == (None, False, False, False)


def test_exposed_only_spares_those_whose_start_was_verified_at_the_failed_depth() -> None:
    chain = [held(3, verified=DEEP), held(4, verified=QUICK), held(5, verified=DEEP)]

    deep = tainted(chain, window(verdict(DEEP, DEEP), MARKS, 5), WindowPolicy.EXPOSED_ONLY)
    quick = tainted(chain, window(verdict(QUICK, QUICK), MARKS, 5), WindowPolicy.EXPOSED_ONLY)
    strict = tainted(chain, window(verdict(DEEP, DEEP), MARKS, 5), WindowPolicy.STRICT)

    assert [[h.sequence for h in part] for part in deep] == [[4], [3, 5]]
    assert [[h.sequence for h in part] for part in quick] == [[], [5]]
    assert [[h.sequence for h in part] for part in strict] == [[3, 4, 5], []]


def test_the_end_of_a_lineage_strands_later_holders_only() -> None:
    assert stranded(held(2))
    assert not stranded(held(1, first=True))
    assert gains_after_lineage(held(1, first=True, verified=DEEP))


def test_pending_lists_what_only_its_own_lineage_can_clear() -> None:
    assert not pends(held(first=True, verified=DEEP), DEEP)
    assert not pends(held(first=True, verified=QUICK), QUICK)
    assert pends(held(first=True, verified=QUICK), DEEP)
    assert pends(held(2), QUICK)
    assert not pends(held(2, ended=False), QUICK)


@pytest.mark.parametrize(
    ("own", "parent", "verified"),
    [
        ((QUICK, True), (QUICK, True), DEEP),
        ((QUICK, True), (QUICK, False), QUICK),
        ((DEEP, False), (QUICK, False), QUICK),
        ((QUICK, False), (DEEP, True), QUICK),
    ],
)
def test_a_forks_start_is_worth_no_more_than_its_parents(
    own: tuple[Depth, bool], parent: tuple[Depth, bool], verified: Depth
) -> None:
    of = [StartCheck(check=CheckId("c"), depth=depth, identity=identity) for depth, identity in (own, parent)]

    assert fork_start(*of).verified is verified


def test_a_differing_field_is_contamination_also_beside_a_silent_probe() -> None:
    assert reason(verdict(QUICK, QUICK)) is QuarantineReason.CONTAMINATED
    assert reason(verdict(QUICK, QUICK, silent=True)) is QuarantineReason.CONTAMINATED
    assert reason(verdict(QUICK, silent=True)) is QuarantineReason.UNVERIFIED


@pytest.mark.parametrize(
    ("state", "depth", "required", "gated", "optimistic"),
    [
        (ClearanceState.CLEARED, DEEP, DEEP, None, None),
        (ClearanceState.CLEARED, QUICK, QUICK, None, None),
        (ClearanceState.CLEARED, QUICK, DEEP, "cleared at quick, deep is required", None),
        (ClearanceState.PENDING, None, QUICK, "pending", None),
        (ClearanceState.RELEASED, None, DEEP, None, None),
        (ClearanceState.QUARANTINED, None, QUICK, "quarantined", "quarantined"),
        (ClearanceState.DISCARDED, None, QUICK, "discarded", "discarded"),
    ],
)
def test_what_may_ship(
    state: ClearanceState, depth: Depth | None, required: Depth, gated: str | None, optimistic: str | None
) -> None:
    clearance = Clearance(trajectory=TrajectoryId("t"), state=state, depth=depth)

    assert refusal(clearance, required, optimistic=False) == gated
    assert refusal(clearance, required, optimistic=True) == optimistic


def test_clearances_in_words() -> None:
    contaminated = Clearance(
        trajectory=TrajectoryId("t"), state=ClearanceState.QUARANTINED, reason=QuarantineReason.CONTAMINATED
    )  # fmt: skip

    assert describe(contaminated) == "quarantined (contaminated)"
    assert describe(Clearance(trajectory=TrajectoryId("t"), state=ClearanceState.CLEARED, depth=DEEP)) == "cleared (deep)"
    assert describe(Clearance(trajectory=TrajectoryId("t"), state=ClearanceState.PENDING)) == "pending"


VERDICTS = st.builds(
    lambda depth, fields, silent: verdict(depth, *(fields if depth is DEEP else [QUICK] * len(fields)), silent=silent),
    st.sampled_from(Depth),
    st.lists(st.sampled_from(Depth), max_size=3),
    st.booleans(),
)


@given(st.lists(st.tuples(st.integers(0, 2), VERDICTS), max_size=30))
def test_watermarks_over_any_history(history: list[tuple[int, Verdict]]) -> None:
    """Marks only rise, deep never passes quick, no window reaches back before its mark or beyond its position, and a failed deep
    check never taints less than a failed quick one would."""
    marks, position = Marks(), 0
    for leases, made in history:
        position += leases
        after = advanced(made, marks, position)

        assert marks.deep <= after.deep <= after.quick <= position
        assert marks.quick <= after.quick
        if not made.clean:
            reach = window(made, marks, position)
            assert reach.through == position
            assert reach.after == (marks.deep if reach.depth is DEEP else marks.quick)
            assert reach.after <= marks.quick
        marks = after
