"""The line of waiting requests: order, ageing, bounds, and a hand-over that nobody can lose."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.breaker import Breaker
from sandbox.errors import LimitReached, PoolBroken
from sandbox.pool.waiting import WaitingLine
from sandbox.testing import FakeClock


def line(clock: FakeClock | None = None, limit: int = 100) -> WaitingLine[str]:
    return WaitingLine(clock=clock or FakeClock(), limit=limit, ageing_s=30.0)


async def test_higher_priority_first_and_first_come_first_served_within() -> None:
    waiting, got = line(), []

    async def ask(name: str, priority: int) -> None:
        await waiting.join(priority).received(give_back=lambda thing: None)
        got.append(name)

    async with asyncio.TaskGroup() as group:
        for name, priority in (("low 1", 0), ("high 1", 5), ("low 2", 0), ("high 2", 5)):
            group.create_task(ask(name, priority))
            await asyncio.sleep(0)
        for n in range(4):
            assert waiting.hand(f"namespace {n}")
            await asyncio.sleep(0)
    assert got == ["high 1", "high 2", "low 1", "low 2"]


async def test_a_low_priority_that_waited_long_goes_before_a_fresh_high_one() -> None:
    clock = FakeClock()
    waiting = line(clock)
    old = waiting.join(0)
    await clock.advance(31)
    fresh = waiting.join(1)
    waiting.hand("a")
    assert old.gone
    assert not fresh.gone


async def test_a_waiter_cancelled_at_the_moment_of_the_hand_over_gives_the_namespace_back() -> None:
    waiting = line()
    back: list[str] = []
    first = asyncio.create_task(waiting.join(5).received(give_back=back.append))
    second = asyncio.create_task(waiting.join(0).received(give_back=back.append))
    await asyncio.sleep(0)
    assert waiting.hand("namespace")  # accepted, but not picked up yet
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    assert back == ["namespace"]
    assert waiting.hand(back[0])
    assert await second == "namespace"


async def test_a_waiter_that_left_is_passed_over() -> None:
    waiting = line()
    back: list[str] = []
    gone = asyncio.create_task(waiting.join(5).received(give_back=back.append))
    stays = asyncio.create_task(waiting.join(0).received(give_back=back.append))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    assert waiting.hand("namespace")
    assert await stays == "namespace"
    assert back == []
    assert not waiting.hand("another")


async def test_the_line_is_bounded_and_those_who_left_do_not_count() -> None:
    waiting = line(limit=2)
    leaver = asyncio.create_task(waiting.join().received(give_back=lambda thing: None))
    waiter = waiting.join()
    await asyncio.sleep(0)
    with pytest.raises(LimitReached, match=r"limits\.queue"):
        waiting.join()
    leaver.cancel()
    await asyncio.wait({leaver})
    waiting.join()
    waiter.fail(PoolBroken("over"))
    with pytest.raises(PoolBroken, match="over"):
        await waiter.received(give_back=lambda thing: None)


async def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_attempt_through_after_its_pause() -> None:
    clock = FakeClock()
    breaker = Breaker(clock=clock, threshold=2, pause_s=10.0)
    breaker.failed("disk full")
    assert breaker.can_try()
    breaker.succeeded()
    breaker.failed("disk full")
    assert not breaker.is_open
    breaker.failed("disk full")
    assert breaker.is_open
    assert breaker.reason == "disk full"
    assert not breaker.can_try()
    await clock.advance(10)
    assert breaker.can_try()
    breaker.begin()
    assert not breaker.can_try()
    breaker.failed("still full")
    assert breaker.retry_after_s == 10.0
    await clock.advance(10)
    breaker.begin()
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.can_try()


async def test_what_is_made_ready_for_someone_goes_to_them_while_they_wait() -> None:
    waiting = line()
    first, second = waiting.join(wants="a"), waiting.join(wants="b")
    assert waiting.promise("namespace 1") is first
    assert waiting.promise("namespace 2") is second
    assert waiting.promise("namespace 3") is None
    assert waiting.hand("namespace 2")
    assert (first.gone, second.gone) == (False, True)
    first.promised = None  # namespace 1 was retired
    assert waiting.hand("namespace 4")
    assert first.gone


async def test_those_who_are_told_to_ask_again_are_told_in_their_order() -> None:
    waiting, told = line(), list[int]()

    async def ask(number: int) -> None:
        try:
            await waiting.join().received(give_back=lambda _: None)
        except PoolBroken:
            told.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(ask(number))
        await asyncio.sleep(0)
        assert waiting.hand("namespace")
        waiting.fail_all(PoolBroken("another version"))
    assert told == [1, 2, 3, 4, 5, 6, 7]
