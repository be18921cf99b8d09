"""What the store knows of each sealed directory, kept beside it in a small file that is written last: a half-made one has none."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.model import Role, SealedDir

logger = logging.getLogger(__name__)
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`own_bytes` is what the directory's own layer takes; `removed` marks one that only lives on as a layer below others."""

    id: str
    sealed: SealedDir
    storage: str
    own_bytes: int
    removed: bool = False


class Records:
    """The records of one `snapshots` directory, by id and by top layer."""

    def __init__(self, snapshots: Path) -> None:
        self._snapshots = snapshots
        self._records: dict[str, Record] = {}
        self.reload()

    def reload(self) -> None:
        """Read every record again: another process with the same store may have sealed something."""
        for half in self._snapshots.glob("*.half"):
            half.unlink(missing_ok=True)
        self._records = {r.id: r for f in sorted(self._snapshots.glob(f"*{_SUFFIX}")) if (r := _read_or_warn(f)) is not None}

    def find(self, sealed: SealedDir) -> Record | None:
        """Return the record of a sealed directory, also when another process has made it."""
        known = self.id_of(sealed)
        if known and known not in self._records:
            record = _read_or_warn(self._snapshots / f"{known}{_SUFFIX}")
            if record is not None:
                self._records[known] = record
        found = self._records.get(known)
        return found if found is not None and found.sealed.layers == sealed.layers else None

    def id_of(self, sealed: SealedDir) -> str:
        """Return the id under which a directory is kept, or "" when it lies elsewhere."""
        if not sealed.layers:
            return ""
        holder = Path(sealed.layers[0]).parent
        return holder.name if holder.parent == self._snapshots else ""

    def save(self, record: Record) -> None:
        file = self._snapshots / f"{record.id}{_SUFFIX}"
        sealed = record.sealed
        text = json.dumps(
            {
                "id": record.id,
                "name": sealed.name,
                "layers": sealed.layers,
                "digest": sealed.digest,
                "role": sealed.role,
                "bytes": sealed.bytes,
                "files": sealed.files,
                "storage": record.storage,
                "own_bytes": record.own_bytes,
                "removed": record.removed,
            }
        )
        half = file.with_suffix(".half")
        with half.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        half.rename(file)
        self._records[record.id] = record

    def forget(self, ids: Iterable[str]) -> None:
        for each in ids:
            (self._snapshots / f"{each}{_SUFFIX}").unlink(missing_ok=True)
            self._records.pop(each, None)

    def own_bytes(self) -> int:
        return sum(r.own_bytes for r in self._records.values())

    def all(self) -> tuple[Record, ...]:
        return tuple(self._records.values())

    def unused(self, keep: Collection[str], in_use: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the ids that are neither in `keep` nor a layer below one of those or below what is in use."""
        wanted = {layer for r in self._records.values() if r.id in keep for layer in r.sealed.layers}
        wanted.update(layer for layers in in_use for layer in layers)
        return tuple(r.id for r in self._records.values() if r.sealed.layers[0] not in wanted)


def _read_or_warn(file: Path) -> Record | None:
    try:
        return _read(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        logger.warning("unreadable record of a sealed directory; it counts as missing", extra={"path": str(file)})
        return None


def _read(file: Path) -> Record:
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    sealed = SealedDir(
        name=data["name"],
        layers=tuple(data["layers"]),
        digest=data["digest"],
        role=Role(data["role"]),
        bytes=int(data["bytes"]),
        files=int(data["files"]),
    )
    if not sealed.layers or data["id"] != file.name.removesuffix(_SUFFIX):
        raise ValueError("the record does not belong to its name")
    return Record(
        id=data["id"], sealed=sealed, storage=data["storage"], own_bytes=int(data["own_bytes"]), removed=bool(data["removed"])
    )
