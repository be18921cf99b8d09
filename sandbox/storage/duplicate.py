"""Copying a tree so that nothing of it is lost: owners, modes, links, hard links, xattrs, times, holes.

Also the names of the few xattrs that overlays keep for themselves, and what becomes of them when a layer is frozen.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from sandbox.storage.ioctl import clone_file
from sandbox.storage.tree import HOST_XATTRS, HostTree, Node, PlainTree, raw_xattrs

XattrName = Callable[[str], str | None]
_MARK = "user.overlay."
# What the kernel notes for the running mount only: meaningless, and possibly misleading, in a layer of another one.
_BOOKKEEPING = frozenset(_MARK + name for name in ("origin", "impure", "nlink", "uuid", "upper"))


def same_name(name: str) -> str | None:
    return name


def without_bookkeeping(name: str) -> str | None:
    """For an upper that becomes a layer: keep what hides and what is escaped, drop the mount's notes."""
    return None if name in _BOOKKEEPING else name


def escaped(name: str) -> str | None:
    """For a plain tree that becomes a layer: the kernel must show the state's own `user.overlay.x`, not obey it."""
    return f"{_MARK}overlay.{name.removeprefix(_MARK)}" if name.startswith(_MARK) else name


def copy_tree(source: HostTree, target: Path, *, share_blocks: bool = False, xattr_name: XattrName = same_name) -> None:
    """Copy `source` to `target`, which must not exist. With `share_blocks` a file that cannot share is an error. Blocking."""
    first_names: dict[tuple[int, int, int], str] = {}
    top = source.top()
    directories = [(top, os.fspath(target))]
    os.mkdir(target, 0o700)
    for node in source.nodes():
        place = f"{target}/{node.path}"
        if stat.S_ISDIR(node.status.st_mode):
            os.mkdir(place, 0o700)
            directories.append((node, place))
            continue
        if node.status.st_nlink > 1:
            key = (node.layer, node.status.st_dev, node.status.st_ino)
            if key in first_names:
                os.link(first_names[key], place, follow_symlinks=False)
                continue
            first_names[key] = place
        _copy_one(node, place, source, share_blocks, xattr_name)
    # Last and from below, since filling a directory changes its times and may need rights that it does not grant.
    for node, place in reversed(directories):
        _dress(node, place, source, xattr_name)


def rename_xattrs(top: Path, xattr_name: XattrName) -> None:
    """Rename or drop xattrs of a tree in place; only for one that nothing uses."""
    tree = PlainTree(top)
    for node in [tree.top(), *tree.nodes()]:
        for name, value in raw_xattrs(node.host).items():
            new = xattr_name(name)
            if new == name:
                continue
            mode = stat.S_IMODE(node.status.st_mode)
            closed = os.geteuid() != 0 and not mode & 0o200
            if closed:
                os.chmod(node.host, mode | 0o200)
            if new is not None:
                os.setxattr(node.host, new, value, follow_symlinks=False)
            os.removexattr(node.host, name, follow_symlinks=False)
            if closed:
                os.chmod(node.host, mode)


def _copy_one(node: Node, place: str, source: HostTree, share_blocks: bool, xattr_name: XattrName) -> None:
    mode = node.status.st_mode
    if stat.S_ISREG(mode):
        _copy_file(node, place, source, share_blocks, xattr_name)
        return
    if stat.S_ISLNK(mode):
        os.symlink(node.target or "", place)
    else:
        os.mknod(place, stat.S_IFMT(mode) | 0o600, node.status.st_rdev)
    _dress(node, place, source, xattr_name)


def _copy_file(node: Node, place: str, source: HostTree, share_blocks: bool, xattr_name: XattrName) -> None:
    reading = os.open(node.host, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writing = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if share_blocks:
                clone_file(reading, writing)
            else:
                _copy_content(reading, writing, node.status)
            _dress(node, writing, source, xattr_name)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_content(reading: int, writing: int, status: os.stat_result) -> None:
    if status.st_blocks * 512 >= status.st_size:
        _copy_range(reading, writing, 0, status.st_size)
        return
    position = 0
    while position < status.st_size:
        try:
            start = os.lseek(reading, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                break
            raise
        position = os.lseek(reading, start, os.SEEK_HOLE)
        _copy_range(reading, writing, start, position - start)
    os.ftruncate(writing, status.st_size)


def _copy_range(reading: int, writing: int, start: int, length: int) -> None:
    os.lseek(reading, start, os.SEEK_SET)
    os.lseek(writing, start, os.SEEK_SET)
    while length:
        try:
            done = os.sendfile(writing, reading, None, min(length, 1 << 30))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            done = os.write(writing, os.read(reading, min(length, 1 << 20)))
        if not done:
            raise OSError(errno.EIO, "the file shrank while it was copied")
        length -= done


def _dress(node: Node, place: str | int, source: HostTree, xattr_name: XattrName) -> None:
    """Give the copy its owner, xattrs, mode and times, in the order in which one does not undo another."""
    status = node.status
    link = stat.S_ISLNK(status.st_mode)
    opened = isinstance(place, int)
    if os.geteuid() == 0 or status.st_gid != os.getegid():
        if opened:
            os.chown(place, status.st_uid, status.st_gid)
        else:
            os.chown(place, status.st_uid, status.st_gid, follow_symlinks=False)
    for stored, value in source.xattrs_of(node).items():
        name = xattr_name(stored)
        if name is None or name in HOST_XATTRS:
            continue
        if opened:
            os.setxattr(place, name, value)
        else:
            os.setxattr(place, name, value, follow_symlinks=False)
    if not link:
        os.chmod(place, stat.S_IMODE(status.st_mode))
    times = (status.st_atime_ns, status.st_mtime_ns)
    if opened:
        os.utime(place, ns=times)
    else:
        os.utime(place, ns=times, follow_symlinks=False)
