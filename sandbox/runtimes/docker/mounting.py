"""Mounts on the host that containers see: shown by propagation, taken away under whoever uses them. Blocking; root only.

A container's bind of a directory here is a slave of the mount that the directory lies in, so what is mounted at that directory
later appears inside at once, and goes when it is detached. Propagated copies keep the flags that a mount has at the moment when it
is attached; therefore binds are made and given their flags at a private place, and then moved.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Mount

_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _MOVE, _REC = 1, 2, 4, 32, 4096, 8192, 16384
_PRIVATE, _SHARED = 1 << 18, 1 << 20
_DETACH, _NOFOLLOW = 2, 8
_FLAGS = _NOSUID | _NODEV


def make_room(room: Path) -> None:
    """Make a directory whose mounts containers see, and beside it a private one in which binds are prepared. Idempotent."""
    for path, kind in ((room, _SHARED), (_workshop(room), _PRIVATE)):
        path.mkdir(mode=0o711, parents=True, exist_ok=True)
        if path not in _below(path):  # a bind on the same filesystem is no mount point to the usual test
            _mount(str(path), path, None, _BIND)
        _mount(None, path, None, _PRIVATE)
        _mount(None, path, None, kind)


def remove_room(room: Path) -> None:
    """Take everything away that is mounted below, and the directories. Nothing where there is none."""
    for path in (room, _workshop(room)):
        for point in reversed(_below(path)):
            detach(point)
        if path.is_dir():
            for folder, folders, files in os.walk(path, topdown=False):
                for name in (*folders, *files):
                    remove_point(Path(folder, name))
            path.rmdir()


def show(room: Path, mount: Mount, place: Path) -> None:
    """Mount what a plan asks for at `place`, which lies in the room."""
    layers = layers_of(mount)
    if len(layers) > 1 or (mount.upper is not None and not mount.readonly):
        _mount("overlay", place, overlay_options(mount), _FLAGS | (_RDONLY if mount.readonly else 0), kind="overlay")
        return
    made = _workshop(room) / place.name
    make_point(made, file=os.path.isfile(layers[0]))
    try:
        _mount(layers[0], made, None, _BIND)
        try:
            _mount(None, made, None, _PRIVATE)
            _mount(None, made, None, _REMOUNT | _BIND | _FLAGS | (_RDONLY if mount.readonly else 0))
            _mount(str(made), place, None, _MOVE)
        except OSError:
            detach(made)
            raise
    finally:
        remove_point(made)


def make_point(path: Path, *, file: bool) -> None:
    """Make what can be mounted at: an empty directory, or an empty file."""
    if file:
        path.touch(mode=0o644)
    else:
        path.mkdir(mode=0o755, exist_ok=True)


def remove_point(path: Path) -> None:
    """Remove it; nothing where it is gone."""
    try:
        path.rmdir()
    except NotADirectoryError:
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass


def show_memory(place: Path, megabytes: int) -> None:
    """Mount empty scratch space that anybody may write."""
    _mount("tmpfs", place, f"mode=1777,size={megabytes}m", _FLAGS, kind="tmpfs")


def detach(place: Path) -> None:
    """Take away what is mounted at `place` and below, here and in containers; nothing where nothing is."""
    if _libc().umount2(os.fsencode(place), _DETACH | _NOFOLLOW) != 0 and (code := ctypes.get_errno()) not in (22, 2):
        raise OSError(code, os.strerror(code), str(place))


def layers_of(mount: Mount) -> tuple[str, ...]:
    """Return the layers, top first; what may not be written to is a layer, too."""
    layers = (mount.upper, *mount.layers) if mount.upper is not None and mount.readonly else mount.layers
    if not layers:
        raise EnvironmentInvalid(f"the mount at {mount.target} has no directory behind it", fix="give it at least one layer")
    if mount.upper is None and not mount.readonly and len(layers) > 1:
        raise EnvironmentInvalid(
            f"the mount at {mount.target} has several layers and none to write to", fix="give it an upper, or make it readonly"
        )
    return layers


def overlay_options(mount: Mount) -> str:
    """The options of an overlay, in the form of those that bubblewrap mounts in a user namespace."""
    options = ["lowerdir=" + ":".join(_quoted(layer, ":") for layer in layers_of(mount))]
    if mount.upper is not None and not mount.readonly:
        if mount.work is None:
            raise EnvironmentInvalid(f"the overlay at {mount.target} has no work directory", fix="give it one beside its upper")
        options += [f"upperdir={_quoted(mount.upper)}", f"workdir={_quoted(mount.work)}"]
    return ",".join([*options, "userxattr"])


def _quoted(path: str, more: str = "") -> str:
    return "".join(f"\\{c}" if c in f"\\,{more}" else c for c in path)


def _workshop(room: Path) -> Path:
    return room.with_name(f"{room.name}-workshop")


def _below(path: Path) -> list[Path]:
    """Mount points at and below a directory, in the order in which they were made."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        points = [Path(_unescaped(line.split()[4])) for line in file]
    return [point for point in points if point == path or point.is_relative_to(path)]


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _mount(source: str | None, target: Path, data: str | None, flags: int, kind: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, str(target), kind)]
    if _libc().mount(*words, flags, None if data is None else os.fsencode(data)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot mount {kind or source or 'flags'}: {os.strerror(code)}", str(target))


def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    library.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
    return library
