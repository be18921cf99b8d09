"""Reads a LevelDB directory from outside, without opening it: what its log and tables hold, the newest value of each key.

Opening one would lock and rewrite it. The formats: a log is a row of 32 KiB blocks of records; a table is blocks of keys that share
beginnings, with an index at its end; the manifest (a log, too) says which files count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.browser.snappy import decompress, varint

BLOCK = 32_768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_PUT = 1
Files = Mapping[str, bytes]


def entries(files: Files) -> dict[bytes, bytes]:
    """Return every key with its newest value. `files` holds the directory's files by name; raises ValueError or KeyError where they
    do not fit together (a writer was at work: read again)."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    for key, sequence, value in _everything(files):
        if key not in newest or newest[key][0] <= sequence:
            newest[key] = (sequence, value)
    return {key: value for key, (_, value) in newest.items() if value is not None}


def _everything(files: Files) -> Iterator[tuple[bytes, int, bytes | None]]:
    tables, first_log = _live(files)
    for number in tables:
        name = f"{number:06d}.ldb"
        yield from _table(files[name] if name in files else files[f"{number:06d}.sst"])
    for name, data in files.items():
        if name.endswith(".log") and name[:-4].isdigit() and int(name[:-4]) >= first_log:
            yield from _log(data)


def _live(files: Files) -> tuple[set[int], int]:
    """Return the numbers of the tables that count, and of the oldest log that does."""
    tables: set[int] = set()
    first_log = 0
    for record in _records(files[files["CURRENT"].decode("ascii").strip()]):
        at = 0
        while at < len(record):
            tag, at = varint(record, at)
            if tag in (2, 3, 4, 9):  # numbers of logs, of the next file, of the last sequence
                number, at = varint(record, at)
                first_log = number if tag == 2 else first_log
            elif tag == 1:  # the name of the order of keys
                _, at = _text(record, at)
            elif tag == 5:
                _, at = varint(record, at)
                _, at = _text(record, at)
            elif tag == 6:
                _, at = varint(record, at)
                number, at = varint(record, at)
                tables.discard(number)
            elif tag == 7:
                _, at = varint(record, at)
                number, at = varint(record, at)
                _, at = varint(record, at)
                _, at = _text(record, at)
                _, at = _text(record, at)
                tables.add(number)
            else:
                raise ValueError(f"a manifest with an unknown tag {tag}")
    return tables, first_log


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the whole records of a log. One that is cut short at the end is being written, and is left out."""
    parts: list[bytes] = []
    for start in range(0, len(data), BLOCK):
        block, at = data[start : start + BLOCK], 0
        while at + 7 <= len(block):
            length, kind = int.from_bytes(block[at + 4 : at + 6], "little"), block[at + 6]
            if kind == 0 or at + 7 + length > len(block):
                break
            payload = block[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (_FULL, _FIRST):
                parts = []
            parts.append(payload)
            if kind in (_FULL, _LAST):
                yield b"".join(parts)
                parts = []


def _log(data: bytes) -> Iterator[tuple[bytes, int, bytes | None]]:
    for record in _records(data):
        sequence, count, at = int.from_bytes(record[:8], "little"), int.from_bytes(record[8:12], "little"), 12
        for number in range(count):
            kind = record[at]
            key, at = _text(record, at + 1)
            value: bytes | None = None
            if kind == _PUT:
                value, at = _text(record, at)
            yield key, sequence + number, value


def _table(data: bytes) -> Iterator[tuple[bytes, int, bytes | None]]:
    footer = data[-48:]
    if footer[-8:] != _MAGIC:
        raise ValueError("a table without its end")
    _, at = varint(footer, 0)
    _, at = varint(footer, at)
    for _, handle in _block(data, *_handle(footer, at)):
        for key, value in _block(data, *_handle(handle, 0)):
            order = int.from_bytes(key[-8:], "little")
            yield key[:-8], order >> 8, value if order & 0xFF == _PUT else None


def _handle(data: bytes, at: int) -> tuple[int, int]:
    offset, at = varint(data, at)
    size, _ = varint(data, at)
    return offset, size


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    raw, kind = data[offset : offset + size], data[offset + size]
    block = decompress(raw) if kind == 1 else raw
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key, at = b"", 0
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(data, at)
    if at + length > len(data):
        raise ValueError("a record that is cut short")
    return data[at : at + length], at + length
