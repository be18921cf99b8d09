"""Clones as overlays: an empty upper over immutable layers. Nothing is copied until it is written, and then the whole file.

The mount itself is made by the sandbox, in its own user namespace (option `userxattr`); here lie its directories. A sealed layer is
never modified: the kernel writes to the upper only, and verification re-digests the layers. It keeps its owner and modes, since a
database refuses a data directory that is not its own, so it is the mount and not the mode that keeps a sandbox from writing to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from sandbox.model import IdentityProof
from sandbox.storage.copy import Copy
from sandbox.storage.duplicate import copy_tree, escaped, rename_xattrs, without_bookkeeping
from sandbox.storage.method import Layout, allocated
from sandbox.storage.tree import HostTree, LayeredTree, PlainTree, raw_xattrs

METHOD = "empty-upper"
MOST_LAYERS = 8


class Overlay(Copy):
    """An upper and a work directory for each clone. What is blank is a plain directory until it is sealed."""

    name = "overlay"
    clones_in_scratch = True

    def clone(self, layers: Sequence[str], holder: Path) -> Layout:
        upper, work = holder / "upper", holder / "work"
        top = os.lstat(layers[0])
        for directory in (upper, work):
            directory.mkdir(mode=0o700)
            if os.geteuid() == 0 or top.st_gid != os.getegid():
                os.chown(directory, top.st_uid, top.st_gid)
        # The mount's root shows the upper's own attributes, so they must be those of the state.
        for name, value in raw_xattrs(layers[0]).items():
            if without_bookkeeping(name) is not None and name != "user.overlay.opaque":
                os.setxattr(upper, name, value)
        os.chmod(upper, stat.S_IMODE(top.st_mode))
        os.utime(upper, ns=(top.st_atime_ns, top.st_mtime_ns))
        return Layout(holder=holder, layers=tuple(layers), upper=str(upper), work=str(work))

    def prove(self, layers: Sequence[str], layout: Layout) -> IdentityProof:
        """The upper is empty with the state's own top attributes, and the layers are exactly the sealed ones."""
        if layout.upper is None or layout.work is None or layout.layers != tuple(layers):
            return IdentityProof(method=METHOD, holds=False, detail="the clone's layers are not those that were sealed")
        for layer in layers:
            if not os.path.isdir(layer):
                return IdentityProof(method=METHOD, holds=False, detail=f"the sealed layer {layer} is gone")
        found = sorted(os.listdir(layout.upper))
        if found:
            return IdentityProof(method=METHOD, holds=False, detail=f"{layout.upper} holds {', '.join(map(repr, found[:5]))}")
        if LayeredTree([layout.upper, *layers], upper=True).changed():
            return IdentityProof(method=METHOD, holds=False, detail="the top directory's owner, mode or xattrs changed")
        return IdentityProof(method=METHOD, holds=True)

    def tree(self, layout: Layout) -> HostTree:
        if layout.upper is None:
            return PlainTree(layout.layers[0])
        return LayeredTree([layout.upper, *layout.layers], upper=True)

    def sealed_tree(self, layers: Sequence[str]) -> HostTree:
        return LayeredTree(layers)

    def beyond(self, layout: Layout) -> int:
        """A file that was only opened for writing was copied up whole (a server opens all its tables so, for our probes too): it
        counts with what it has grown."""
        if layout.upper is None:
            return allocated(PlainTree(layout.layers[0]))
        lower = LayeredTree(layout.layers)
        return allocated(PlainTree(layout.upper), known=lambda path: _held(lower, path))

    def seal_needs(self, layout: Layout) -> int:
        if layout.upper is not None and len(layout.layers) >= MOST_LAYERS:
            return allocated(self.tree(layout))
        return allocated(PlainTree(layout.upper or layout.layers[0]))

    def seal(self, layout: Layout, holder: Path) -> tuple[str, ...]:
        target = holder / "tree"
        if layout.upper is None:
            rename_xattrs(Path(layout.layers[0]), escaped)
            os.rename(layout.layers[0], target)
            return (str(target),)
        if len(layout.layers) >= MOST_LAYERS:
            copy_tree(self.tree(layout), target, xattr_name=escaped)
            return (str(target),)
        if os.lstat(layout.upper).st_dev == os.lstat(holder).st_dev:
            rename_xattrs(Path(layout.upper), without_bookkeeping)
            os.rename(layout.upper, target)
        else:
            copy_tree(PlainTree(layout.upper), target, xattr_name=without_bookkeeping)
        return (str(target), *layout.layers)


def _held(lower: LayeredTree, path: str) -> int:
    """Return the bytes that a file of the layers takes; nothing where there is none, or it cannot be looked at."""
    try:
        node = lower.node(path)
    except OSError:
        return 0
    return node.status.st_blocks * 512 if node is not None and node.kind == "file" else 0
