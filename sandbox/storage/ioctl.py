"""The few kernel calls that Python does not wrap: file clones, extent maps, btrfs subvolumes.

Called directly rather than through `cp` and `btrfs`: no program is needed, and none has to be started for each file.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass

_FICLONE = 0x40049409
_FIEMAP = 0xC020660B
_FIEMAP_SYNC = 1
_EXTENT_LAST = 0x1
# Unknown, delayed, encoded, encrypted, not aligned, inline, tail: the physical address says nothing about the content.
_EXTENT_VAGUE = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
_EXTENT_UNWRITTEN = 0x800
_EXTENT_SHARED = 0x2000
_EXTENTS_A_CALL = 256
_FIEMAP_HEAD = struct.Struct("=QQLLLL")
_FIEMAP_EXTENT = struct.Struct("=QQQQQLLLL")

_SNAP_CREATE_V2 = 0x50009417
_SUBVOL_CREATE_V2 = 0x50009418
_SNAP_DESTROY = 0x5000940F
_SUBVOL_GETFLAGS = 0x80089419
_SUBVOL_SETFLAGS = 0x4008941A
_GET_SUBVOL_INFO = 0x81F8943C
_BTRFS_SYNC = 0x9408
_SUBVOL_RDONLY = 2
_VOL_ARGS = struct.Struct("=q4088s")
_VOL_ARGS_V2 = struct.Struct("=qQQ4Q4040s")
_SUBVOL_INFO = struct.Struct("=Q256sQQQQ16s16s16sQQQQ")
_SUBVOL_INFO_BYTES = 504


@dataclass(frozen=True, slots=True)
class Extent:
    logical: int
    physical: int
    length: int
    exact: bool  # the physical address identifies the content
    shared: bool
    unwritten: bool


@dataclass(frozen=True, slots=True)
class Subvolume:
    generation: int
    uuid: bytes
    parent_uuid: bytes
    made_at: int  # the generation at which it was made
    readonly: bool


def clone_file(source: int, target: int) -> None:
    """Let the open file `target` share every block of `source`; raise OSError where the filesystem cannot."""
    fcntl.ioctl(target, _FICLONE, source)


def extents(descriptor: int, *, sync: bool = True) -> list[Extent]:
    """Return the extent map of an open file; raise OSError where the filesystem has none."""
    found: list[Extent] = []
    start = 0
    while True:
        head = _FIEMAP_HEAD.pack(start, 0xFFFF_FFFF_FFFF_FFFF - start, _FIEMAP_SYNC if sync else 0, 0, _EXTENTS_A_CALL, 0)
        buffer = bytearray(head + bytes(_FIEMAP_EXTENT.size * _EXTENTS_A_CALL))
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        count = _FIEMAP_HEAD.unpack_from(buffer)[3]
        last = count == 0
        for i in range(count):
            logical, physical, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(
                buffer, _FIEMAP_HEAD.size + i * _FIEMAP_EXTENT.size
            )
            exact = not flags & _EXTENT_VAGUE
            found.append(Extent(logical, physical, length, exact, bool(flags & _EXTENT_SHARED), bool(flags & _EXTENT_UNWRITTEN)))
            start = logical + length
            last = last or bool(flags & _EXTENT_LAST)
        if last:
            return found


def create_subvolume(parent: int, name: str) -> None:
    fcntl.ioctl(parent, _SUBVOL_CREATE_V2, bytearray(_VOL_ARGS_V2.pack(0, 0, 0, 0, 0, 0, 0, os.fsencode(name))))


def snapshot_subvolume(source: int, parent: int, name: str) -> None:
    """Make a writable snapshot of the subvolume open at `source`."""
    fcntl.ioctl(parent, _SNAP_CREATE_V2, bytearray(_VOL_ARGS_V2.pack(source, 0, 0, 0, 0, 0, 0, os.fsencode(name))))


def destroy_subvolume(parent: int, name: str) -> None:
    fcntl.ioctl(parent, _SNAP_DESTROY, bytearray(_VOL_ARGS.pack(0, os.fsencode(name))))


def set_readonly(subvolume: int, readonly: bool) -> None:
    flags = bytearray(8)
    fcntl.ioctl(subvolume, _SUBVOL_GETFLAGS, flags)
    (value,) = struct.unpack("=Q", flags)
    value = value | _SUBVOL_RDONLY if readonly else value & ~_SUBVOL_RDONLY
    fcntl.ioctl(subvolume, _SUBVOL_SETFLAGS, struct.pack("=Q", value))


def subvolume(descriptor: int) -> Subvolume:
    """Return what btrfs keeps about the subvolume in which the open directory lies."""
    buffer = bytearray(_SUBVOL_INFO_BYTES)
    fcntl.ioctl(descriptor, _GET_SUBVOL_INFO, buffer)
    _, _, _, _, generation, flags, uuid, parent, _, _, made_at, *_ = _SUBVOL_INFO.unpack_from(buffer)
    # The root item's own read-only bit is bit 0; bit 1 is its number in the get and set calls.
    return Subvolume(generation, uuid, parent, made_at, bool(flags & 1))


def commit(descriptor: int) -> None:
    """Write the filesystem's running transaction, so that generations are up to date."""
    fcntl.ioctl(descriptor, _BTRFS_SYNC)
