"""The server's data directory, read by the host: configuration files, and files that no server of its own accord would make."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probes.canonical import bytes_digest, name_of
from sandbox.ports import Tree, TreeEntry

CONFIGURATION = ("PG_VERSION", "postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf", "current_logfiles")
LIMIT = 16_000_000
_HEX = "[0-9A-F]"
# What a server makes while it runs, whose names and contents differ between equal states.
EXPECTED = re.compile(
    "|".join(
        (
            r"postmaster\.(pid|opts)",
            r"\.s\.PGSQL\.\d+(\.lock)?",
            r"global/(\d+(_fsm|_vm|_init)?(\.\d+)?|pg_(filenode\.map|control|internal\.init)(\.\d+)?)",
            r"base/\d+/(\d+(_fsm|_vm|_init)?(\.\d+)?|t\d+_\d+(_fsm|_vm)?(\.\d+)?|pg_filenode\.map|PG_VERSION|pg_internal\.init(\.\d+)?)",
            rf"pg_wal/({_HEX}{{24}}(\.partial|\.backup)?|{_HEX}{{8}}\.history|xlogtemp\.\d+|summaries/{_HEX}+\.summary"
            rf"|archive_status/.*)",
            rf"pg_(xact|subtrans|notify|serial)/{_HEX}{{4,}}",
            rf"pg_multixact/(members|offsets)/{_HEX}{{4,}}",
            rf"pg_commit_ts/{_HEX}+",
            r"pg_stat/(pgstat\.stat|pgss_query_texts\.stat|pg_stat_statements\.stat)",
            r"pg_stat_tmp/.*",
            r"pg_logical/replorigin_checkpoint",
            r"pg_dynshmem/mmap\.\d+",
            *(re.escape(name) for name in CONFIGURATION),
        )
    )
)
RELATION_FILE = re.compile(r"base/(\d+)/(\d+)(_fsm|_vm|_init)?(\.\d+)?")


def read_configuration(tree: Tree) -> dict[str, str]:
    """Digest each configuration file."""
    return {f"configuration/{name}": _content(tree, name) for name in CONFIGURATION if tree.entry(name) is not None}


def read_unexpected(tree: Tree, *, whole: bool) -> dict[str, str]:
    """List, with its content's digest, every file that does not belong there. `whole` walks the tree even where the storage
    knows what changed."""
    lines = []
    for entry in _candidates(tree, whole=whole):
        if entry.kind == "dir":
            continue
        if entry.kind == "file" and EXPECTED.fullmatch(entry.path):
            continue
        shown = name_of(entry.path)
        if entry.kind == "link":
            lines.append(f"{shown} -> {name_of(entry.target or '')}")
        elif entry.kind == "file":
            lines.append(f"{shown} {_content(tree, entry.path)}")
        elif not (entry.kind == "socket" and EXPECTED.fullmatch(entry.path)):
            lines.append(f"{shown} {entry.kind}")
    return {"unexpected files": "\n".join(sorted(lines))}


def read_unreachable(tree: Tree, databases: dict[str, int]) -> dict[str, str]:
    """Digest the files of databases that refuse connections (template0), which no query can read."""
    fields = {}
    for name, oid in databases.items():
        folder = f"base/{oid}"
        files = [e for e in tree.walk(folder) if e.kind == "file" and not e.path.endswith("pg_internal.init")]
        texts = [f"{e.path.removeprefix(folder)} {_content(tree, e.path, limit=None)}" for e in files]
        fields[f"db {name_of(name)}/files"] = f"{len(files)} files, {bytes_digest(chr(10).join(texts).encode())}"
    return fields


def read_orphans(tree: Tree, oid: int, filenodes: frozenset[int]) -> str:
    """List files that look like a relation's and belong to none; empty ones wait for the next checkpoint to go."""
    found = []
    for entry in tree.walk(f"base/{oid}"):
        match = RELATION_FILE.fullmatch(entry.path)
        if match is not None and entry.size > 0 and int(match[2]) not in filenodes:
            found.append(entry.path)
    return "\n".join(found)


def _candidates(tree: Tree, *, whole: bool) -> Iterable[TreeEntry]:
    changed = None if whole else tree.changed()
    if changed is None:
        yield from tree.walk()
        return
    for path in sorted(changed):
        entry = tree.entry(path) if path else None
        if entry is not None:
            yield entry


def _content(tree: Tree, path: str, *, limit: int | None = LIMIT) -> str:
    data = tree.read(path, limit)
    return f"{len(data)} bytes, {bytes_digest(data)}"
