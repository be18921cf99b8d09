"""Cloning directories: btrfs, reflink, overlay or copy, chosen by trying them, each clone proven equal to its origin."""

from __future__ import annotations

from sandbox.aio import in_thread
from sandbox.ports import Storage
from sandbox.settings import Settings
from sandbox.storage.background import delete_tree
from sandbox.storage.choose import METHODS, choose, describe
from sandbox.storage.digest import TreeDigest, digest_tree
from sandbox.storage.places import HOME
from sandbox.storage.store import MethodReport, Store
from sandbox.storage.tree import LayeredTree, PlainTree

__all__ = [
    "HOME",
    "METHODS",
    "LayeredTree",
    "MethodReport",
    "PlainTree",
    "TreeDigest",
    "delete_tree",
    "describe",
    "digest_tree",
    "open_storage",
]


async def open_storage(settings: Settings, *, method: str | None = None) -> Storage:
    """Open the store of these settings. `method` (else `settings.storage`) "auto" takes the first of btrfs, reflink, overlay and
    copy that works there; a name forces that one, and raises RuntimeUnavailable with a fix where it does not work."""
    places, reports = await in_thread(choose, settings, method or settings.storage)
    return await in_thread(Store, places, METHODS, reports)
