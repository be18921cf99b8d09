"""Reads a browser's profile from the host, file by file, as what it means: rows, keys and entries, not bytes.

The browser may be running. Nothing is opened where it lies: databases are copied first, and a copy that caught a writer in the act
is made again.
"""

from __future__ import annotations

import sqlite3
from functools import partial

from probes.browser import noise
from probes.browser.stores import CACHE_ENTRY, SQLITE, cache_line, json_lines, leveldb_lines, sqlite_tables
from probes.canonical import bytes_digest, listing, name_of
from sandbox.ports import Tree, TreeEntry

_TRIES = 4
_FILE_BYTES = 64 << 20
Fields = dict[str, str]


def read_profile(tree: Tree) -> tuple[Fields, list[str]]:
    """Return listings by file, and what could not be read. Blocking."""
    fields: Fields = {}
    problems: list[str] = []
    loose: dict[str, str] = {}
    entries = [entry for entry in tree.walk() if not noise.skips_file(entry.path)]
    databases = {_parent(entry.path) for entry in entries if entry.path.endswith("/CURRENT")}
    for top in sorted(databases):
        _into(fields, problems, top, partial(_leveldb, tree, top))
    for entry in entries:
        if entry.kind == "dir" or _parent(entry.path) in databases:
            continue
        if entry.kind != "file":
            loose[name_of(entry.path)] = f"{entry.kind} {name_of(entry.target or '')}"
            continue
        _into(fields, problems, entry.path, partial(_file, tree, entry, loose))
    return {**fields, "profile/other files/": listing(loose)}, problems


def _into(fields: Fields, problems: list[str], path: str, read: partial[Fields]) -> None:
    """Read one store; again where a writer was in the way."""
    said = ""
    for _ in range(_TRIES):
        try:
            fields.update({f"profile/{name}": text for name, text in read().items()})
        except FileNotFoundError:
            return  # it is gone, as if we had come a moment later
        except (ValueError, KeyError, IndexError, sqlite3.Error) as error:
            said = f"{type(error).__name__}: {error}"
        else:
            return
    problems.append(f"profile/{name_of(path)} cannot be read: {said}")


def _leveldb(tree: Tree, top: str) -> Fields:
    files = {entry.path.rpartition("/")[2]: tree.read(entry.path) for entry in tree.walk(top) if entry.kind == "file"}
    return {f"{name_of(top)}/": listing(leveldb_lines(files))}


def _file(tree: Tree, entry: TreeEntry, loose: dict[str, str]) -> Fields:
    path = entry.path
    if entry.size > _FILE_BYTES:
        raise ValueError(f"it has {entry.size} bytes")
    data = tree.read(path)
    if noise.is_of_pages(path):
        loose[name_of(path)] = f"{len(data)} bytes, {bytes_digest(data)}"
        return {}
    if data.startswith(SQLITE):
        tables = sqlite_tables(partial(_content, tree), path, partial(noise.skips_key, path))
        return {f"{name_of(path)} {name_of(table)}/": listing(rows) for table, rows in tables.items() if rows}
    if data.startswith(CACHE_ENTRY):
        key, content = cache_line(data)
        loose[f"{name_of(_parent(path))}: {key}"] = content
    elif data[:1] == b"{":
        return {f"{name_of(path)}/": listing(json_lines(data, partial(noise.skips_key, path)))}
    else:
        loose[name_of(path)] = f"{len(data)} bytes, {bytes_digest(data)}"
    return {}


def _content(tree: Tree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except FileNotFoundError:
        return None


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
