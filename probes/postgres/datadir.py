"""The server's data directory, read by the host: configuration files, and files that no server of its own accord would make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from probes.canonical import bytes_digest, digest_of, lines_of, listing, name_of
from sandbox.ports import Tree, TreeEntry

CONFIGURATION = ("PG_VERSION", "postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf", "current_logfiles")
UNEXPECTED = "unexpected files/"  # a listing by path
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
BASE = re.compile(r"base/(\d+)/")
RELATION_FILE = re.compile(r"base/(\d+)/(\d+)(_fsm|_vm|_init)?(\.\d+)?")


def read_configuration(tree: Tree) -> dict[str, str]:
    """Digest each configuration file."""
    return {f"configuration/{name}": _content(tree, name) for name in CONFIGURATION if tree.entry(name) is not None}


def read_changed(tree: Tree, baseline: Mapping[str, str] | None) -> dict[str, str]:
    """List, with its content's digest, every file that does not belong there. With a baseline, and where the storage knows what
    changed, only that is looked at."""
    changed = tree.changed() if baseline is not None and UNEXPECTED in baseline else None
    if changed is None or baseline is None:
        return {UNEXPECTED: listing(dict(_unexpected(tree, tree.walk())))}
    lines = lines_of(baseline[UNEXPECTED])
    for path in changed:
        lines.pop(name_of(path), None)
    found = (tree.entry(path) for path in sorted(changed) if path)
    return {UNEXPECTED: listing(lines | dict(_unexpected(tree, (e for e in found if e is not None))))}


def read_everything(tree: Tree, databases: Mapping[int, str], filenodes: Mapping[int, frozenset[int]]) -> dict[str, str]:
    """The same from one walk over everything, and of each database (by object id) its files: in one that was read (its `filenodes`
    are known) those that look like a relation's and belong to none, in another (template0) all of them, digested."""
    entries = list(tree.walk())
    fields = {UNEXPECTED: listing(dict(_unexpected(tree, entries)))}
    inside: dict[int, list[TreeEntry]] = {oid: [] for oid in databases}
    for entry in entries:
        match = BASE.match(entry.path)
        if match is not None and entry.kind == "file" and int(match[1]) in inside:
            inside[int(match[1])].append(entry)
    for oid, name in databases.items():
        prefix = f"db {name_of(name)}"
        if oid in filenodes:
            fields[f"{prefix}/orphan files"] = "\n".join(_orphans(inside[oid], filenodes[oid]))
        else:
            fields[f"{prefix}/files"] = _digest(tree, inside[oid], f"base/{oid}/")
    return fields


def _unexpected(tree: Tree, entries: Iterable[TreeEntry]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if entry.kind == "dir" or (entry.kind in ("file", "socket") and EXPECTED.fullmatch(entry.path)):
            continue
        text = entry.kind
        if entry.kind == "link":
            text = f"link {name_of(entry.target or '')}"
        elif entry.kind == "file":
            text = _content(tree, entry.path)
        yield name_of(entry.path), text


def _orphans(entries: Iterable[TreeEntry], filenodes: frozenset[int]) -> Iterator[str]:
    """Name files that no relation has; empty ones wait for the next checkpoint to go."""
    for entry in entries:
        match = RELATION_FILE.fullmatch(entry.path)
        if match is not None and entry.size > 0 and int(match[2]) not in filenodes:
            yield entry.path


def _digest(tree: Tree, entries: Iterable[TreeEntry], prefix: str) -> str:
    texts = [f"{e.path.removeprefix(prefix)} {_content(tree, e.path)}" for e in entries if not e.path.endswith("pg_internal.init")]
    return f"{len(texts)} files, {digest_of(texts)[:32]}"


def _content(tree: Tree, path: str) -> str:
    data = tree.read(path)
    return f"{len(data)} bytes, {bytes_digest(data)}"
