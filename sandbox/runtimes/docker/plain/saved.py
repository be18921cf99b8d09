"""Saved states of a container: an image of its writable layer on the engine, and its volumes in the store.

The store holds one sealed directory for each: the image's id (which is a digest of all that it holds), and an archive of each
volume. The image goes when its directory has gone. It has a name, since `docker image prune` takes what has none; where somebody
removed it nevertheless, its snapshot is missing, and what it stood for is built again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, undo
from sandbox.errors import SnapshotMissing
from sandbox.model import EnvironmentSpec, Role, SealedDir, Snapshot, SnapshotId
from sandbox.ports import Clone, Storage
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import HOME, PART, SAVED, SNAPSHOT, TAG, Mark, saved_image
from sandbox.runtimes.docker.plain import archive
from sandbox.runtimes.docker.troubles import ImageMissing
from sandbox.settings import Settings

COMMIT_S = 600.0
_FILE = "container.json"
_PART = "/container"  # how the name of its sealed directory ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVolume:
    """One volume: the archive's name in the sealed directory, and the digest of what it holds."""

    file: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One saved state. `place` is the sealed directory on the host."""

    image: str
    volumes: Mapping[str, SavedVolume]
    place: Path

    def archive(self, target: str) -> Path:
        return self.place / self.volumes[target].file


def is_container(snapshot: Snapshot) -> bool:
    """True for a saved container; others are directories alone."""
    return any(sealed.name.endswith(_PART) for sealed in snapshot.dirs)


class Saver:
    """Saves stopped containers of one home, and removes what no snapshot stands on any more."""

    def __init__(self, settings: Settings, storage: Storage, engine: Engine) -> None:
        self._storage = storage
        self._engine = engine
        self._index = settings.home / "container-images"

    async def save(
        self, spec: EnvironmentSpec, resource: str, container: str, volumes: tuple[str, ...], *, parent: SnapshotId | None
    ) -> Snapshot:
        """Save a container that does not run. Nothing is left when that fails."""
        mark = Mark(home=self._engine.home, environment=spec.name, part=SNAPSHOT)
        clone = await self._storage.blank(f"{resource}{_PART}", Role.SERVER)
        try:
            image = await self._commit(container, mark)
            sealed = await self._seal(clone, container, image, volumes)
            await in_thread(self._record, mark.tag, sealed)
        except BaseException as error:
            await undo(error, clone.destroy(), self._forget_image(mark.tag))
            raise
        digest = hashlib.blake2b(f"{sealed.name}\0{sealed.digest}".encode(), digest_size=16).hexdigest()
        return Snapshot(
            id=SnapshotId(f"{spec.name}-{secrets.token_hex(6)}"),
            environment=spec.digest,
            digest=digest,
            dirs=(sealed,),
            parent=parent,
            storage=self._storage.name,
            runtime="docker",
        )

    async def _commit(self, container: str, mark: Mark) -> str:
        def work(client: Any) -> str:
            return str(client.commit(container, repository=SAVED, tag=mark.tag, conf={"Labels": mark.labels()})["Id"])

        return await self._engine.call(work, doing="saving a container's writable layer", limit_s=COMMIT_S)

    async def _seal(self, clone: Clone, container: str, image: str, volumes: tuple[str, ...]) -> SealedDir:
        mount = clone.mount("/")
        place = Path(mount.upper or mount.layers[0])  # blank, and mounted nowhere
        found: dict[str, dict[str, str]] = {}
        for number, target in enumerate(volumes):
            path = place / f"volume{number}.tar"

            def work(client: Any, target: str = target, path: Path = path) -> str:
                with path.open("wb") as file:
                    archive.fetch(client, container, target, file)
                with path.open("rb") as file:
                    return archive.digest_of(archive.lines_of(file))

            digest = await self._engine.call(work, doing=f"saving the volume at {target}", limit_s=COMMIT_S)
            found[target] = {"file": path.name, "digest": digest}
        text = json.dumps({"image": image, "volumes": found}, indent=1, sort_keys=True)
        await in_thread((place / _FILE).write_text, text)
        return await self._storage.seal(clone)

    async def read(self, snapshot: Snapshot) -> Saved:
        """Find a saved state; raise SnapshotMissing where its directory or its image is gone."""
        place = Path(snapshot.dirs[0].layers[0])
        try:
            found = json.loads(await in_thread((place / _FILE).read_text))
        except OSError as error:
            raise SnapshotMissing(f"snapshot {snapshot.id} is not in the store: {error}", fix="build it again") from error
        volumes = {t: SavedVolume(file=v["file"], digest=v["digest"]) for t, v in found["volumes"].items()}
        saved = Saved(image=found["image"], volumes=volumes, place=place)
        try:
            await self._engine.call(lambda client: client.inspect_image(saved.image), doing=f"looking for snapshot {snapshot.id}")
        except ImageMissing as error:
            raise SnapshotMissing(
                f"the image of snapshot {snapshot.id} is gone from the engine: {error.message}",
                fix=f"`autoclave env baseline {snapshot.id.rpartition('-')[0]} --rebuild` builds it from its seed; "
                "`docker image prune --all` and `docker rmi` remove such images",
            ) from error
        return saved

    async def sweep(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the images whose sealed directory has gone (with `dry_run`: name them)."""
        stale = [tag for tag in await self._images() if not await in_thread(self._stands, tag)]
        if not dry_run:
            for tag in stale:
                await self._forget_image(tag)
        return tuple(f"image of saved state {tag}" for tag in stale)

    async def _images(self) -> list[str]:
        def work(client: Any) -> list[str]:
            wanted = {"label": [f"{HOME}={self._engine.home}", f"{PART}={SNAPSHOT}"]}
            return [str(item["Labels"][TAG]) for item in client.images(filters=wanted)]

        return await self._engine.call(work, doing="listing saved images")

    async def _forget_image(self, tag: str) -> None:
        def work(client: Any) -> None:
            for item in client.images(filters={"label": [f"{HOME}={self._engine.home}", f"{TAG}={tag}"]}):
                client.remove_image(saved_image(item, tag), force=True)

        await self._engine.call(work, doing="removing a saved image")
        await in_thread((self._index / tag).unlink, missing_ok=True)

    def _record(self, tag: str, sealed: SealedDir) -> None:
        self._index.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._index / tag).write_text(sealed.layers[0])

    def _stands(self, tag: str) -> bool:
        try:
            return Path((self._index / tag).read_text(), _FILE).exists()
        except OSError:
            return False
