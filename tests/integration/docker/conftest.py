"""What the tests of the Docker engine share: a connection with a home of its own, and proof that nothing of that home is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.runtimes.docker import leftovers
from sandbox.runtimes.docker.address import from_environment
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import home_identity
from sandbox.settings import Settings

DEBIAN = "autoclave/debian:bookworm"
BUILD = Path(__file__).parents[3] / "images" / "build"


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    """The engine, through a home of this test's own; fails the test that leaves anything of it."""
    opened = Engine(from_environment(), home=home_identity(settings))
    try:
        yield opened
        left = await leftovers.sweep(opened)
        assert not left, f"left on the engine: {left}"
    finally:
        await opened.close()


@pytest.fixture(scope="session")
def debian() -> str:
    """A Debian that the engine has: made by the images' own builder where there is none."""
    if _missing(DEBIAN):
        subprocess.run([sys.executable, str(BUILD), "base"], check=True, timeout=900, stdout=subprocess.DEVNULL)
    return DEBIAN if not _missing(DEBIAN) else "autoclave/base:latest"


def _missing(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, timeout=60, check=False).returncode != 0
