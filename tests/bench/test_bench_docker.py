"""The docker runtime beside what people do with an engine: remove and run the same image again, and exec for every command."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import subprocess
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from sandbox import binaries
from sandbox.model import Depth
from sandbox.settings import Settings

pytestmark = [pytest.mark.bench, pytest.mark.slow, pytest.mark.docker]
MODES = pytest.mark.parametrize("settings", ["in-place", "recreate"], indirect=True)
FILES: Mapping[str, Any] = {
    "name": "bench",
    "version": "1",
    "description": "files",
    "resources": {"docs": {"kind": "files", "files": {f"folder/{n}.txt": f"{n}\n" for n in range(200)}}},
}
WRITES = "insert into items (name) select 'planted' from generate_series(1, 500); create table planted (a int)"


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    return dataclasses.replace(settings, runtime="docker", docker_mode=getattr(request, "param", "auto"))


def docker(*words: str, data: bytes | None = None) -> str:
    return subprocess.run(["docker", *words], input=data, capture_output=True, check=True, timeout=120).stdout.decode().strip()


class Api:
    """The engine as a program uses it, without a command line in between."""

    def __init__(self) -> None:
        import docker as sdk
        from docker.utils import kwargs_from_env

        self.client = sdk.APIClient(**kwargs_from_env(), version="auto", timeout=120)
        self._container = ""

    def again(self, image: str, command: Sequence[str], binds: Sequence[str], user: str) -> None:
        """Remove the container and run the same image again."""
        self.gone()
        host = self.client.create_host_config(binds=list(binds), network_mode="none", cap_drop=["ALL"])
        self._container = self.client.create_container(image, list(command), host_config=host, user=user)["Id"]
        self.client.start(self._container)

    def execute(self, argv: Sequence[str]) -> bytes:
        made = self.client.exec_create(self._container, list(argv))
        return bytes(self.client.exec_start(made["Id"]))

    def gone(self) -> None:
        if self._container:
            self.client.remove_container(self._container, force=True, v=True)
            self._container = ""

    def close(self) -> None:
        self.gone()
        self.client.close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    try:
        yield made
    finally:
        made.close()


async def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await asyncio.to_thread(work)
    return (time.perf_counter() - began) * 1e3


@MODES
async def test_files(built: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, api: Api, passable_dir: Path) -> None:
    async with built(FILES, passable_dir) as b:
        mode = str(b.runtime.in_force["mode"]).partition(":")[0]
        generation = 1

        async def ours() -> float:
            nonlocal generation
            generation += 1
            assert (
                await b.instance.run(["/bin/sh", "-c", "echo x >> docs/folder/1.txt; rm docs/folder/2.txt; echo x > ~/y"])
            ).exit_code == 0
            began = time.perf_counter()
            await b.instance.restore(b.snapshot, generation)
            verdict = await b.environment.verifier.check(b.instance.subject(), b.baseline, Depth.QUICK)
            took = (time.perf_counter() - began) * 1e3
            assert verdict.clean, verdict
            return took

        async def theirs() -> float:
            return await timed(lambda: api.again("autoclave/base", ["sleep", "infinity"], (), "1000:1000"))

        reset, other = await alternately(25, ours, theirs)
        least = 10 if mode == "in place" else None
        rows.faster(f"docker, {mode}: reset + quick check, files", reset, "remove + create + start", other, least=least)
        if mode == "in place":
            middle = sorted(reset)[len(reset) // 2]
            rows.value(
                "the same, by itself", f"{middle:.1f} ms", bar="under 20 ms plus the resource's own start", met=middle < 20, n=25
            )


@contextlib.contextmanager
def baked(data: Path, uid: int) -> Iterator[str]:
    """An image with the same cluster in it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(data, arcname="data", filter=lambda entry: entry.replace(uid=uid, gid=uid, deep=False))
    name = f"autoclave-bench-{data.name.lower()[-8:]}"
    container = docker("create", "autoclave/postgres", "true")
    try:
        docker("cp", "-", f"{container}:/srv", data=packed.getvalue())
        docker("commit", container, name)
    finally:
        docker("rm", container)
    try:
        yield name
    finally:
        docker("rmi", "-f", name)


@MODES
async def test_postgres(
    built: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, api: Api, passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (passable_dir / "seed.sql").write_text(
        "create table items (id int primary key generated by default as identity, name text);"
        "insert into items (name) select 'item ' || g from generate_series(1, 20000) g; grant all on items to agent;"
        "grant create on schema public to agent;"
    )
    table = {"db": {"kind": "postgres", "database": "bench", "seed": ["seed.sql"], "template": False}}
    data = {"name": "bench", "version": "1", "description": "a table", "image": "autoclave/postgres", "resources": table}
    sockets = passable_dir / "sockets"
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)
    async with built(data, passable_dir) as b:
        mode = str(b.runtime.in_force["mode"]).partition(":")[0]
        golden = b.snapshot.dir("db/data")
        generation = 1

        async def ours() -> float:
            nonlocal generation
            generation += 1
            async with await psycopg.AsyncConnection.connect(b.instance.endpoint("db"), autocommit=True) as connection:
                await connection.execute(WRITES.encode())
            began = time.perf_counter()
            await b.instance.restore(b.snapshot, generation)
            verdict = await b.environment.verifier.check(b.instance.subject(), b.baseline, Depth.QUICK)
            took = (time.perf_counter() - began) * 1e3
            assert verdict.clean, verdict
            return took

        uid = 64101
        program = f"{binaries.INSIDE}/bin/postgres"
        command = [program, "-D", "/srv/data", "-k", "/sockets", "-c", "listen_addresses="]

        def run(image: str) -> None:
            api.again(image, command, [f"{sockets}:/sockets"], f"{uid}:{uid}")
            answered()

        def answered() -> None:
            give_up = time.monotonic() + 60
            while True:
                try:
                    with psycopg.connect(f"host={sockets} user=agent dbname=bench") as connection:
                        connection.execute("select 1")
                    return
                except psycopg.OperationalError:
                    assert time.monotonic() < give_up
                    time.sleep(0.002)

        def testcontainer(image: str) -> None:
            """What a test suite does for each test: its container begins, answers, and goes."""
            container = DockerContainer(image, user=f"{uid}:{uid}", network_mode="none")
            with container.with_command(command).with_volume_mapping(str(sockets), "/sockets", "rw"):
                answered()

        monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)  # a container of its own that removes others
        with baked(Path(golden.layers[0]), uid) as image:

            async def theirs() -> float:
                return await timed(lambda: run(image))

            async def suite() -> float:
                return await timed(lambda: testcontainer(image))

            reset, other, tests = await alternately(20, ours, theirs, suite)
        least = 5 if mode == "in place" else None
        rows.faster(
            f"docker, {mode}: reset + quick check, postgres", reset, "remove + run + first query, data baked in", other, least=least
        )
        rows.faster("the same", reset, "testcontainers: start + first query + stop, data baked in", tests, least=None)


async def test_actions(built: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, api: Api, passable_dir: Path) -> None:
    async with built(FILES, passable_dir) as b:
        api.again("autoclave/base", ["sleep", "infinity"], (), "1000:1000")

        async def ours() -> float:
            began = time.perf_counter()
            assert (await b.instance.run(["cat", "docs/folder/1.txt"])).exit_code == 0
            return (time.perf_counter() - began) * 1e3

        async def theirs() -> float:
            return await timed(lambda: api.execute(["cat", "/etc/hostname"]))

        async def bare() -> float:
            return await timed(lambda: subprocess.run(["cat", "/etc/hostname"], check=True, capture_output=True))

        action, execs, alone = await alternately(100, ours, theirs, bare)
        rows.faster("docker: one action through the session", action, "an exec by the engine's API", execs, least=10)
        rows.above("docker: one action through the session", action, "the command by itself, on the host", alone, below_ms=5)
