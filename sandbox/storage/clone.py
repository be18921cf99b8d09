"""A clone as its users hold it: a thin handle on what the store made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.clock import SystemClock
from sandbox.errors import SnapshotMissing
from sandbox.model import IdentityProof, Role, SealedDir
from sandbox.ports import Mount, Tree
from sandbox.storage.method import Layout, Method


class StoredClone:
    """A writable state directory. A blank one has an origin without layers."""

    def __init__(
        self, *, origin: SealedDir, layout: Layout, method: Method, destroy: Callable[[StoredClone], Awaitable[None]]
    ) -> None:
        self._origin = origin
        self._layout = layout
        self._method = method
        self._destroy = destroy
        self._gone = False

    @property
    def origin(self) -> SealedDir:
        return self._origin

    @property
    def role(self) -> Role:
        return self._origin.role

    @property
    def layout(self) -> Layout:
        """Where it lies; raise SnapshotMissing once it was sealed or destroyed."""
        if self._gone:
            raise SnapshotMissing(f"the clone of {self._origin.name!r} was already sealed or destroyed", fix="Make another clone")
        return self._layout

    @property
    def holder(self) -> Path:
        return self._layout.holder

    @property
    def blank(self) -> bool:
        return not self._origin.layers

    def mount(self, target: str, *, readonly: bool = False) -> Mount:
        """Return how a sandbox sees it. Read-only, an overlay's upper is its top layer, and nothing may write to it meanwhile."""
        layout = self.layout
        if layout.upper is None:
            return Mount(target=target, layers=layout.layers, readonly=readonly)
        if readonly:
            return Mount(target=target, layers=(layout.upper, *layout.layers), readonly=True)
        return Mount(target=target, layers=layout.layers, upper=layout.upper, work=layout.work)

    def tree(self) -> Tree:
        return self._method.tree(self.layout)

    async def prove(self) -> IdentityProof:
        layout = self.layout
        if self.blank:
            return IdentityProof(method="digest", holds=False, detail="a blank directory has no origin")
        return await in_thread(_timed, self._method, self._origin, layout)

    async def usage_bytes(self) -> int:
        return await in_thread(self._method.beyond, self.layout)

    async def destroy(self) -> None:
        if not self._gone:
            self._gone = True
            await self._destroy(self)

    def consumed(self) -> Layout:
        """Mark it as used up and return where it lay."""
        layout = self.layout
        self._gone = True
        return layout


def _timed(method: Method, origin: SealedDir, layout: Layout) -> IdentityProof:
    clock = SystemClock()
    start = clock.monotonic()
    try:
        proof = method.prove(origin.layers, layout)
    except OSError as error:
        proof = IdentityProof(method=method.name, holds=False, detail=f"the clone could not be read: {error}")
    return replace(proof, seconds=clock.monotonic() - start)
