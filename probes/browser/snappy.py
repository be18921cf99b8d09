"""Takes a block of Snappy apart: the compression of LevelDB's tables."""

from __future__ import annotations

LIMIT = 64 << 20


def decompress(data: bytes) -> bytes:
    """Return the plain bytes; raise ValueError."""
    size, at = varint(data, 0)
    if size > LIMIT:
        raise ValueError(f"a block of {size} bytes")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:  # a literal
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length = int.from_bytes(data[at : at + width], "little")
                at += width
            out += data[at : at + length + 1]
            at += length + 1
            continue
        length, offset, at = _copy(data, tag, at)
        if not 0 < offset <= len(out):
            raise ValueError("a copy from before the beginning")
        for _ in range(length):
            out.append(out[-offset])
    if len(out) != size:
        raise ValueError("a block that is cut short")
    return bytes(out)


def _copy(data: bytes, tag: int, at: int) -> tuple[int, int, int]:
    """Return length and offset of a copy, and where it ends."""
    if tag & 3 == 1:
        return ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | data[at], at + 1
    width = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little"), at + width


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length number and where it ends; raise ValueError."""
    found = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return found, at
        shift += 7
    raise ValueError("a number without an end")
