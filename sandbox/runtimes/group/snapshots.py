"""Making a snapshot of an instance's directories."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

from sandbox.model import EnvironmentSpec, SealedDir, Snapshot, SnapshotId
from sandbox.ports import Clone, Storage
from sandbox.runtimes.group.plans import Plans


async def seal_all(storage: Storage, plans: Plans, clones: Mapping[str, Clone]) -> tuple[SealedDir, ...]:
    """Seal every directory; when one fails, those that were sealed before are removed again."""
    sealed: list[SealedDir] = []
    try:
        for state in plans.states:
            sealed.append(await storage.seal(clones[state.name]))
    except BaseException:
        for directory in sealed:
            await storage.remove(directory)
        raise
    return tuple(sealed)


def joined(
    spec: EnvironmentSpec, dirs: Sequence[SealedDir], storage: Storage, *, parent: SnapshotId | None, task: str | None, runtime: str
) -> Snapshot:
    """Make one snapshot of sealed directories; its digest covers each name and digest."""
    hasher = hashlib.blake2b(digest_size=16)
    for directory in sorted(dirs, key=lambda d: d.name):
        hasher.update(f"{directory.name}\0{directory.role}\0{directory.digest}\0".encode())
    return Snapshot(
        id=SnapshotId(f"{spec.name}-{secrets.token_hex(6)}"),
        environment=spec.digest,
        digest=hasher.hexdigest(),
        dirs=tuple(dirs),
        parent=parent,
        task=task,
        storage=storage.name,
        runtime=runtime,
    )
