"""Shipping is a compare-and-set, and what was shipped can be traced back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sandbox.errors import AutoclaveError, LedgerConflict, NotCleared, RecordMissing
from sandbox.model import ClearanceState, Depth

QUICK, DEEP = Depth.QUICK, Depth.DEEP
AT_QUICK = {"digest": QUICK}


async def ship(ledger: Any, batch: str, *names: str, required: dict[str, Depth] | None = None, mode: str = "gated") -> Any:
    return await ledger.ship(batch, list(names), policy_version="41", required=required or AT_QUICK, mode=mode)


async def test_gated_takes_cleared_ones_and_names_every_other(chain: Any) -> None:
    await chain.cycle("good", replaced=True)
    await chain.cycle("bad", "quick", replaced=True)
    await chain.recover()
    await chain.lease("open")

    with pytest.raises(NotCleared) as refused:
        await ship(chain.ledger, "b", "good", "bad", "open", "nobody")
    assert refused.value.clearances == {
        "bad": "quarantined (contaminated)",
        "open": "pending",
        "nobody": "unknown to the ledger",
    }
    record = await ship(chain.ledger, "b", "good")
    assert (record["trajectories"], record["clearances"]["good"]["depth"]) == (["good"], "quick")


async def test_the_required_depth_is_the_environments(chain: Any) -> None:
    await chain.cycle("t", replaced=True)

    with pytest.raises(NotCleared, match="cleared at quick, deep is required"):
        await ship(chain.ledger, "b", "t", required={"digest": DEEP})
    with pytest.raises(NotCleared, match="no required depth"):
        await ship(chain.ledger, "b", "t", required={"other": QUICK})


async def test_optimistic_takes_pending_and_never_quarantined(chain: Any) -> None:
    await chain.cycle("bad", "quick", replaced=True)
    await chain.recover()
    await chain.lease("open")

    await ship(chain.ledger, "b1", "open", mode="optimistic")
    with pytest.raises(NotCleared):
        await ship(chain.ledger, "b2", "bad", mode="optimistic")
    with pytest.raises(AutoclaveError, match="hopeful"):
        await ship(chain.ledger, "b3", "open", mode="hopeful")


async def test_a_person_releases_and_then_it_ships(chain: Any) -> None:
    await chain.cycle("t", "quick", replaced=True)

    released = await chain.ledger.set_aside(["t"], ClearanceState.RELEASED, by="ada", note="looked at: only a comment differs")

    assert (released[0].by, released[0].note) == ("ada", "looked at: only a comment differs")
    await ship(chain.ledger, "b", "t", required={"digest": DEEP})
    with pytest.raises(LedgerConflict, match="only quarantined"):
        await chain.ledger.set_aside(["t"], ClearanceState.DISCARDED, by="ada", note="no")


async def test_set_aside_is_all_or_nothing_and_needs_a_name_and_a_reason(chain: Any) -> None:
    await chain.cycle("bad", "quick", replaced=True)
    await chain.recover()
    await chain.cycle("good", replaced=True)
    put = chain.ledger.set_aside

    with pytest.raises(LedgerConflict, match="good is cleared"):
        await put(["bad", "good"], ClearanceState.DISCARDED, by="ada", note="leak")
    with pytest.raises(AutoclaveError, match="name and a reason"):
        await put(["bad"], ClearanceState.DISCARDED, by=" ", note="leak")
    with pytest.raises(AutoclaveError, match="not make it cleared"):
        await put(["bad"], ClearanceState.CLEARED, by="ada", note="leak")
    with pytest.raises(RecordMissing):
        await put(["nobody"], ClearanceState.DISCARDED, by="ada", note="leak")
    assert await chain.stand("bad") == ["quarantined (contaminated)"]


async def test_a_later_failed_check_names_but_does_not_move_what_a_person_decided(chain: Any) -> None:
    await chain.cycle("t1", "quick", replaced=True)
    await chain.ledger.set_aside(["t1"], ClearanceState.RELEASED, by="ada", note="fine")
    await chain.recover()
    second = await chain.cycle("t2", "deep", DEEP, replaced=True)

    assert second.quarantined == ("t2",)
    assert await chain.stand("t1") == ["released (contaminated)"]
    members = (await chain.ledger.quarantine(second.quarantine))["members"]
    assert [(m["trajectory"], m["effect"]) for m in members] == [("t1", "kept"), ("t2", "quarantined")]


async def test_the_same_batch_again_is_the_same_record_and_another_is_refused(chain: Any) -> None:
    await chain.cycle("t1", replaced=True)
    await chain.cycle("t2", replaced=True)
    first = await ship(chain.ledger, "b", "t1", "t2")
    await chain.lease("t3")

    assert await ship(chain.ledger, "b", "t2", "t1") == first
    with pytest.raises(LedgerConflict, match="other contents"):
        await ship(chain.ledger, "b", "t1")
    with pytest.raises(NotCleared, match="in batch b already"):
        await ship(chain.ledger, "b2", "t1")
    with pytest.raises(AutoclaveError, match="no trajectory"):
        await ship(chain.ledger, "b3")
    with pytest.raises(AutoclaveError, match="twice"):
        await ship(chain.ledger, "b4", "t1", "t1")


async def test_the_same_batch_in_another_mode_is_refused(chain: Any) -> None:
    await chain.cycle("t", replaced=True)
    await ship(chain.ledger, "b", "t")

    with pytest.raises(LedgerConflict, match="in mode gated, not optimistic"):
        await ship(chain.ledger, "b", "t", mode="optimistic")


@pytest.mark.parametrize("mode", ["gated", "optimistic"])
async def test_the_same_batch_again_is_refused_when_members_lost_their_clearance(chain: Any, mode: str) -> None:
    await chain.cycle("t1", replaced=True)
    await chain.cycle("t2", replaced=True)
    first = await ship(chain.ledger, "b", "t1", mode=mode)
    # The depth at which it was shipped counts, also for a caller that asks for more by now.
    assert await ship(chain.ledger, "b", "t1", mode=mode, required={"digest": DEEP}) == first
    await chain.cycle("t3", "deep", DEEP, replaced=True)

    with pytest.raises(NotCleared, match=r"batch b is not shipped again") as refused:
        await ship(chain.ledger, "b", "t1", mode=mode)
    assert refused.value.clearances == {"t1": "quarantined (contaminated)"}

    await chain.ledger.set_aside(["t1"], ClearanceState.RELEASED, by="ada", note="looked at")
    assert await ship(chain.ledger, "b", "t1", mode=mode) == first


async def test_of_many_that_ship_the_same_trajectory_one_wins(chain: Any) -> None:
    await chain.cycle("t", replaced=True)

    async def attempt(n: int) -> bool:
        try:
            await ship(chain.ledger, f"b{n}", "t")
        except NotCleared:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(n)) for n in range(20)]
    assert sum(task.result() for task in tasks) == 1


async def test_a_deep_mismatch_recalls_what_had_shipped(chain: Any) -> None:
    for n in range(1, 4):
        await chain.cycle(f"t{n}", replaced=True)
    await chain.ledger.join_group("g", ["t1", "s1", "s2"])
    await ship(chain.ledger, "b1", "t1", "t2")
    await ship(chain.ledger, "b2", "t3")
    await chain.ledger.record_update("u1", ["b1"], "ckpt-1")
    await chain.ledger.record_update("u2", ["b2"], None)
    await chain.ledger.record_checkpoint("ckpt-2", ["u1", "u2"])

    outcome = await chain.cycle("t4", "deep", DEEP, replaced=True)

    assert outcome.recall is not None
    assert outcome.recall.trajectories == ("t1", "t2", "t3", "t4")
    assert outcome.recall.batches == ("b1", "b2")
    assert outcome.recall.updates == ("u1", "u2")
    assert outcome.recall.checkpoints == ("ckpt-1", "ckpt-2")
    assert outcome.recall.siblings == ("s1", "s2")
    everything = await chain.ledger.recall()
    assert (everything.quarantine, everything.batches) == (None, ("b1", "b2"))

    await chain.ledger.set_aside(["t1", "t2"], ClearanceState.RELEASED, by="ada", note="looked at")
    assert (await chain.ledger.recall(outcome.quarantine)).batches == ("b2",)
    with pytest.raises(RecordMissing):
        await chain.ledger.recall("quarantine-99")


async def test_updates_are_idempotent_and_name_what_is_missing(chain: Any) -> None:
    await chain.cycle("t", replaced=True)
    await ship(chain.ledger, "b", "t")
    await chain.ledger.record_update("u", ["b"], "c")
    await chain.ledger.record_update("u", ["b"], "c")

    with pytest.raises(LedgerConflict, match="other contents"):
        await chain.ledger.record_update("u", [], None)
    with pytest.raises(RecordMissing, match="no batch nothing"):
        await chain.ledger.record_update("u2", ["nothing"], None)
    with pytest.raises(RecordMissing, match="no update nothing"):
        await chain.ledger.record_checkpoint("c2", ["nothing"])


async def test_why_tells_the_whole_story_as_json(ledger: Any, chains: Any) -> None:
    chain, other = await chains(ledger, "a").open(), await chains(ledger, "b").open()
    await chain.cycle("t1", replaced=True)
    await ship(ledger, "b1", "t1")
    await ledger.record_update("u1", ["b1"], "c1")
    await ledger.join_group("g", ["t1", "t2"])
    await chain.lease("t2")
    await other.fork("f", parent="t2")
    await chain.end("t2")
    await chain.reset(replaced=True)
    await chain.check("both", DEEP)

    why = json.loads(json.dumps(await ledger.why("t1")))
    assert (why["environment"], why["task"], why["namespace"]) == ("shop", "refund-17", "a")
    assert (why["lease"]["sequence"], why["lease"]["outcome"], why["lease"]["first_of_lineage"]) == (1, "released", True)
    assert (why["start_check"]["purpose"], why["start_check"]["identity"]) == ("opening", True)
    assert (why["end_check"]["purpose"], why["end_check"]["verdict"]) == ("reset", "clean")
    assert why["clearance"]["text"] == "quarantined (contaminated)"
    assert (why["window"]["from"], why["window"]["to"], why["window"]["depth"]) == (1, 2, "deep")
    assert [(m["field"], m["expected"], m["actual"]) for m in why["window"]["mismatches"]] == [
        ("orders/quick", "1", None),
        ("orders/deep", "1", None),
    ]
    assert (why["batches"][0]["batch"], why["batches"][0]["shipped_as"]) == ("b1", "cleared (quick)")
    assert (why["updates"], why["checkpoints"], why["siblings"], why["forks"]) == (["u1"], ["c1"], ["t2"], [])
    assert (await ledger.why("t2"))["forks"] == ["f"]
    assert (await ledger.why("f"))["parent"] == "t2"
    assert (await ledger.why("f"))["end_check"] is None
    with pytest.raises(RecordMissing):
        await ledger.why("nobody")


async def test_quarantines_are_listed_with_what_they_hold_back(chain: Any) -> None:
    await chain.cycle("t1", "quick", replaced=True)
    await chain.ledger.set_aside(["t1"], ClearanceState.DISCARDED, by="ada", note="leak")
    await chain.recover()
    await chain.cycle("t2", "silent", replaced=True)

    listed = await chain.ledger.quarantines()

    assert [(q["reason"], q["from"], q["to"], q["trajectories"], q["held_back"]) for q in listed] == [
        ("unverified", 2, 2, 1, 1),
        ("contaminated", 1, 1, 1, 0),
    ]
    assert (await chain.ledger.quarantine(listed[0]["id"]))["problems"] == [{"probe": "rows", "reason": "timed out"}]
