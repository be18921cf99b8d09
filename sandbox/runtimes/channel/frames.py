"""Frames of the command channel as the host reads them: from an inside that may be compromised, so nothing is believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.runtimes.channel import wire

_FROM_INSIDE = frozenset((wire.HELLO, wire.OUT, wire.ERR, wire.EXIT, wire.CREDIT, wire.CHUNK, wire.DONE, wire.FAIL))


class Malformed(Exception):
    """What came is no frame of ours: the inside was tampered with."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    truncated: bool
    timed_out: bool
    seconds: float


def unpack(payload: bytes) -> list[bytes]:
    try:
        return wire.unpack(payload)
    except ValueError as error:
        raise Malformed(str(error)) from error


def unpack_number(payload: bytes) -> int:
    if len(payload) != 4:
        raise Malformed("a number of the wrong size")
    return int.from_bytes(payload, "big")


def unpack_exit(payload: bytes) -> Exit:
    if len(payload) != 13 or payload[4] > wire.TRUNCATED | wire.TIMED_OUT:
        raise Malformed("an exit of the wrong form")
    flags, seconds = payload[4], int.from_bytes(payload[5:], "big") / 1e6
    return Exit(int.from_bytes(payload[:4], "big"), bool(flags & wire.TRUNCATED), bool(flags & wire.TIMED_OUT), seconds)


class Decoder:
    """Cuts a byte stream into frames; holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield each complete frame; raise Malformed for an unknown kind, a direction that is not the inside's, or a size that
        no frame of ours has."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= wire.HEADER:
                size = int.from_bytes(self._buffer[at : at + 4], "big")
                kind = self._buffer[at + 4]
                if size > wire.MAX_FRAME:
                    raise Malformed(f"a frame of {size} bytes")
                if kind not in _FROM_INSIDE:
                    raise Malformed(f"a frame of kind {kind}")
                if len(self._buffer) - at < wire.HEADER + size:
                    return
                number = int.from_bytes(self._buffer[at + 5 : at + 9], "big")
                payload = bytes(self._buffer[at + wire.HEADER : at + wire.HEADER + size])
                at += wire.HEADER + size
                yield Frame(kind, number, payload)
        finally:
            del self._buffer[:at]
