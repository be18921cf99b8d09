"""Reading a profile's stores: key-value stores from their logs and tables, databases, preferences, and what is left out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.browser import leveldb, noise
from probes.browser.profile import read_profile
from probes.browser.snappy import decompress
from probes.browser.stores import cache_line, json_lines, sqlite_tables
from sandbox.storage import PlainTree


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(data: bytes) -> bytes:
    return varint(len(data)) + data


def log(*records: bytes) -> bytes:
    """A log as LevelDB writes it: records are cut where a block of 32 KiB ends."""
    out = bytearray()
    for record in records:
        first = True
        while True:
            left = leveldb.BLOCK - len(out) % leveldb.BLOCK
            if left < 7:
                out += bytes(left)
                continue
            piece, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            out += bytes(4) + len(piece).to_bytes(2, "little") + bytes([kind]) + piece
            first = False
            if not record:
                break
    return bytes(out)


def batch(sequence: int, *changes: tuple[bytes, bytes | None]) -> bytes:
    body = b"".join(b"\0" + text(k) if v is None else b"\1" + text(k) + text(v) for k, v in changes)
    return sequence.to_bytes(8, "little") + len(changes).to_bytes(4, "little") + body


def table(entries: Sequence[tuple[bytes, int, bytes | None]], *, compressed: bool) -> bytes:
    """A table of one block; its keys share what they begin with."""
    block, before = bytearray(), b""
    for key, sequence, value in entries:
        inner = key + (sequence << 8 | (value is not None)).to_bytes(8, "little")
        shared = next((i for i, (a, b) in enumerate(zip(before, inner, strict=False)) if a != b), min(len(before), len(inner)))
        block += varint(shared) + varint(len(inner) - shared) + varint(len(value or b"")) + inner[shared:] + (value or b"")
        before = inner
    block += bytes(4) + (1).to_bytes(4, "little")

    def stored(data: bytes, kind: int) -> bytes:
        return data + bytes([kind]) + bytes(4)

    packed = varint(len(block)) + literal(bytes(block)) if compressed else bytes(block)
    data = stored(packed, int(compressed))
    handle = varint(0) + varint(len(packed))
    index = varint(0) + varint(1) + varint(len(handle)) + b"z" + handle + bytes(4) + (1).to_bytes(4, "little")
    footer = varint(0) + varint(0) + varint(len(data)) + varint(len(index))
    return data + stored(index, 0) + footer.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


def literal(data: bytes) -> bytes:
    return bytes([61 << 2]) + (len(data) - 1).to_bytes(2, "little") + data


def manifest(*edits: bytes) -> dict[str, bytes]:
    return {"CURRENT": b"MANIFEST-000001\n", "MANIFEST-000001": log(*edits)}


def new_file(number: int) -> bytes:
    return varint(7) + varint(0) + varint(number) + varint(100) + text(b"a") + text(b"z")


@given(st.lists(st.tuples(st.binary(max_size=8), st.one_of(st.none(), st.binary(max_size=40_000))), max_size=30))
def test_a_log_gives_the_newest_value_of_each_key(changes: list[tuple[bytes, bytes | None]]) -> None:
    expected: dict[bytes, bytes] = {}
    for key, value in changes:
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
    records = [batch(10 + i, change) for i, change in enumerate(changes)]
    assert leveldb.entries({**manifest(), "000003.log": log(*records)}) == expected


@pytest.mark.parametrize("compressed", [False, True])
def test_tables_count_as_the_manifest_says_and_the_log_is_newer(compressed: bool) -> None:
    files = manifest(new_file(5), new_file(6), varint(6) + varint(0) + varint(6), varint(2) + varint(7))
    files["000005.ldb"] = table([(b"gone", 3, b"x"), (b"kept", 1, b"old"), (b"keys", 2, b"v")], compressed=compressed)
    files["000006.ldb"] = b"no longer counts"
    files["000004.log"] = log(batch(1, (b"written into a table", b"")))
    files["000007.log"] = log(batch(9, (b"kept", b"new"), (b"gone", None)))
    assert leveldb.entries(files) == {b"kept": b"new", b"keys": b"v"}


def test_a_record_that_is_being_written_is_left_out() -> None:
    whole = log(batch(1, (b"a", b"1")), batch(2, (b"b", b"2")))
    assert leveldb.entries({**manifest(), "000003.log": whole[:-3]}) == {b"a": b"1"}


def test_files_that_do_not_fit_together_are_no_reading() -> None:
    with pytest.raises(KeyError):
        leveldb.entries(manifest(new_file(9)))
    with pytest.raises(ValueError, match="without its end"):
        leveldb.entries({**manifest(new_file(9)), "000009.ldb": b"x" * 60})


def test_copies_in_a_block_may_reach_into_what_they_write() -> None:
    # "ab", then eight bytes from two back, then three from ten back with a two-byte offset
    block = varint(13) + bytes([1 << 2]) + b"ab" + bytes([(8 - 4) << 2 | 1, 2]) + bytes([2 << 2 | 2, 10, 0])
    assert decompress(block) == b"ababababab" + b"aba"
    with pytest.raises(ValueError, match="before the beginning"):
        decompress(varint(4) + bytes([1, 9]))


def test_a_database_is_read_from_a_copy_without_times_and_lots(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table urls (id integer primary key, url text, last_visit_time integer, visits integer)")
        connection.execute("create table meta (key text, value text)")
        connection.executemany("insert into urls values (?, ?, ?, ?)", [(1, "http://a/", 5, 2), (2, "http://a/", 9, 2)])
    before = path.read_bytes()

    def read(name: str) -> bytes | None:
        found = tmp_path / name
        return found.read_bytes() if found.exists() else None

    found = sqlite_tables(read, "db", lambda table: noise.skips_key("Default/History", table))
    assert found == {"urls": {"url http://a/, visits 2": "2"}}
    assert path.read_bytes() == before


def test_an_open_transaction_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("create table t (a)")
    connection.execute("pragma cache_size = 1")
    connection.execute("begin")
    connection.executemany("insert into t values (?)", [("x" * 3000,)] * 200)  # more than fits: pages are written before the commit
    names = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert names.get("db-journal")
    assert sqlite_tables(names.get, "db", lambda table: False) == {"t": {}}
    connection.close()


def test_preferences_are_read_leaf_by_leaf() -> None:
    data = {"a": {"b": [1, {"c": 2}], "last_update": "1"}, "empty": {}, "profile": {"exit_type": "Crashed"}}
    lines = json_lines(json.dumps(data).encode(), lambda key: noise.skips_key("Default/Preferences", key))
    assert lines == {"a.b": '[1,{"c":2}]', "empty": "{}"}


def test_an_entry_of_a_cache_is_named_by_its_key() -> None:
    key = b"1/0/http://a/ http://a/x"
    data = (0xFCFB6D1BA7725C30).to_bytes(8, "little") + (5).to_bytes(4, "little") + len(key).to_bytes(4, "little") + bytes(8) + key
    name, content = cache_line(data + b"body")
    assert name == key.decode()
    assert content.startswith(f"{len(data) + 4} bytes")


@pytest.mark.parametrize(
    ("path", "skipped"),
    [
        ("Default/Local Storage/leveldb/LOCK", True),
        ("Default/Local Storage/leveldb/000003.log", False),
        ("Default/Cache/Cache_Data/index", True),
        ("Default/Cache/Cache_Data/0a_0", False),
        ("Default/History-journal", True),
        ("Default/History", False),
        ("SingletonLock", True),
        ("Default/Extensions/abc/manifest.json", False),
        ("Default/a file nobody knows", False),
    ],
)
def test_only_what_is_named_is_left_out(path: str, skipped: bool) -> None:
    assert noise.skips_file(path) is skipped


def test_every_omission_has_a_reason() -> None:
    assert all(len(reason) > 5 for _, reason in (*noise.FILES, *noise.KEYS))


def test_what_pages_chose_byte_by_byte_is_read_whole_whatever_it_looks_like(tmp_path: Path) -> None:
    """A page's own database has tables that the browser's may leave out, and what begins like a document need not be one."""
    kept, blob = tmp_path / "Default/File System/000/t/00/00000000", tmp_path / "Default/IndexedDB/http_a_0.indexeddb.blob/1/00/1"
    for path in (kept, blob):
        path.parent.mkdir(parents=True)
    blob.write_bytes(b"{not one")
    readings = []
    for said in ("one", "two"):
        kept.unlink(missing_ok=True)
        with sqlite3.connect(kept) as connection:
            connection.execute("create table meta (id text)")
            connection.execute("insert into meta values (?)", [said])
        connection.close()
        fields, problems = read_profile(PlainTree(tmp_path))
        assert problems == []
        readings.append(fields["profile/other files/"])
    assert readings[0] != readings[1]
    assert "indexeddb.blob/1/00/1" in readings[0]
