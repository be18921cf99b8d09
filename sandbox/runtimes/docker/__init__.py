"""The `docker` runtime: members of an instance are containers on a Docker engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.ports import Runtime, Storage
    from sandbox.settings import Settings

__all__ = ["create"]


def create(settings: Settings, storage: Storage) -> Runtime:
    """Make the runtime. Imported here, so that a part of this package can be used without the others."""
    from sandbox.runtimes.docker.runtime import DockerRuntime

    return DockerRuntime(settings, storage)
