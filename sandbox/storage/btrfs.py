"""Clones as btrfs snapshots: one metadata operation whatever the size, and the state's blocks are copied only where written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.errors import EnvironmentInvalid
from sandbox.model import IdentityProof
from sandbox.storage import ioctl
from sandbox.storage.method import Layout, Owner, allocated
from sandbox.storage.reflink import own_bytes, same_tree
from sandbox.storage.tree import HostTree, PlainTree

METHOD = "subvolume-generation"
_SUBVOLUME_INODE = 256


class Btrfs:
    """One subvolume for each clone; sealed ones are read-only by the filesystem itself."""

    name = "btrfs"
    clones_in_scratch = False

    def blank(self, holder: Path, owner: Owner) -> Layout:
        tree = holder / "tree"
        with opened(holder) as parent:
            ioctl.create_subvolume(parent, "tree")
        os.chmod(tree, 0o700)
        if os.geteuid() == 0:
            os.chown(tree, owner.uid, owner.gid)
        return Layout(holder=holder, layers=(str(tree),))

    def clone(self, layers: Sequence[str], holder: Path) -> Layout:
        with opened(Path(layers[0])) as source, opened(holder) as parent:
            ioctl.snapshot_subvolume(source, parent, "tree")
        return Layout(holder=holder, layers=(str(holder / "tree"),))

    def prove(self, layers: Sequence[str], layout: Layout) -> IdentityProof:
        """A snapshot whose generation is still that of its making was not written since; its parent must be the sealed subvolume,
        read-only. Where the generation moved all the same, both trees are compared."""
        with opened(Path(layers[0])) as source, opened(Path(layout.layers[0])) as clone:
            ioctl.commit(clone)
            origin, copy = ioctl.subvolume(source), ioctl.subvolume(clone)
        if not origin.readonly:
            return IdentityProof(method=METHOD, holds=False, detail="the sealed subvolume is not read-only")
        if copy.parent_uuid != origin.uuid:
            return IdentityProof(method=METHOD, holds=False, detail="the clone is not a snapshot of the sealed subvolume")
        if copy.generation == copy.made_at:
            return IdentityProof(method=METHOD, holds=True)
        return same_tree(PlainTree(layers[0]), PlainTree(layout.layers[0]))

    def tree(self, layout: Layout) -> HostTree:
        return PlainTree(layout.layers[0])

    def sealed_tree(self, layers: Sequence[str]) -> HostTree:
        return PlainTree(layers[0])

    def beyond(self, layout: Layout) -> int:
        return own_bytes(PlainTree(layout.layers[0]))

    def seal_needs(self, layout: Layout) -> int:
        return min(self.beyond(layout), allocated(PlainTree(layout.layers[0])))

    def seal(self, layout: Layout, holder: Path) -> tuple[str, ...]:
        tree = PlainTree(layout.layers[0])
        device = tree.top().status.st_dev
        for node in tree.nodes():
            # Anyone may make a subvolume below a directory of theirs, and a snapshot holds an empty directory in its place.
            if node.kind == "dir" and (node.status.st_dev != device or node.status.st_ino == _SUBVOLUME_INODE):
                raise EnvironmentInvalid(
                    f"cannot save the state: {node.path!r} is a subvolume of its own, which a snapshot would leave empty",
                    fix="Make it a plain directory",
                )
        target = holder / "tree"
        os.rename(layout.layers[0], target)
        with opened(target) as sealed:
            ioctl.set_readonly(sealed, True)
        return (str(target),)

    def release(self, holder: Path) -> None:
        """Destroy the subvolume; where the mount does not let an ordinary user, make it deletable file by file."""
        tree = holder / "tree"
        if not tree.is_dir():
            return
        with opened(holder) as parent:
            with opened(tree) as subvolume, suppress(OSError):
                ioctl.set_readonly(subvolume, False)
            with suppress(OSError):
                ioctl.destroy_subvolume(parent, "tree")


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
