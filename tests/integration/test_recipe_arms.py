"""The mechanism of the contamination experiment, in real worlds: what a reset misses turns the next trajectory's reward around."""

from __future__ import annotations

import pytest

from rollout.recipes.arms import Arm, Cell, open_stage
from rollout.recipes.training import worlds
from sandbox.model import ClearanceState
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(300)]
TASK, ACT = "kitchen-milk-3", ["sh", "-c", "echo 3 milk >> kitchen"]


@pytest.mark.parametrize("arm", [Arm.OFF, Arm.ON])
async def test_a_leftover_solves_the_task_for_whoever_does_nothing_unless_quarantine_is_on(
    arm: Arm, settings: Settings, nothing_left: None
) -> None:
    training, held_out = worlds()
    async with open_stage(training, held_out, Cell(arm=arm, rate=1.0, seed=1), size=1, settings=settings) as stage:
        async with stage.pool.session("errands", task=TASK, wait=120) as session:
            await session.run(ACT)
            acted = await session.score()
            stage.forgetful.marked.add(session.lease.namespace)  # the reset after it is the hook alone
        async with stage.pool.session("errands", task=TASK, wait=120) as session:
            idle = await session.score()
        async with stage.pool.session("errands", task=TASK, wait=120) as session:
            await session.run(ACT)
            after = await session.score()
        async with stage.pool.session("errands-held-out", task=TASK, wait=120) as judged:
            await judged.run(ACT)
            clean = await judged.score()

    assert acted.success
    assert idle.success is (arm is Arm.OFF)  # solved by what another one left
    assert after.success  # the reset after it was right again
    assert clean.success
    assert stage.watch.mismatches >= 1


async def test_the_trajectory_before_a_leaky_reset_is_quarantined_or_passed_by_arm(settings: Settings, nothing_left: None) -> None:
    training, held_out = worlds()
    ends: dict[Arm, ClearanceState] = {}
    for arm in (Arm.OFF, Arm.ON):
        async with open_stage(training, held_out, Cell(arm=arm, rate=1.0, seed=1), size=1, settings=settings) as stage:
            async with stage.pool.session("errands", task=TASK, wait=120) as session:
                await session.run(ACT)
                stage.forgetful.marked.add(session.lease.namespace)
            ends[arm] = (await stage.pool.cleared([session.trajectory_id], timeout=60))[session.trajectory_id].state

    assert ends == {Arm.OFF: ClearanceState.CLEARED, Arm.ON: ClearanceState.QUARANTINED}
