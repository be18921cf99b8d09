"""The digest of a tree: what a seal is, and how one is verified.

It covers path, kind, mode, owner (relative to the tree's own), link target, xattrs, content and which names are one file. It does
not cover times, inode numbers and sizes of directories, so that every storage gives the same digest for the same state.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from sandbox.storage.hashing import hash_file
from sandbox.storage.tree import HostTree, Node

FORMAT = b"autoclave tree 1\n"
# A worker takes about 40 ms to start; a file about 15 microseconds, and a megabyte about 0.3 ms.
PAYS_FROM_FILES = 4_000
PAYS_FROM_BYTES = 400_000_000
MOST_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDigest:
    """`bytes` is what the files hold, `allocated` what they take on the disk, `files` counts what is not a directory."""

    digest: str
    files: int
    bytes: int
    allocated: int


def digest_tree(tree: HostTree, *, workers: int | None = None) -> TreeDigest:
    """Digest a tree. `workers` None chooses: in this thread when the tree is small, else in worker processes. Blocking."""
    top = tree.top()
    owner = (top.status.st_uid, top.status.st_gid)
    nodes = [top, *tree.nodes()]
    first_names = _first_names(nodes)
    contents = _contents([n for n in nodes if n.kind == "file" and n.status.st_size and n.path not in first_names], workers)
    hasher = blake3(FORMAT)
    for node in nodes:
        hasher.update(_record(node, tree, owner, contents.get(node.path, b""), first_names.get(node.path, "")))
    whole = [n for n in nodes if n.path not in first_names]
    return TreeDigest(
        digest=hasher.hexdigest(),
        files=sum(n.kind != "dir" for n in nodes),
        bytes=sum(n.status.st_size for n in whole if n.kind == "file"),
        allocated=sum(n.status.st_blocks * 512 for n in whole),
    )


def _record(node: Node, tree: HostTree, owner: tuple[int, int], content: bytes, same_as: str) -> bytes:
    status = node.status
    fields = [
        os.fsencode(node.path),
        node.kind.encode(),
        b"%o" % (status.st_mode & 0o7777),
        b"" if status.st_uid == owner[0] else b"%d" % status.st_uid,
        b"" if status.st_gid == owner[1] else b"%d" % status.st_gid,
        os.fsencode(node.target or ""),
        b"%d" % status.st_size if node.kind == "file" else b"",
        content,
        os.fsencode(same_as),
    ]
    for name, value in sorted(tree.xattrs_of(node).items()):
        fields += [os.fsencode(name), value]
    framed = b"".join(b"%d:%s" % (len(f), f) for f in fields)
    return b"%d:%s" % (len(framed), framed)


def _first_names(nodes: Iterable[Node]) -> dict[str, str]:
    """Map every further name of a file to its first one."""
    seen: dict[tuple[int, int, int], str] = {}
    further = {}
    for node in nodes:
        if node.kind == "dir" or node.status.st_nlink < 2:
            continue
        key = (node.layer, node.status.st_dev, node.status.st_ino)
        if key in seen:
            further[node.path] = seen[key]
        else:
            seen[key] = node.path
    return further


def _contents(files: Sequence[Node], workers: int | None) -> dict[str, bytes]:
    if workers is None:
        size = sum(n.status.st_size for n in files)
        pays = len(files) >= PAYS_FROM_FILES or size >= PAYS_FROM_BYTES
        workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS) if pays else 1
    if workers < 2 or len(files) < workers:
        return {n.path: hash_file(n.host) for n in files}
    shares: list[list[Node]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for node in files:
        least = loads.index(min(loads))
        shares[least].append(node)
        loads[least] += node.status.st_size + 40_000
    jobs = [_Worker(share) for share in shares]
    try:
        return {path: content for job in jobs for path, content in job.result()}
    finally:
        for job in jobs:
            job.close()


class _Worker:
    """One worker process; it reads and writes anonymous files, so that neither side can block the other."""

    def __init__(self, share: Sequence[Node]) -> None:
        self._share = share
        self._files = [os.fdopen(os.memfd_create(f"hash-{name}"), "w+b") for name in ("in", "out", "err")]
        paths, out, err = self._files
        paths.write(b"\0".join(os.fsencode(n.host) for n in share))
        paths.seek(0)
        script = Path(__file__).with_name("hashing.py")
        # -P: this directory must not come first on the path, where copy.py would hide the standard library's.
        self._process = subprocess.Popen([sys.executable, "-P", str(script)], stdin=paths, stdout=out, stderr=err)

    def result(self) -> list[tuple[str, bytes]]:
        # Far slower than any disk seen: 20 MB and 500 files a second.
        limit = 60 + sum(n.status.st_size for n in self._share) / 20e6 + len(self._share) / 500
        code = self._process.wait(timeout=limit)
        _, out, err = self._files
        err.seek(0)
        out.seek(0)
        data = out.read()
        if code or len(data) != 32 * len(self._share):
            raise OSError(f"hashing failed: {err.read().decode(errors='replace')[-500:]}")
        return [(n.path, data[32 * i : 32 * i + 32]) for i, n in enumerate(self._share)]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for file in self._files:
            file.close()
