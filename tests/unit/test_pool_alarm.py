"""The quarantine rate of an environment, and the limit above which nobody gets a lease of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, PoolBroken
from sandbox.model import CheckPolicy, ResetMethod, ResetPolicy, TaskSpec, TrajectoryId
from sandbox.pool.alarm import QuarantineRate
from sandbox.testing import memory_environment

HOOK = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",))
STRICT = CheckPolicy(quarantine_limit=0.5, quarantine_window=4)


async def use(bench: Any, pool: Any, *, leaky: bool) -> None:
    bench.leaks[ResetMethod.HOOK] = ["file/left"] if leaky else []
    async with pool.session("memory", wait=5) as session:
        await session.run(["set", "left", "behind"])
    await pool.cleared([session.trajectory_id], timeout=5)
    await bench.quiet()


async def test_leasing_stops_above_the_limit_says_why_and_goes_on_when_a_person_has_looked(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK, check=STRICT), size=2)
    for leaky in (False, True, False, True, True):  # of the last four, three: over a half
        await use(bench, pool, leaky=leaky)
    with pytest.raises(
        PoolBroken, match=r"3 of its last 4 trajectories were quarantined, and check.quarantine_limit is 0.5"
    ) as why:
        await pool.acquire("memory", wait=5)
    assert "pool resume memory" in why.value.fix
    stand = (await pool.status())["environments"]["memory"]
    assert stand["halted"]
    assert stand["quarantine_rate"] == {"quarantined": 3, "judged": 4, "limit": 0.5, "window": 4}
    with pytest.raises(EnvironmentInvalid, match="who resumes"):
        await pool.resume("memory", by="jo", note=" ")
    assert await pool.resume("memory", by="jo", note="the hook is mended")
    assert not await pool.resume("memory", by="jo", note="again")
    await use(bench, pool, leaky=False)


async def test_a_manager_that_starts_again_goes_on_counting(bench: Any) -> None:
    environment = memory_environment(reset=HOOK, check=STRICT)
    pool = await bench.open(environment, size=2)
    for leaky in (True, False, False, True):  # a half: not over
        await use(bench, pool, leaky=leaky)
    await pool.acquire("memory", wait=5)
    await bench.crash()  # and so no check can judge what that one did
    pool = await bench.open(environment, size=2)
    stand = (await pool.status())["environments"]["memory"]
    assert (stand["halted"], stand["quarantine_rate"]["quarantined"], stand["quarantine_rate"]["judged"]) == (None, 2, 4)
    await use(bench, pool, leaky=False)  # the oldest of the four goes
    for _ in range(2):
        await use(bench, pool, leaky=True)
    with pytest.raises(PoolBroken, match="3 of its last 4"):
        await pool.acquire("memory", wait=5)

    await bench.close()
    pool = await bench.open(environment, size=2)
    with pytest.raises(PoolBroken, match="3 of its last 4"):
        await pool.acquire("memory", wait=5)
    assert await pool.resume("memory", by="jo", note="the hook is mended")
    await use(bench, pool, leaky=True)

    await bench.crash()
    pool = await bench.open(environment, size=2)
    stand = (await pool.status())["environments"]["memory"]
    assert (stand["halted"], stand["quarantine_rate"]["quarantined"], stand["quarantine_rate"]["judged"]) == (None, 1, 1)


async def test_a_resumption_that_nothing_had_stopped_forgets_nothing(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK, check=STRICT), size=2)
    for leaky in (False, True, True):
        await use(bench, pool, leaky=leaky)
    assert not await pool.resume("memory", by="jo", note="to be sure")
    await use(bench, pool, leaky=True)
    with pytest.raises(PoolBroken, match="3 of its last 4"):
        await pool.acquire("memory", wait=5)


async def test_who_waits_when_the_leasing_stops_is_told(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK, check=CheckPolicy(quarantine_limit=0.0, quarantine_window=1)))
    bench.leaks[ResetMethod.HOOK] = ["file/left"]
    async with pool.session("memory", wait=5) as session:
        await session.run(["set", "left", "behind"])
        waiting = asyncio.create_task(pool.acquire("memory", wait=60))
        await asyncio.sleep(0.02)
    with pytest.raises(PoolBroken, match="1 of its last 1"):
        await waiting


async def test_a_request_under_way_when_the_leasing_stops_gets_no_lease(bench: Any) -> None:
    own = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"mark": "x"}})
    strict = CheckPolicy(quarantine_limit=0.0, quarantine_window=1)
    pool = await bench.open(memory_environment(reset=HOOK, check=strict, tasks=[own]), size=2)
    for step in ("derive", "restore"):  # its start state is made, and then a namespace is made to fit
        gate = bench.runtime.faults.hold(step)
        calls = bench.runtime.faults.calls[step]
        under_way = asyncio.create_task(pool.acquire("memory", task="own", wait=60))

        async def begun(step: str = step, calls: int = calls) -> bool:
            return bool(bench.runtime.faults.calls[step] > calls)

        assert await poll(begun, timeout=60)
        bench.leaks[ResetMethod.HOOK] = ["file/left"]
        async with pool.session("memory", wait=5) as session:
            await session.run(["set", "left", "behind"])
        await pool.cleared([session.trajectory_id], timeout=5)
        gate.set()
        with pytest.raises(PoolBroken, match="1 of its last 1"):
            await under_way
        await bench.quiet()
        await pool.resume("memory", by="jo", note="again")
        bench.leaks[ResetMethod.HOOK] = []
    async with pool.session("memory", task="own", wait=5) as session:
        assert (await session.run(["get", "mark"])).text == "x"


async def test_without_a_limit_nothing_stops(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK), size=1)
    for _ in range(25):
        await use(bench, pool, leaky=True)
    assert (await pool.status())["environments"]["memory"]["quarantine_rate"]["quarantined"] == 20


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=80), st.integers(1, 10), st.floats(0, 1))
def test_the_rate_is_that_of_the_last_ones_named(named: list[tuple[int, bool]], window: int, limit: float) -> None:
    rate = QuarantineRate(limit=limit, window=window)
    kept: list[tuple[int, bool]] = []
    for number, bad in named:
        known = dict(kept)
        one = {TrajectoryId(str(number))}
        rate.note(cleared=() if bad else one, quarantined=one if bad else ())
        # Where it stands stays, and what is said of it can only get worse.
        same = [(n, b or (bad and n == number)) for n, b in kept]
        kept = same if number in known else [*kept, (number, bad)][-window:]
        assert (rate.judged, rate.quarantined) == (len(kept), sum(b for _, b in kept))
        assert rate.over == (len(kept) == window and sum(b for _, b in kept) > limit * window)
