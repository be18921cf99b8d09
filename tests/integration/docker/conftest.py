"""What the tests of the Docker engine share: a connection with a home of its own, images that nobody made for us, and proof that
nothing of the home is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.ports import Ledger, Runtime
from sandbox.runtimes.docker import create, leftovers
from sandbox.runtimes.docker.address import from_environment
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import home_identity
from sandbox.settings import Settings
from sandbox.storage import open_storage

# Its reaper removes what a test of ours may still look at, and cannot be pulled everywhere.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
DEBIAN = "autoclave/debian:bookworm"
BUILD = Path(__file__).parents[3] / "images" / "build"
# As their packagers made them: what an author would write in a minute.
DOCKERFILES = {
    "redis": """
        FROM {debian}
        RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server && mkdir /data && chown redis: /data
        VOLUME /data
        WORKDIR /data
        EXPOSE 6379
        USER redis
        CMD ["redis-server", "--dir", "/data"]
    """,
    "nginx": """
        FROM {debian}
        RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light
        VOLUME /var/www/html
        EXPOSE 80
        CMD ["nginx", "-g", "daemon off;"]
    """,
}


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


@dataclass(frozen=True, kw_only=True)
class Machinery:
    """What `env check` needs."""

    runtime: Runtime
    ledger: Ledger


@pytest.fixture
async def machinery(settings: Settings, nothing_left: None) -> AsyncIterator[Machinery]:
    """A whole docker runtime over a home of this test's own."""
    async with open_ledger(settings.ledger, durability="normal", clock=SystemClock()) as ledger:
        storage = await open_storage(settings)
        runtime = create(settings, storage)
        try:
            yield Machinery(runtime=runtime, ledger=ledger)
        finally:
            await runtime.close()
            await storage.close()


@pytest.fixture(scope="session")
def debian() -> str:
    """A Debian that the engine has: made by the images' own builder where there is none."""
    if _missing(DEBIAN):
        subprocess.run([sys.executable, str(BUILD), "base"], check=True, timeout=900, stdout=subprocess.DEVNULL)
    return DEBIAN if not _missing(DEBIAN) else "autoclave/base:latest"


@pytest.fixture(scope="session")
def redis_image(debian: str) -> str:
    return _built("redis", debian)


@pytest.fixture(scope="session")
def nginx_image(debian: str) -> str:
    return _built("nginx", debian)


def _built(name: str, debian: str) -> str:
    """Build one of the images, or find it in the engine's cache."""
    text = DOCKERFILES[name].format(debian=debian)
    tag = f"autoclave-test/{name}:debian"
    network = os.environ.get("AUTOCLAVE_BUILD_NETWORK", "default")
    command = ["docker", "build", "--quiet", "--network", network, "--tag", tag, "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return tag


def _missing(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, timeout=60, check=False).returncode != 0
