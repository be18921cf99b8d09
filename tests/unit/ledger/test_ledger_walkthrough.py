"""What was walked through before building, and the examples of P5, on the real ledger."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import LedgerConflict
from sandbox.lifecycle import Event
from sandbox.model import ClearanceState, Depth, WindowPolicy

QUICK, DEEP = Depth.QUICK, Depth.DEEP
EXPOSED = WindowPolicy.EXPOSED_ONLY


async def test_restore_per_lease_clears_one_trajectory_per_reset(chain: Any) -> None:
    cleared = [(await chain.cycle(f"t{n}", replaced=True)).cleared for n in range(1, 21)]

    assert cleared == [(f"t{n}",) for n in range(1, 21)]
    assert await chain.stand("t1", "t20") == ["cleared (quick)", "cleared (quick)"]


async def test_a_deep_check_of_a_successor_deepens_every_first_holder(chain: Any) -> None:
    for n in range(1, 5):
        await chain.cycle(f"t{n}", replaced=True)
    outcome = await chain.cycle("t5", depth=DEEP, replaced=True)

    assert outcome.cleared == ("t1", "t2", "t3", "t4", "t5")
    assert set(await chain.stand("t1", "t2", "t3", "t4", "t5")) == {"cleared (deep)"}


async def test_hook_with_deep_every_20_and_a_leak_at_7_that_quick_does_not_see(chain: Any) -> None:
    for n in range(1, 3):
        await chain.cycle(f"t{n}", depth=QUICK, replaced=False)
    await chain.ledger.transition(chain.id, Event.RECHECK, generation=chain.generation)
    await chain.check(depth=DEEP, purpose="recheck")  # the deep mark stands at 2
    for n in range(3, 20):
        await chain.cycle(f"t{n}", replaced=False)
    outcome = await chain.cycle("t20", "deep", DEEP, replaced=False)

    assert outcome.quarantined == tuple(f"t{n}" for n in range(3, 21))
    assert set(await chain.stand(*outcome.quarantined)) == {"quarantined (contaminated)"}
    assert await chain.stand("t1", "t2") == ["cleared (deep)", "cleared (deep)"]
    assert ((await chain.record()).quick_mark, (await chain.record()).deep_mark) == (20, 2)


async def test_a_closing_check_before_the_replacement_clears_the_later_holders(chain: Any) -> None:
    for n in range(1, 10):
        await chain.cycle(f"t{n}", replaced=False)
    await chain.lease("t10")
    await chain.end("t10")
    await chain.reset(replaced=False)
    assert [lease.trajectory for lease in await chain.ledger.pending(chain.id, QUICK)] == ["t10"]

    closing = await chain.check(depth=DEEP, purpose="closing")

    assert closing.cleared == tuple(f"t{n}" for n in range(1, 11))
    assert (await chain.record()).state == "resetting"
    assert await chain.ledger.pending(chain.id, DEEP) == []
    await chain.reset(replaced=True)
    await chain.check()
    assert set(await chain.stand("t1", "t10")) == {"cleared (deep)"}


async def test_a_replacement_without_a_closing_check_ends_later_holders_as_unverified(chain: Any) -> None:
    await chain.cycle("first", replaced=False)
    await chain.lease("later")
    await chain.end("later")
    await chain.reset(replaced=True)

    assert await chain.stand("first", "later") == ["cleared (quick)", "quarantined (unverified)"]


@pytest.mark.parametrize(("what", "depth", "lost"), [("quick", QUICK, {5}), ("deep", DEEP, {3, 4, 5}), ("quick", DEEP, {5})])
async def test_windows_after_clean_deep_at_2_and_clean_quick_at_3_and_4(
    chain: Any, what: str, depth: Depth, lost: set[int]
) -> None:
    await chain.cycle("t1", replaced=False)
    await chain.cycle("t2", depth=DEEP, replaced=False)
    await chain.cycle("t3", replaced=False)
    await chain.cycle("t4", replaced=False)
    outcome = await chain.cycle("t5", what, depth, replaced=False)

    assert set(outcome.quarantined) == {f"t{n}" for n in lost}
    assert (await chain.record()).state == "quarantined"


async def test_a_silent_probe_quarantines_as_unverified(chain: Any) -> None:
    outcome = await chain.cycle("t1", "silent", replaced=True)

    assert outcome.quarantined == ("t1",)
    assert await chain.stand("t1") == ["quarantined (unverified)"]


async def test_a_mismatch_after_silence_makes_the_reason_contaminated(chain: Any) -> None:
    await chain.cycle("t1", "silent", replaced=True)
    await chain.ledger.transition(chain.id, Event.ESCALATE, generation=chain.generation)
    await chain.reset(replaced=True)
    second = await chain.check("quick")

    assert second.quarantined == ()  # it had lost its clearance before
    assert await chain.stand("t1") == ["quarantined (contaminated)"]
    assert (await chain.ledger.quarantine(second.quarantine))["members"][0]["effect"] == "already"


async def test_exposed_only_spares_first_holders_until_a_clean_check(chain: Any) -> None:
    outcome = await chain.cycle("t1", "quick", replaced=True, window=EXPOSED)
    assert (outcome.quarantined, await chain.stand("t1")) == ((), ["pending"])

    assert (await chain.recover()).cleared == ("t1",)


async def test_exposed_only_spares_later_holders_only_while_their_lineage_can_be_read(chain: Any) -> None:
    await chain.cycle("t1", replaced=False)
    await chain.cycle("t2", "quick", replaced=False, window=EXPOSED)
    assert await chain.stand("t2") == ["pending"]

    await chain.recover()

    assert await chain.stand("t1", "t2") == ["cleared (quick)", "quarantined (unverified)"]


async def test_nothing_clears_what_is_quarantined(chain: Any) -> None:
    await chain.cycle("t1", "quick", replaced=True)
    await chain.recover(DEEP)
    await chain.cycle("t2", depth=DEEP, replaced=True)

    assert await chain.stand("t1", "t2") == ["quarantined (contaminated)", "cleared (deep)"]


async def test_a_start_without_proof_and_a_quick_check_needs_its_own_lineage_for_deep(ledger: Any, chains: Any) -> None:
    chain = await chains(ledger).open(identity=False)
    await chain.lease("t1")
    await chain.end("t1")
    await chain.reset(replaced=False)
    assert [lease.trajectory for lease in await ledger.pending(chain.id, DEEP)] == ["t1"]
    assert await ledger.pending(chain.id, QUICK) == []

    await chain.check(purpose="closing")
    outcome = await ledger.abandon(chain.id, note="no deep check before the restore", depth=DEEP)

    assert outcome.quarantined == ("t1",)
    assert await chain.stand("t1") == ["quarantined (unverified)"]


async def test_what_was_undone_in_place_lost_its_proof(chain: Any) -> None:
    await chain.ledger.transition(chain.id, Event.RESET, generation=chain.generation)
    await chain.reset(replaced=False, identity=True)
    await chain.check()

    lease = await chain.lease("t1")

    assert (lease.first_of_lineage, lease.start_check.identity, lease.start_check.verified) == (True, False, QUICK)


async def test_retiring_ends_what_still_waits(chain: Any) -> None:
    await chain.cycle("t1", replaced=True)
    await chain.lease("t2")
    await chain.ledger.transition(chain.id, Event.LOST, generation=chain.generation)
    assert await chain.ledger.leases() == []

    await chain.retire()

    assert await chain.stand("t1", "t2") == ["cleared (quick)", "quarantined (unverified)"]
    assert await chain.ledger.oldest_pending("shop") == {}


async def test_abandon_ends_the_open_lease_too_and_spares_the_first_holder_of_an_ended_one(chain: Any) -> None:
    await chain.lease("first")
    await chain.end("first", Event.LOST)
    kept = await chain.ledger.abandon(chain.id, note="host lost", depth=QUICK)
    assert (kept.quarantined, await chain.stand("first")) == ((), ["pending"])
    await chain.recover()
    assert await chain.stand("first") == ["cleared (quick)"]

    await chain.lease("running")
    gone = await chain.ledger.abandon(chain.id, note="host lost", depth=QUICK)

    assert gone.quarantined == ("running",)
    await chain.end("running")  # the lease itself is ended in its own way


async def test_a_fork_is_tainted_with_its_parent_at_any_distance(ledger: Any, chains: Any) -> None:
    parent, child, grandchild = [await chains(ledger, name).open() for name in ("a", "b", "c")]
    await parent.lease("p")
    await child.fork("f", parent="p")
    await grandchild.fork("g", parent="f")
    await grandchild.end("g")
    await grandchild.reset(replaced=True)
    assert (await grandchild.check()).cleared == ("g",)

    await parent.end("p")
    await parent.reset(replaced=True)
    outcome = await parent.check("quick")

    assert set(outcome.quarantined) == {"p", "f", "g"}
    assert set(await parent.stand("p", "f", "g")) == {"quarantined (contaminated)"}


@pytest.mark.parametrize("discarded", [False, True])
async def test_a_fork_of_a_parent_without_clearance_begins_quarantined(ledger: Any, chains: Any, discarded: bool) -> None:
    parent, child = [await chains(ledger, name).open() for name in ("a", "b")]
    await parent.lease("p")
    await ledger.abandon(parent.id, note="lost")
    if discarded:
        await ledger.set_aside(["p"], ClearanceState.DISCARDED, by="ada", note="lost for good")
    await child.fork("f", parent="p")

    assert await child.stand("f") == ["quarantined (unverified)"]
    member = (await ledger.why("f"))["window"]
    assert (member["effect"], member["note"]) == ("fork", "lost")


async def test_a_forks_clearance_waits_for_its_parents_start_and_not_for_its_end(ledger: Any, chains: Any) -> None:
    parent, child = [await chains(ledger, name).open() for name in ("a", "b")]
    await parent.lease("p")
    await child.fork("f", parent="p")
    await child.end("f")
    await child.reset(replaced=True)

    assert (await child.check(depth=DEEP)).cleared == ("f",)
    assert await child.stand("p", "f") == ["pending", "cleared (deep)"]


async def test_a_fork_is_never_verified_deeper_than_its_parents_start(ledger: Any, chains: Any) -> None:
    parent, child = await chains(ledger, "a").open(identity=False), await chains(ledger, "b").open()
    await parent.lease("p")
    await child.fork("f", parent="p")
    await child.end("f")
    await child.reset(replaced=True)
    await child.check(depth=DEEP)

    assert await child.stand("f") == ["cleared (quick)"]


async def test_a_forks_state_goes_to_that_fork_only(ledger: Any, chains: Any) -> None:
    parent, child = [await chains(ledger, name).open() for name in ("a", "b")]
    await parent.lease("p")
    await child.fork("f", parent="p")
    await child.end("f")
    await child.reset(replaced=True)
    await child.check()
    with pytest.raises(LedgerConflict, match="no fork's state"):
        await child.lease("g", parent="p")
    await ledger.transition(child.id, Event.RESET, generation=child.generation)
    await child.reset(replaced=True)
    await ledger.fork_check(child.id, child.verdict(), generation=child.generation, parent="p")

    with pytest.raises(LedgerConflict, match="a fork of p"):
        await child.lease("h")


async def test_a_fork_check_vouches_for_nobody_else(ledger: Any, chains: Any) -> None:
    parent, child = [await chains(ledger, name).open() for name in ("a", "b")]
    await parent.lease("p")
    before = await child.record()
    await child.fork("f", parent="p")
    after = await child.record()

    assert (after.quick_mark, after.deep_mark) == (before.quick_mark, before.deep_mark)
    assert (await ledger.why("f"))["start_check"]["purpose"] == "fork"


async def test_the_clock_of_liveness_counts_what_a_deep_check_could_still_clear(chain: Any) -> None:
    assert await chain.ledger.oldest_pending("shop") == {}
    await chain.cycle("t1", replaced=True)
    ended = (await chain.ledger.why("t1"))["lease"]["ended"]
    await chain.cycle("t2", replaced=True)

    assert {ns: at.isoformat(timespec="microseconds") for ns, at in (await chain.ledger.oldest_pending("digest")).items()} == {
        "ns": ended
    }

    await chain.cycle("t3", depth=DEEP, replaced=True)
    assert await chain.ledger.oldest_pending("shop") == {}


async def test_the_clock_of_liveness_forgets_what_no_check_can_deepen(ledger: Any, chains: Any) -> None:
    """A first holder whose start was read at quick only, cleared by its successor's check: no later check reads its lineage."""
    chain = await chains(ledger).open(identity=False)
    await chain.lease("t1")
    await chain.end("t1")
    await chain.reset(replaced=True, identity=False)
    assert list(await ledger.oldest_pending("shop")) == ["ns"]

    await chain.check()

    assert await chain.stand("t1") == ["cleared (quick)"]
    assert await ledger.oldest_pending("shop") == {}
