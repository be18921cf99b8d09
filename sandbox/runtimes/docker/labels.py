"""The labels by which what we make on an engine is found again, and by which alone it is ever removed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.errors import RuntimeUnavailable
from sandbox.settings import Settings

HOME = "autoclave.home"
TAG = "autoclave.tag"
ENVIRONMENT = "autoclave.environment"
NAMESPACE = "autoclave.namespace"
GENERATION = "autoclave.generation"
PART = "autoclave.part"
OWNER = "autoclave.owner"
SNAPSHOT = "snapshot"  # a part: an image that is a saved state
SAVED = "autoclave-saved"  # the repository of such images; each one's tag is its mark's
FILE = "docker-home"


def new_tag() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Whose a thing on the engine is.

    `tag` is new for each thing that is to be made: where the engine's answer is lost, the thing is found again by it. `part` says
    what it is for: agent, server, errand, seed, snapshot, volume, network. `owner` is the token of what keeps it from a sweep
    while this manager lives.
    """

    home: str
    environment: str = ""
    namespace: str = ""
    generation: int = 0
    part: str = ""
    owner: str = ""
    tag: str = field(default_factory=new_tag)

    @property
    def name(self) -> str:
        """The engine lets no second container have the same."""
        return f"autoclave-{self.tag}"

    def labels(self) -> dict[str, str]:
        given = {
            HOME: self.home,
            TAG: self.tag,
            ENVIRONMENT: self.environment,
            NAMESPACE: self.namespace,
            GENERATION: str(self.generation) if self.generation else "",
            PART: self.part,
            OWNER: self.owner,
        }
        return {name: text for name, text in given.items() if text}


def is_ours(labels: Mapping[str, str] | None, mark: Mark) -> bool:
    found = labels or {}
    return found.get(HOME) == mark.home and found.get(TAG) == mark.tag


def saved_image(item: Mapping[str, Any], tag: str) -> str:
    """Return what to remove a saved image by: its name, so that an image which others are built on goes as soon as they do; its id
    where it has none."""
    name = f"{SAVED}:{tag}"
    return name if name in (item.get("RepoTags") or ()) else str(item["Id"])


def home_identity(settings: Settings) -> str:
    """Return the identity of a home, made at its first use.

    Not a digest of its path: two machines that share an engine may both keep their home at the same place, and neither may remove
    what is the other's. A home that is made again beside its old store has its old identity.
    """
    path = settings.home / FILE
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _noted(settings, _read(path))
        except FileNotFoundError:
            fresh = settings.home / f".{FILE}-{secrets.token_hex(4)}"
            fresh.write_text(identity_in(settings.store) or secrets.token_hex(12))
            try:
                path.hardlink_to(fresh)
            except FileExistsError:
                pass  # another process was first
            finally:
                fresh.unlink()
            return _noted(settings, _read(path))
    except OSError as error:
        raise RuntimeUnavailable(
            f"cannot keep the home's identity in {path}: {error.strerror}", fix="set AUTOCLAVE_HOME"
        ) from error


def _noted(settings: Settings, identity: str) -> str:
    """Keep it beside what the home has outside of itself, too: a home that is deleted can still be cleaned up after."""
    note = settings.store / FILE
    if settings.store.is_dir() and not note.exists():
        note.write_text(identity)
    return identity


def identity_in(store: Path) -> str | None:
    """Return the identity of the home whose store this is; None where it never used an engine."""
    try:
        return _read(store / FILE)
    except OSError:
        return None


def _read(path: Path) -> str:
    text = path.read_text().strip()
    if not text.isalnum():
        raise RuntimeUnavailable(
            f"{path} does not hold a home's identity", fix=f"remove it, and what `docker ps -a` shows of {HOME}"
        )
    return text
