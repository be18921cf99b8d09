"""What an image says about containers made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.group.environ import over_image

DEFAULT = "autoclave/base"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """An image on the engine. `volumes` are the directories that it wants kept outside of a container's own layer."""

    reference: str
    id: str
    env: Mapping[str, str]
    volumes: tuple[str, ...]

    def environment(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a command: the image's, and over them what is asked for."""
        return over_image(self.env, asked)


async def image_facts(engine: Engine, reference: str) -> ImageFacts:
    """Ask the engine for an image; raise ImageMissing."""
    found: Mapping[str, Any] = await engine.call(
        lambda client: client.inspect_image(reference), doing=f"looking for the image {reference}"
    )
    config = found.get("Config") or {}
    pairs = (pair.partition("=") for pair in config.get("Env") or ())
    return ImageFacts(
        reference=reference,
        id=found["Id"],
        env={name: value for name, _, value in pairs},
        volumes=tuple(sorted(config.get("Volumes") or ())),
    )
