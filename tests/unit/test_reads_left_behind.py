"""A reader that something holds up is left behind at its deadline: the check is inconclusive, and goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sandbox import aio
from sandbox.aio import read_in_thread


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_a_read_gives_what_it_read_or_what_went_wrong() -> None:
    assert await read_in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await read_in_thread(divmod, 7, 0)


async def test_the_deadline_of_a_caller_holds_for_a_read_that_hangs(release: threading.Event) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await read_in_thread(release.wait)

    assert not release.is_set(), "the read still hangs"


async def test_reads_left_behind_are_counted(release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "MOST_LEFT", 2)
    monkeypatch.setattr(aio, "_left", set())
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await read_in_thread(release.wait)

    with pytest.raises(RuntimeError, match="2 reads that were given up have not ended yet"):
        await read_in_thread(divmod, 7, 2)

    hanging = set(aio._left)
    release.set()
    for thread in hanging:
        thread.join()
    assert await read_in_thread(divmod, 7, 2) == (3, 1)
