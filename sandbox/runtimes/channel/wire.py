"""The words of the command channel, for both of its ends.

A frame is `length u32 | kind u8 | id u32 | payload`, big-endian; a list is `length u32 | bytes` for each item. Part of the
program that runs inside (see `init.py`): Python 3.9, no import but builtins.
"""

RUN, STDIN, STDIN_END, KILL, READ, WRITE, DATA, COMMIT, QUIESCE, PING, FACTS, RENEW = range(1, 13)  # from the host
HELLO, OUT, ERR, EXIT, CREDIT, CHUNK, DONE, FAIL = range(64, 72)  # to the host

HEADER = 9
MAX_FRAME = 4 << 20
CHUNK_BYTES = 256 << 10
NO_MORE = 0xFFFFFFFF  # as a credit: the command closed its stdin
TRUNCATED, TIMED_OUT = 1, 2  # flags of EXIT


def encode(kind: int, number: int, payload: bytes = b"") -> bytes:
    """Make one frame."""
    return len(payload).to_bytes(4, "big") + bytes((kind,)) + number.to_bytes(4, "big") + payload


def pack(items: "list[bytes]") -> bytes:
    """Join byte strings into a list."""
    return b"".join([len(item).to_bytes(4, "big") + item for item in items])


def unpack(payload: bytes) -> "list[bytes]":
    """Split a list; raise ValueError where it ends before its items do."""
    items, at = [], 0
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        if end > len(payload):
            raise ValueError("a list that ends before its items")
        items.append(payload[at + 4 : end])
        at = end
    return items
