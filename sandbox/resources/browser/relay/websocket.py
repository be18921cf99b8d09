"""The server's side of WebSocket, as much of it as Playwright speaks: no extension, no sub-protocol.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import base64
import hashlib

GREETING_BYTES = 16_384
MESSAGE_BYTES = 256 << 20
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """The other side does not speak as it should."""


SECRET = "x-autoclave-secret"


def greeting(request: bytes) -> tuple[str, str, bytes]:
    """Return the path that a client asks for, its secret, and the answer that upgrades its connection; raise Refused."""
    lines = request.decode("latin-1").split("\r\n")
    words = lines[0].split()
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    key = headers.get("sec-websocket-key")
    if len(words) != 3 or words[0] != "GET" or key is None or headers.get("upgrade", "").lower() != "websocket":
        raise Refused("not a WebSocket")
    # A page can open a WebSocket, too, and then it says where it comes from. No client of ours does.
    if "origin" in headers:
        raise Refused("pages may not come in")
    accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    answer = (
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    return words[1], headers.get(SECRET, ""), answer.encode()


def frame(kind: int, payload: bytes) -> bytes:
    """Make one whole, unmasked frame."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | kind, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | kind, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | kind, 127)) + size.to_bytes(8, "big") + payload


class Frames:
    """Takes what a client sends apart into messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return every message and control frame that is whole now, each with its kind; raise Refused."""
        self._data += data
        found: list[tuple[int, bytes]] = []
        while (taken := self._next()) is not None:
            final, kind, payload = taken
            if kind >= CLOSE:
                found.append((kind, payload))
                continue
            self._parts.append(payload)
            self._held += len(payload)
            if self._held > MESSAGE_BYTES:
                raise Refused("a message is too long")
            if final:
                found.append((TEXT, b"".join(self._parts)))
                self._parts, self._held = [], 0
        return found

    def _next(self) -> tuple[bool, int, bytes] | None:
        data = self._data
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size > 125:
            width = 2 if size == 126 else 8
            if len(data) < at + width:
                return None
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        if not data[1] & 0x80 or data[0] & 0x70 or size > MESSAGE_BYTES:
            raise Refused("a frame that is not as a client's must be")
        if len(data) < at + 4 + size:
            return None
        mask, payload = bytes(data[at : at + 4]), bytes(data[at + 4 : at + 4 + size])
        final, kind = bool(data[0] & 0x80), data[0] & 0x0F
        del data[: at + 4 + size]
        return final, kind, _unmasked(payload, mask)


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    if not payload:
        return payload
    whole = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(payload), "big")
