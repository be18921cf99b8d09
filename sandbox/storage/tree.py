"""The host's own view of a state directory: nothing of the agent's is run, no link is followed.

A `LayeredTree` reads the layers of an overlay as the kernel merges them (checked against the kernel in the tests), for mounts made
with the `userxattr` option inside a user namespace: deleted names are character devices 0/0 or empty files with the xattr
`overlay.whiteout`, a directory that hides what is below carries `overlay.opaque` = "y", and an agent's own `user.overlay.x` is
stored escaped as `user.overlay.overlay.x`, so that it cannot forge either.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sandbox.ports import TreeEntry

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
}
# The host's label, not the state's: it differs with the place of the store.
HOST_XATTRS = frozenset({"security.selinux"})


class Node(NamedTuple):
    """One path of a tree with what the host knows of it: `host` is where it lies, `layer` in which layer (0 is the top)."""

    path: str
    status: os.stat_result
    host: str
    layer: int
    below: tuple[tuple[int, str], ...]  # of a directory: every host directory that it merges, top first

    @property
    def kind(self) -> str:
        return KINDS[stat.S_IFMT(self.status.st_mode)]

    @property
    def target(self) -> str | None:
        return os.readlink(self.host) if stat.S_ISLNK(self.status.st_mode) else None

    def entry(self) -> TreeEntry:
        s = self.status
        return TreeEntry(
            path=self.path,
            kind=self.kind,
            mode=stat.S_IMODE(s.st_mode),
            uid=s.st_uid,
            gid=s.st_gid,
            size=s.st_size,
            mtime_ns=s.st_mtime_ns,
            ctime_ns=s.st_ctime_ns,
            inode=s.st_ino,
            links=s.st_nlink,
            target=self.target,
        )


class HostTree(ABC):
    """What plain and layered trees share. Blocking; call it in a thread."""

    @abstractmethod
    def top(self) -> Node: ...
    @abstractmethod
    def children(self, node: Node) -> Mapping[str, Node]: ...
    @abstractmethod
    def node(self, path: str) -> Node | None: ...
    @abstractmethod
    def xattrs_of(self, node: Node) -> Mapping[str, bytes]: ...
    @abstractmethod
    def root_of(self, node: Node) -> str:
        """Return the layer's own top on the host."""

    @abstractmethod
    def changed(self) -> frozenset[str] | None: ...

    def nodes(self, top: str = "", *, skip_unreadable: bool = False) -> Iterator[Node]:
        """Yield every node below `top`, sorted by path component. `skip_unreadable` is for estimates only."""
        start = self._existing(top)
        if not stat.S_ISDIR(start.status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), top)
        stack = [start]
        while stack:
            node = stack.pop()
            if node is not start:
                yield node
            if stat.S_ISDIR(node.status.st_mode):
                try:
                    found = self.children(node)
                except PermissionError:
                    if not skip_unreadable:
                        raise
                    continue
                stack.extend(found[name] for name in sorted(found, reverse=True))

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        return (node.entry() for node in self.nodes(top))

    def entry(self, path: str) -> TreeEntry | None:
        node = self.node(path)
        return None if node is None else node.entry()

    def real(self, path: str) -> Path:
        return Path(self._existing(path).host)

    def read(self, path: str, limit: int | None = None) -> bytes:
        node = self._existing(path)
        with os.fdopen(open_beneath(self.root_of(node), path), "rb") as file:
            return file.read(-1 if limit is None else limit)

    def xattrs(self, path: str) -> Mapping[str, bytes]:
        return self.xattrs_of(self._existing(path))

    def _existing(self, path: str) -> Node:
        node = self.node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node


class PlainTree(HostTree):
    """The tree of one directory."""

    def __init__(self, top: Path | str) -> None:
        self._top = os.fspath(top)

    def top(self) -> Node:
        return Node("", os.lstat(self._top), self._top, 0, ())

    def children(self, node: Node) -> Mapping[str, Node]:
        prefix = f"{node.path}/" if node.path else ""
        with os.scandir(node.host) as found:
            return {e.name: Node(prefix + e.name, e.stat(follow_symlinks=False), e.path, 0, ()) for e in found}

    def node(self, path: str) -> Node | None:
        node = self.top()
        for name in parts(path):
            if not stat.S_ISDIR(node.status.st_mode):
                return None
            host = f"{node.host}/{name}"
            try:
                status = os.lstat(host)
            except FileNotFoundError:
                return None
            node = Node(f"{node.path}/{name}" if node.path else name, status, host, 0, ())
        return node

    def xattrs_of(self, node: Node) -> Mapping[str, bytes]:
        return raw_xattrs(node.host)

    def root_of(self, node: Node) -> str:
        return self._top

    def changed(self) -> frozenset[str] | None:
        return None


class LayeredTree(HostTree):
    """The merged tree of an overlay. `layers` top first; with `upper` True the first one is the writable upper."""

    def __init__(self, layers: Sequence[Path | str], *, upper: bool = False, namespace: str = "user") -> None:
        if not layers:
            raise ValueError("an overlay has at least one layer")
        self._layers = tuple(os.fspath(layer) for layer in layers)
        self._upper = upper
        self._prefix = f"{namespace}.overlay."

    def top(self) -> Node:
        below = self._until_opaque(list(enumerate(self._layers)))
        return Node("", os.lstat(self._layers[0]), self._layers[0], 0, below)

    def children(self, node: Node) -> Mapping[str, Node]:
        prefix = f"{node.path}/" if node.path else ""
        found: dict[str, list[tuple[int, os.DirEntry[str]]]] = {}
        for layer, directory in node.below:
            with os.scandir(directory) as entries:
                for entry in entries:
                    found.setdefault(entry.name, []).append((layer, entry))
        merged = ((name, self._merge(prefix + name, [(i, e.path) for i, e in stack])) for name, stack in found.items())
        return {name: child for name, child in merged if child is not None}

    def node(self, path: str) -> Node | None:
        node: Node | None = self.top()
        for name in parts(path):
            if node is None:
                break
            below = [(layer, f"{directory}/{name}") for layer, directory in node.below]
            node = self._merge(f"{node.path}/{name}" if node.path else name, below)
        return node

    def xattrs_of(self, node: Node) -> Mapping[str, bytes]:
        result = {}
        for name, value in raw_xattrs(node.host).items():
            if name.startswith(escaped := f"{self._prefix}overlay."):
                result[self._prefix + name.removeprefix(escaped)] = value
            elif not name.startswith(self._prefix):
                result[name] = value
        return result

    def root_of(self, node: Node) -> str:
        return self._layers[node.layer]

    def changed(self) -> frozenset[str] | None:
        """Return every path of the upper, and those that it hides; "" when the top itself was changed."""
        if not self._upper:
            return None
        lower = LayeredTree(self._layers[1:], namespace=self._prefix.split(".", 1)[0]) if len(self._layers) > 1 else None
        touched: set[str] = set()
        if lower is None or _differs(PlainTree(self._layers[0]).top(), lower.top(), self, lower):
            touched.add("")
        for node in PlainTree(self._layers[0]).nodes():
            touched.add(node.path)
            if lower is None or self._merges(node):
                continue
            hidden = lower.node(node.path)
            if hidden is not None and hidden.kind == "dir":
                touched.update(n.path for n in lower.nodes(node.path))
        return frozenset(touched)

    def _merge(self, path: str, stack: list[tuple[int, str]]) -> Node | None:
        """Return what the kernel shows for one name: the first that exists, directories merged with those below."""
        first: tuple[int, str, os.stat_result] | None = None
        below: list[tuple[int, str]] = []
        for layer, host in stack:
            try:
                status = os.lstat(host)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if self._whiteout(status, host):
                break
            directory = stat.S_ISDIR(status.st_mode)
            if first is None:
                first = (layer, host, status)
            elif not directory:
                break
            if not directory:
                break
            below.append((layer, host))
        if first is None:
            return None
        # Only a mount without `userxattr` can make one (its data would lie in a lower layer).
        if self._prefix.startswith("trusted") and self._mark(first[1], "metacopy") is not None:
            raise OSError(errno.EINVAL, "this overlay was mounted with metacopy, which cannot be read here", first[1])
        return Node(path, first[2], first[1], first[0], self._until_opaque(below))

    def _until_opaque(self, stack: list[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        if len(stack) > 1:
            for position, (_, host) in enumerate(stack):
                if self._mark(host, "redirect") is not None:
                    raise OSError(errno.EINVAL, "this overlay was mounted with redirect_dir, which cannot be read here", host)
                if self._mark(host, "opaque") == b"y":
                    return tuple(stack[: position + 1])
        return tuple(stack)

    def _whiteout(self, status: os.stat_result, host: str) -> bool:
        if stat.S_ISCHR(status.st_mode):
            return status.st_rdev == 0
        return stat.S_ISREG(status.st_mode) and status.st_size == 0 and self._mark(host, "whiteout") is not None

    def _merges(self, node: Node) -> bool:
        return node.kind == "dir" and self._mark(node.host, "opaque") != b"y"

    def _mark(self, host: str, name: str) -> bytes | None:
        try:
            return os.getxattr(host, self._prefix + name, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP):
                return None
            raise


def parts(path: str) -> list[str]:
    """Split a relative path; refuse what could lead out of the tree."""
    if not path:
        return []
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names):
        raise ValueError(f"a path inside a tree is relative and plain, not {path!r}")
    return names


def open_beneath(root: str, path: str) -> int:
    """Open a regular file below `root` for reading; no component may be a link, and a FIFO does not block."""
    names = parts(path)
    if not names:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), root)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory)
    finally:
        os.close(directory)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code), path)
    return descriptor


def raw_xattrs(host: str) -> dict[str, bytes]:
    """Return the extended attributes as stored, the host's own label left out."""
    try:
        names = os.listxattr(host, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    return {n: os.getxattr(host, n, follow_symlinks=False) for n in sorted(names) if n not in HOST_XATTRS}


def _differs(upper: Node, lower: Node, upper_tree: HostTree, lower_tree: HostTree) -> bool:
    a, b = upper.status, lower.status
    if (a.st_mode, a.st_uid, a.st_gid) != (b.st_mode, b.st_uid, b.st_gid):
        return True
    return upper_tree.xattrs_of(upper) != lower_tree.xattrs_of(lower)
