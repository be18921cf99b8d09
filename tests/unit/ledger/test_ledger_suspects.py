"""Who may have left what a failed check found: by quarantine, by check, by trajectory, with the resets that followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.errors import RecordMissing
from sandbox.lifecycle import Event
from sandbox.model import Depth, ResetMethod, SnapshotId, WindowPolicy


def told(found: Mapping[str, Any]) -> list[tuple[str, bool, str]]:
    return [(lease["trajectory"], lease["suspect"], " ".join(lease["resets"])) for lease in found["leases"]]


async def test_the_windows_trajectories_come_after_those_that_used_the_same_state(chain: Any) -> None:
    await chain.cycle("t1", replaced=True)
    await chain.cycle("t2", replaced=False)
    await chain.cycle("t3", depth=Depth.DEEP, replaced=False)
    await chain.cycle("t4", replaced=False)
    outcome = await chain.cycle("t5", "deep", Depth.DEEP, replaced=False)
    await chain.recover()
    await chain.cycle("t6", replaced=False)

    found = await chain.ledger.suspects(outcome.quarantine)

    assert told(found) == [("t2", False, "hook"), ("t3", False, "hook"), ("t4", True, "hook"), ("t5", True, "hook")]
    assert (found["check"], found["environment"], found["environment_digest"]) == (outcome.check, "shop", "digest")
    assert [(m["field"], m["depth"]) for m in found["mismatches"]] == [("orders/deep", "deep")]
    assert not found["shared"]
    assert [await chain.ledger.suspects(name) for name in (outcome.check, "t4", "t5")] == [found] * 3


async def test_under_restore_each_suspect_had_a_state_of_its_own(chain: Any) -> None:
    await chain.cycle("t1", depth=Depth.DEEP, replaced=True)
    await chain.cycle("t2", replaced=True)
    outcome = await chain.cycle("t3", "deep", Depth.DEEP, replaced=True)

    found = await chain.ledger.suspects(outcome.quarantine)

    assert told(found) == [("t2", True, "restore"), ("t3", True, "restore")]
    assert len({lease["lineage"] for lease in found["leases"]}) == 2


async def test_the_reset_is_the_one_that_the_failed_check_followed(chain: Any) -> None:
    await chain.cycle("t1", depth=Depth.DEEP, replaced=False)
    first = await chain.cycle("t2", "quick", replaced=False)
    await chain.ledger.transition(chain.id, Event.ESCALATE, generation=chain.generation)
    await chain.reset(replaced=True)
    second = await chain.check("quick")

    found = [await chain.ledger.suspects(name) for name in (first.quarantine, second.quarantine, second.check, "t2")]

    assert [f["method"] for f in found] == ["hook", "restore", "restore", "hook"]
    assert [told(f)[-1] for f in found[:2]] == [("t2", True, "hook"), ("t2", True, "hook restore")]


async def test_a_reset_that_ended_in_an_error_is_not_the_one_that_was_checked(chain: Any) -> None:
    await chain.lease("t1")
    await chain.end("t1")
    await chain.ledger.begin_reset(chain.id, ResetMethod.HOOK, generation=chain.generation, target=SnapshotId("golden"))
    await chain.ledger.transition(chain.id, Event.FAILED, generation=chain.generation)
    await chain.ledger.transition(chain.id, Event.ESCALATE, generation=chain.generation)
    await chain.reset(replaced=True)
    outcome = await chain.check("quick")

    found = await chain.ledger.suspects(outcome.quarantine)
    assert (found["method"], told(found)) == ("restore", [("t1", True, "restore")])


async def test_each_has_the_resets_that_ended_before_the_next_one(chain: Any) -> None:
    """As under `restore_every`, and where a closing check comes before the state is replaced."""
    for number, methods in enumerate(["hook", "hook restore", "hook", "restore"], 1):
        await chain.lease(f"t{number}")
        await chain.end(f"t{number}")
        first, *more = methods.split()
        await chain.reset(replaced=first == "restore")
        if more:
            await chain.check(purpose="closing")
            await chain.reset(replaced=True)
        outcome = await chain.check("deep" if number == 4 else "clean", Depth.DEEP if number == 4 else Depth.QUICK)

    found = await chain.ledger.suspects(outcome.quarantine)

    assert found["method"] == "restore"
    assert told(found) == [("t1", True, "hook"), ("t2", True, "hook restore"), ("t3", True, "hook"), ("t4", True, "restore")]


async def test_without_a_check_the_method_is_that_of_the_first_reset_after_the_last_one(chain: Any) -> None:
    await chain.cycle("t1", replaced=False)
    await chain.lease("t2")
    await chain.end("t2")
    await chain.ledger.begin_reset(chain.id, ResetMethod.HOOK, generation=chain.generation, target=SnapshotId("golden"))
    outcome = await chain.ledger.abandon(chain.id, note="nothing checks it")

    found = await chain.ledger.suspects(outcome.quarantine)

    assert (found["check"], found["method"], found["leases"][-1]["resets"]) == (None, "hook", ["hook"])


async def test_a_spared_trajectory_leads_to_the_window_that_spared_it(chain: Any) -> None:
    await chain.cycle("t1", replaced=False)
    outcome = await chain.cycle("t2", "quick", replaced=False, window=WindowPolicy.EXPOSED_ONLY)
    (member,) = (await chain.ledger.quarantine(outcome.quarantine))["members"]
    assert member["effect"] == "spared"

    assert (await chain.ledger.suspects("t2"))["quarantine"] == outcome.quarantine


@pytest.mark.parametrize("name", ["t1", "q-none", "check-1", "t-unknown"])
async def test_what_names_no_failed_check_is_refused(chain: Any, name: str) -> None:
    await chain.cycle("t1", replaced=False)

    with pytest.raises(RecordMissing, match=name):
        await chain.ledger.suspects(name)
