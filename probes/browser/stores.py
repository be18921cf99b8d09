"""The kinds of files in a profile, each as listing lines: what is stored, not how it lies there."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from probes.browser import leveldb
from probes.canonical import bytes_digest, name_of

SQLITE = b"SQLite format 3\0"
CACHE_ENTRY = (0xFCFB6D1BA7725C30).to_bytes(8, "little")
_SHORT = 120
_TABLES = "select name from sqlite_master where type = 'table' and sql not like 'create virtual%'"
_BESIDE = ("-journal", "-wal")
# Columns that say when, or that are drawn by lot; what they belong to is in the others.
_WHEN = re.compile(r"(^|_)(time|timestamp|utc|date|guid|uuid|nonce|id)(_|$)|^last_|_at$|_ms$|modified|accessed|duration", re.I)


def value_text(data: bytes) -> str:
    """Show a short text as it is, anything else by its digest."""
    if len(data) <= _SHORT:
        text = data.decode("latin-1")
        if all(" " <= c <= "~" for c in text):
            return text
    return f"{len(data)} bytes, {bytes_digest(data)}"


def leveldb_lines(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name_of(key.decode("latin-1")): value_text(value) for key, value in leveldb.entries(files).items()}


def json_lines(data: bytes, skip: Callable[[str], bool]) -> dict[str, str]:
    """One line for each leaf, by its path."""
    return {name_of(path): name_of(text) for path, text in _leaves(json.loads(data), "") if not skip(path)}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value, sort_keys=True, separators=(",", ":"))


def cache_line(data: bytes) -> tuple[str, str]:
    """Return key and content of one entry of a cache: 8 bytes of magic, version, length of the key, its hash, the key."""
    length = int.from_bytes(data[12:16], "little")
    return name_of(data[24 : 24 + length].decode("latin-1")), f"{len(data)} bytes, {bytes_digest(data)}"


def sqlite_tables(read: Callable[[str], bytes | None], name: str, skip: Callable[[str], bool]) -> dict[str, dict[str, str]]:
    """Return each table's rows as lines with how often they are there, read from a copy: opening a database may change it."""
    with tempfile.TemporaryDirectory(prefix="autoclave-profile-") as folder:
        copy = Path(folder, "db")
        for ending in ("", *_BESIDE):
            content = read(name + ending)
            if content:
                Path(f"{copy}{ending}").write_bytes(content)
        connection = sqlite3.connect(copy)
        try:
            connection.execute("pragma trusted_schema = off")
            connection.text_factory = bytes
            found: dict[str, dict[str, str]] = {}
            for (table,) in connection.execute(
                "select name from sqlite_master where type = 'table' and sql not like 'create virtual%'"
            ):
                named = table.decode("utf-8", "replace")
                if not skip(named):
                    found[named] = _rows(connection, named)
            return found
        finally:
            connection.close()


def _rows(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    quoted = '"' + table.replace('"', '""') + '"'
    cursor = connection.execute(f"select * from {quoted}")
    names = [column[0] for column in cursor.description]
    kept = [(at, name) for at, name in enumerate(names) if not _WHEN.search(name)]
    lines: Counter[str] = Counter()
    for row in cursor:
        lines[name_of(", ".join(f"{name} {_cell(row[at])}" for at, name in kept))] += 1
    return {line: str(count) for line, count in lines.items()}


def _cell(value: Any) -> str:
    return value_text(value) if isinstance(value, bytes) else str(value)
