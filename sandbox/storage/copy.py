"""Plain copies: work everywhere, cost what the state weighs. A clone is proven by its digest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sandbox.model import IdentityProof
from sandbox.storage.digest import digest_tree
from sandbox.storage.duplicate import copy_tree
from sandbox.storage.method import Layout, Owner, allocated
from sandbox.storage.tree import HostTree, PlainTree


class Copy:
    """One plain directory for each clone."""

    name = "copy"
    clones_in_scratch = False
    share_blocks = False

    def blank(self, holder: Path, owner: Owner) -> Layout:
        tree = holder / "tree"
        tree.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(tree, owner.uid, owner.gid)
        return Layout(holder=holder, layers=(str(tree),))

    def clone(self, layers: Sequence[str], holder: Path) -> Layout:
        copy_tree(PlainTree(layers[0]), holder / "tree", share_blocks=self.share_blocks)
        return Layout(holder=holder, layers=(str(holder / "tree"),))

    def prove(self, layers: Sequence[str], layout: Layout) -> IdentityProof:
        return digests_equal(PlainTree(layers[0]), PlainTree(layout.layers[0]))

    def tree(self, layout: Layout) -> HostTree:
        return PlainTree(layout.layers[0])

    def sealed_tree(self, layers: Sequence[str]) -> HostTree:
        return PlainTree(layers[0])

    def beyond(self, layout: Layout) -> int:
        return allocated(PlainTree(layout.layers[0]))

    def seal_needs(self, layout: Layout) -> int:
        return self.beyond(layout)

    def seal(self, layout: Layout, holder: Path) -> tuple[str, ...]:
        target = str(holder / "tree")
        os.rename(layout.layers[0], target)
        return (target,)

    def release(self, holder: Path) -> None:
        return


def digests_equal(origin: HostTree, clone: HostTree) -> IdentityProof:
    """Prove by reading both trees whole."""
    expected, actual = digest_tree(origin), digest_tree(clone)
    if expected.digest == actual.digest:
        return IdentityProof(method="digest", holds=True)
    return IdentityProof(
        method="digest", holds=False, detail=f"the clone's digest is {actual.digest}, its origin's {expected.digest}"
    )
