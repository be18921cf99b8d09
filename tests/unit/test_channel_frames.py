"""What comes from inside is not believed: any bytes end in frames or in Malformed, and a dead channel wakes every waiter."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import InstanceLost, LimitReached
from sandbox.model import Limits
from sandbox.runtimes.channel import wire
from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.channel.frames import Decoder, Malformed, unpack, unpack_exit

KINDS = st.sampled_from((wire.OUT, wire.ERR, wire.EXIT, wire.CREDIT, wire.CHUNK, wire.DONE, wire.FAIL, wire.HELLO))


@given(st.lists(st.tuples(KINDS, st.integers(0, 2**32 - 1), st.binary(max_size=300))), st.data())
def test_frames_survive_any_cutting(frames: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(wire.encode(*frame) for frame in frames)
    decoder, found = Decoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += [(f.kind, f.id, f.payload) for f in decoder.feed(stream[:size])]
        stream = stream[size:]
    assert found == frames


@given(st.binary(max_size=2000))
def test_any_bytes_end_in_frames_or_in_malformed(data: bytes) -> None:
    decoder = Decoder()
    try:
        for frame in decoder.feed(data):
            assert frame.kind >= wire.HELLO
            assert len(frame.payload) <= wire.MAX_FRAME
    except Malformed:
        return
    with contextlib.suppress(Malformed):
        list(decoder.feed(data))


@given(st.binary(max_size=200))
def test_payloads_are_read_whole_or_refused(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert wire.pack(unpack(payload)) == payload
    with contextlib.suppress(Malformed):
        unpack_exit(payload)


@given(st.lists(st.binary(max_size=50)))
def test_lists_round_trip(items: list[bytes]) -> None:
    assert unpack(wire.pack(items)) == items


def test_a_frame_larger_than_any_of_ours_is_refused_before_it_is_collected() -> None:
    with pytest.raises(Malformed, match="4294967295 bytes"):
        list(Decoder().feed(b"\xff\xff\xff\xff" + bytes((wire.OUT,)) + b"\0\0\0\1"))


def test_frames_of_the_hosts_own_kinds_are_refused() -> None:
    with pytest.raises(Malformed, match="kind 1"):
        list(Decoder().feed(wire.encode(wire.RUN, 1)))


async def channel_and_inside(limits: Limits = Limits(action_s=5)) -> tuple[Channel, socket.socket]:  # noqa: B008
    near, far = socket.socketpair()
    far.setblocking(False)
    return await Channel.open(near, "box", limits=limits, env={}, workdir="/"), far


def exit_frame(number: int, code: int = 0, flags: int = 0) -> bytes:
    return wire.encode(wire.EXIT, number, code.to_bytes(4, "big") + bytes([flags]) + bytes(8))


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 64,
        wire.encode(wire.EXIT, 1, b"short"),
        wire.encode(wire.EXIT, 99, bytes(13)),
        wire.encode(wire.CREDIT, 1, b"12345"),
        wire.encode(wire.OUT, 1, b"x" * 11),
        wire.encode(wire.RUN, 1),
        wire.encode(wire.HELLO, 0) + wire.encode(wire.HELLO, 0),
    ],
    ids=["noise", "short exit", "unknown call", "odd credit", "more than the cap", "host's kind", "two greetings"],
)
async def test_a_tampered_inside_is_lost_and_nothing_crashes(sent: bytes) -> None:
    channel, inside = await channel_and_inside()
    with inside:
        async with asyncio.TaskGroup() as group:
            waiters = [group.create_task(lost(channel)) for _ in range(3)]
            await asyncio.sleep(0)
            inside.send(sent)
        assert all(task.result() for task in waiters)
        assert channel.dead
        with pytest.raises(InstanceLost):
            await channel.read_file("/x")


async def lost(channel: Channel) -> bool:
    with pytest.raises(InstanceLost):
        await channel.run(["true"], output_bytes=10)
    return True


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.builds(wire.encode, KINDS, st.integers(0, 3), st.binary(max_size=30))), max_size=8
    )
)
@example([wire.encode(wire.FAIL, 1, b"\x01\x00\x00\x00\x00")])  # an error number of five bytes
def test_fuzzed_answers_end_in_a_result_or_a_known_error(pieces: list[bytes]) -> None:
    async def play() -> None:
        channel, inside = await channel_and_inside()
        with inside:
            task = asyncio.ensure_future(channel.run(["true"], output_bytes=10))
            await asyncio.sleep(0)
            for piece in pieces:
                with contextlib.suppress(OSError):
                    inside.send(piece)
            inside.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(InstanceLost, LimitReached):
                await task

    asyncio.run(play())


async def test_the_end_of_the_inside_wakes_every_waiter() -> None:
    channel, inside = await channel_and_inside()
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(lost(channel)) for _ in range(5)]
        await asyncio.sleep(0)
        inside.close()
    assert all(task.result() for task in waiters)


async def test_a_cancelled_command_is_killed_inside_before_the_cancellation_goes_on() -> None:
    channel, inside = await channel_and_inside()
    loop = asyncio.get_running_loop()
    with inside:
        task = asyncio.ensure_future(channel.run(["sleep", "100"]))
        assert (await loop.sock_recv(inside, 4096))[4] == wire.RUN
        task.cancel()
        kill = await loop.sock_recv(inside, 4096)
        assert kill[4] == wire.KILL
        assert not task.done()
        await loop.sock_sendall(inside, exit_frame(1, 137))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert channel.dead is None
        await channel.close()


async def test_an_inside_that_does_not_keep_the_limit_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.runtimes.channel.channel._GRACE_S", 0.05)
    channel, inside = await channel_and_inside()
    with inside, pytest.raises(InstanceLost, match="could not be ended"):
        await channel.run(["sleep", "100"], limit_s=0.05)


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"]])
async def test_a_command_that_cannot_be_is_refused_at_once(argv: list[str]) -> None:
    channel, inside = await channel_and_inside()
    with inside:
        with pytest.raises(ValueError, match="command"):
            await channel.run(argv)
        with pytest.raises(LimitReached):
            await channel.run(["x" * wire.MAX_FRAME])
        await channel.close()
