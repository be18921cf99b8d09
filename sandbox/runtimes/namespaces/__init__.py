"""The embedded runtime: instances made of bubblewrap sandboxes on this machine, from PyPI packages alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.ports import Runtime, Storage
    from sandbox.settings import Settings

__all__ = ["create"]


def create(settings: Settings, storage: Storage) -> Runtime:
    """Make the runtime. Imported here, so that a part of this package can be used without the others."""
    from sandbox.runtimes.group.runtime import GroupRuntime
    from sandbox.runtimes.namespaces.boxes import NamespaceBoxes

    return GroupRuntime(settings, storage, NamespaceBoxes(settings))
