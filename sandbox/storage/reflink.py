"""Clones that share every block until one side writes (XFS, btrfs, bcachefs). Cost goes by the number of files, not by bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import zip_longest

from sandbox.model import IdentityProof
from sandbox.storage.copy import Copy
from sandbox.storage.ioctl import extents
from sandbox.storage.method import Layout
from sandbox.storage.tree import HostTree, Node, PlainTree

METHOD = "shared-extents"


class Reflink(Copy):
    """One directory for each clone, its files sharing blocks with the sealed ones."""

    name = "reflink"
    share_blocks = True

    def prove(self, layers: Sequence[str], layout: Layout) -> IdentityProof:
        return same_tree(PlainTree(layers[0]), PlainTree(layout.layers[0]))

    def beyond(self, layout: Layout) -> int:
        return own_bytes(PlainTree(layout.layers[0]))


def own_bytes(tree: HostTree) -> int:
    """Return the bytes whose blocks no other file shares."""
    total = 0
    seen: set[int] = set()
    for node in tree.nodes(skip_unreadable=True):
        if node.kind != "file" or not node.status.st_size or node.status.st_ino in seen:
            continue
        seen.add(node.status.st_ino)
        try:
            descriptor = os.open(node.host, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            total += node.status.st_size
            continue
        try:
            total += sum(e.length for e in extents(descriptor, sync=False) if not e.shared)
        finally:
            os.close(descriptor)
    return total


def same_tree(origin: HostTree, clone: HostTree) -> IdentityProof:
    """Prove that both trees have the same entries and that every file lies on the same blocks; where a filesystem keeps a file
    inside its own metadata, that file's bytes are compared."""
    first, second = origin.top(), clone.top()
    if (reason := _difference(first, second, origin, clone)) is not None:
        return IdentityProof(method=METHOD, holds=False, detail=f"the top directory: {reason}")
    names: dict[int, str] = {}
    clone_names: dict[int, str] = {}
    for a, b in zip_longest(origin.nodes(), clone.nodes()):
        if a is None or b is None or a.path != b.path:
            missing = a is not None and (b is None or a.path.split("/") < b.path.split("/"))
            path = a.path if missing and a is not None else b.path if b is not None else ""
            return IdentityProof(method=METHOD, holds=False, detail=f"{path!r} is only in the {'origin' if missing else 'clone'}")
        reason = _difference(a, b, origin, clone)
        if reason is None and a.kind != "dir" and a.status.st_nlink > 1:
            same = names.setdefault(a.status.st_ino, a.path) == clone_names.setdefault(b.status.st_ino, b.path)
            reason = None if same else "is another file's hard link"
        if reason is not None:
            return IdentityProof(method=METHOD, holds=False, detail=f"{a.path!r}: {reason}")
    return IdentityProof(method=METHOD, holds=True)


def _difference(a: Node, b: Node, origin: HostTree, clone: HostTree) -> str | None:
    first, second = a.status, b.status
    for what, x, y in (
        ("kind and mode", f"{first.st_mode:o}", f"{second.st_mode:o}"),
        ("owner", first.st_uid, second.st_uid),
        ("group", first.st_gid, second.st_gid),
        ("link target", a.target, b.target),
        ("hard links", first.st_nlink if a.kind != "dir" else 0, second.st_nlink if b.kind != "dir" else 0),
        ("size", first.st_size if a.kind == "file" else 0, second.st_size if b.kind == "file" else 0),
        ("device", first.st_rdev, second.st_rdev),
    ):
        if x != y:
            return f"{what} is {y} instead of {x}"
    if origin.xattrs_of(a) != clone.xattrs_of(b):
        return "extended attributes differ"
    if a.kind == "file" and first.st_size and not _same_content(a.host, b.host):
        return "content differs"
    return None


def _same_content(first: str, second: str) -> bool:
    a = os.open(first, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        b = os.open(second, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return _same_blocks(a, b) or _same_bytes(a, b)
        finally:
            os.close(b)
    finally:
        os.close(a)


def _same_blocks(a: int, b: int) -> bool:
    try:
        first, second = extents(a), extents(b)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP):
            return False
        raise
    if not all(e.exact for e in (*first, *second)):
        return False
    return [(e.logical, e.physical, e.length, e.unwritten) for e in first] == [
        (e.logical, e.physical, e.length, e.unwritten) for e in second
    ]


def _same_bytes(a: int, b: int) -> bool:
    position = 0
    while True:
        first, second = os.pread(a, 1 << 20, position), os.pread(b, 1 << 20, position)
        if first != second:
            return False
        if not first:
            return True
        position += len(first)
