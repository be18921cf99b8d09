"""Images that neither this project nor its images made: Redis and nginx, as Debian packages them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import envs
from envs import check
from probes.leaks.container import LEAKS
from probes.leaks.leak import Needs, ShellLeak
from sandbox import ClearanceState, Pool
from sandbox.errors import EnvironmentInvalid, InstanceLost, RuntimeUnavailable, SnapshotMissing
from sandbox.model import Depth, NamespaceId, VerdictStatus
from sandbox.ports import Instance
from sandbox.ports.container import HasContainers
from sandbox.runtimes.docker import create
from sandbox.runtimes.docker.labels import HOME, home_identity
from sandbox.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
CACHE = NamespaceId("cache-1")
DEBUGGED = ["redis-server", "--dir", "/data", "--enable-debug-command", "local"]
BOTH = ("edit", "unmarked-process", "volume-file", "restart")


def cache(image: str, **tables: Any) -> envs.LoadedEnvironment:
    """Redis with one key; what it holds in memory is read, too."""
    resource = {
        "kind": "container",
        "image": image,
        "command": DEBUGGED,
        "ports": [6379],
        "setup": [["redis-cli", "set", "greeting", "hello"]],
    }
    probe = {"name": "cache", "kind": "container", "resource": "cache", "inside": {"keys": ["redis-cli", "debug", "digest"]}}
    return envs.define({"name": "cache", "version": "1", "resources": {"cache": resource}, "probes": [probe], **tables}, Path("/"))


async def ask(address: str, line: str) -> str:
    """Send one inline command to Redis and return the first line of its answer."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(f"{line}\r\n".encode())
            answer = (await reader.readline()).decode().strip()
            return (await reader.readline()).decode().strip() if answer.startswith("$") and answer != "$-1" else answer
        finally:
            writer.close()


@pytest.mark.slow
async def test_redis_from_a_description_passes_env_check(machinery: Any, redis_image: str, tmp_path: Path) -> None:
    (tmp_path / "environment.toml").write_text(f"""
        name = "cache"
        version = "1"
        [resources.cache]
        kind = "container"
        image = "{redis_image}"
        command = {json.dumps(DEBUGGED)}
        ports = [6379]
        setup = [["redis-cli", "set", "greeting", "hello"]]
        [[probes]]
        name = "cache"
        kind = "container"
        resource = "cache"
        inside = {{ keys = ["redis-cli", "debug", "digest"] }}
        [[destructive]]
        name = "key"
        argv = ["redis-cli", "set", "planted", "1"]
        [[destructive]]
        name = "volume"
        run = "echo planted > /data/planted"
    """)
    report = await check.check(envs.load(tmp_path), machinery.runtime, machinery.ledger)
    assert report.verdict is VerdictStatus.CLEAN, (report.differences, report.problems)
    assert report.in_force["image"].startswith("sha256:")
    assert report.in_force["user"] == "redis"


@pytest.mark.slow
async def test_a_hook_that_speaks_tcp_passes_env_check(machinery: Any, redis_image: str) -> None:
    """The kernel keeps the ends of its connections, and of the probes', for a minute."""
    destructive = [{"name": "key", "argv": ["redis-cli", "set", "planted", "1"]}]
    environment = cache(redis_image, reset={"method": "hook", "hook": ["redis-cli", "del", "planted"]}, destructive=destructive)

    report = await check.check(environment, machinery.runtime, machinery.ledger)
    assert report.verdict is VerdictStatus.CLEAN, (report.differences, report.problems)


@pytest.mark.slow
async def test_nginx_from_testcontainers_passes_env_check(machinery: Any, nginx_image: str, tmp_path: Path) -> None:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import PortWaitStrategy

    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("as it was\n")
    container = (
        DockerContainer(nginx_image)
        .with_exposed_ports(80)
        .with_volume_mapping(site, "/var/www/html", "rw")
        .waiting_for(PortWaitStrategy(80).with_startup_timeout(120))
    )
    environment = envs.from_testcontainer(
        container,
        name="web",
        options={"capabilities": ["CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE"]},
        destructive=[{"name": "page", "run": "echo planted > /var/www/html/index.html"}],
    )
    assert container._container is None
    report = await check.check(environment, machinery.runtime, machinery.ledger)
    assert report.verdict is VerdictStatus.CLEAN, (report.differences, report.problems)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["redis", "nginx"])
async def test_each_planted_leak_is_caught_and_gone_after_a_restore(
    which: str, machinery: Any, redis_image: str, nginx_image: str
) -> None:
    """Redis runs as a user, nginx as the container's root, who plants what needs root and one of each kind beside."""
    environment, places = cache(redis_image), {"VOLUME": "/data", "OUTSIDE": "/var/lib/redis", "FILE": "/var/lib/redis/seed"}
    if which == "nginx":
        more = {"capabilities": ["CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"]}
        resource = {"kind": "container", "image": nginx_image, "ports": [80], **more}
        environment = envs.define({"name": "web", "version": "1", "resources": {"web": resource}}, Path("/"))
        places = {"VOLUME": "/var/www/html", "OUTSIDE": "/var/lib/nginx", "FILE": "/etc/nginx/mime.types"}
    else:
        resource = dict(environment.spec.resources[0].options)
        resource["setup"] = [*resource["setup"], ["/bin/sh", "-c", "echo seed > /var/lib/redis/seed"]]
        environment = cache(redis_image, resources={"cache": {"kind": "container", **resource}})
    start = await check.baseline(environment, machinery.runtime, machinery.ledger)
    instance = await machinery.runtime.start(environment, start.snapshot, NamespaceId("leaks-1"), 1)
    missed, kept, planted = [], [], 0
    try:
        for generation, leak in enumerate(LEAKS, start=2):
            if (leak.needs is Needs.ROOT) != (which == "nginx") and leak.name not in BOTH:
                continue
            lost = await plant(instance, leak, places)
            verdict = None if lost else await environment.verifier.check(instance.subject(), start.baseline, Depth.DEEP)
            planted += 1
            if verdict is not None and verdict.clean:
                missed.append(leak.name)
            await instance.restore(start.snapshot, generation)
            verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.DEEP)
            if not verdict.clean:
                kept.append((leak.name, verdict.mismatches, verdict.problems))
    finally:
        await instance.close()
    assert not missed, f"{len(missed)} of {planted} missed"
    assert not kept
    assert planted >= (15 if which == "redis" else 6)


async def plant(instance: Instance, leak: ShellLeak, places: dict[str, str]) -> bool:
    """Plant it as the agent; True where that ended the instance, which a pool sees by itself."""
    try:
        done = await instance.run(["/bin/sh", "-c", leak.shell], env=places, limit_s=60)
    except InstanceLost:
        return True
    assert done.exit_code == 0 or leak.name == "restart", (leak.name, done)
    if leak.name == "restart":
        for _ in range(200):
            if not await instance.alive():
                return True
            await asyncio.sleep(0.05)
    return False


async def test_a_session_acts_saves_and_returns(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        address = instance.endpoint("cache")
        assert await ask(address, "GET greeting") == "hello"
        assert await ask(address, "SET greeting changed") == "+OK"
        await instance.write_file("/data/notes/a.txt", b"kept", mode=0o600)
        assert await instance.read_file("/data/notes/a.txt") == b"kept"
        done = await instance.run(["/bin/sh", "-c", "cat; echo $MODE; exit 3"], stdin=b"in ", env={"MODE": "out"})
        assert (done.exit_code, done.stdout, done.timed_out) == (3, b"in out\n", False)
        saved = await instance.snapshot_now()
        assert saved.parent == golden.id
        assert await ask(instance.endpoint("cache"), "GET greeting") == "changed"

        await instance.restore(golden, 2)
        with pytest.raises(ConnectionError):
            await ask(address, "PING")
        assert await ask(instance.endpoint("cache"), "GET greeting") == "hello"
        with pytest.raises(FileNotFoundError):
            await instance.read_file("/data/notes/a.txt")

        await instance.restore(saved, 3)
        assert await ask(instance.endpoint("cache"), "GET greeting") == "changed"
        assert await instance.read_file("/data/notes/a.txt") == b"kept"
    finally:
        await instance.close()


async def test_a_restore_in_the_middle_of_a_save_is_a_restore(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        for generation, delay in enumerate((0.0, 0.1, 0.5), 2):
            assert await ask(instance.endpoint("cache"), "SET greeting changed") == "+OK"
            save = asyncio.create_task(instance.snapshot_now())
            await asyncio.sleep(delay)
            await instance.revoke()
            await instance.restore(golden, generation)
            outcome = (await asyncio.gather(save, return_exceptions=True))[0]
            assert not isinstance(outcome, BaseException) or isinstance(outcome, InstanceLost)
            assert (instance.generation, instance.snapshot) == (generation, golden)
            assert await ask(instance.endpoint("cache"), "GET greeting") == "hello"
    finally:
        await instance.close()


def images(*arguments: str) -> list[str]:
    done = subprocess.run(["docker", "image", *arguments], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


async def test_golden_outlives_a_prune_and_is_built_again_where_its_image_was_removed(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    start = await check.baseline(environment, machinery.runtime, machinery.ledger)
    images("prune", "--force")
    saved = [name for name in images("ls", "--format", "{{.Repository}}:{{.Tag}}") if name.startswith("autoclave-saved:")]
    assert saved
    again = await check.baseline(environment, machinery.runtime, machinery.ledger)
    assert again.snapshot.id == start.snapshot.id

    image = json.loads(Path(start.snapshot.dirs[0].layers[0], "container.json").read_text())["image"]
    images("rm", "--force", image)
    with pytest.raises(SnapshotMissing, match="gone from the engine"):
        await machinery.runtime.start(environment, start.snapshot, CACHE, 1)
    again = await check.baseline(environment, machinery.runtime, machinery.ledger)
    assert again.snapshot.id != start.snapshot.id
    instance = await machinery.runtime.start(environment, again.snapshot, CACHE, 1)
    try:
        assert await ask(instance.endpoint("cache"), "GET greeting") == "hello"
    finally:
        await instance.close()


MEMORY = {
    "shm": ("echo planted > /dev/shm/planted", "memory /dev/shm/planted"),
    "tmpfs": ("echo planted > /scratch/planted", "memory /scratch/planted"),
    "inside tmpfs": ("ln -s /etc /scratch/link; mkdir /scratch/deep; echo planted > /scratch/deep/x", "memory /scratch/deep/x"),
    "system V": ("perl -e 'defined shmget(4242, 4096, 01666) or die'", "memory System V/"),
}


async def test_what_a_hook_leaves_in_memory_is_seen(machinery: Any, redis_image: str) -> None:
    resource = {
        "kind": "container",
        "image": redis_image,
        "user": "root",
        "tmpfs": ["/scratch"],
        "command": ["redis-server", "--save", ""],
    }
    hooked = {"method": "hook", "hook": ["/bin/sh", "-c", "exit 0"]}
    tables = {"reset": hooked, "check": {"probe_limit_s": 240}}  # busy machines
    environment = envs.define({"name": "hooked", "version": "1", "resources": {"box": resource}, **tables}, Path("/"))
    start = await check.baseline(environment, machinery.runtime, machinery.ledger)
    instance = await machinery.runtime.start(environment, start.snapshot, NamespaceId("hooked-1"), 1)
    try:
        await instance.reset_in_place(2, hook=environment.spec.reset.hook)
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.QUICK)
        assert verdict.clean, (verdict.mismatches, verdict.problems)
        for script, _ in MEMORY.values():
            assert (await instance.run(["/bin/sh", "-c", script])).exit_code == 0, script
        await instance.reset_in_place(3, hook=environment.spec.reset.hook)
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.QUICK)
        seen = {mismatch.field for mismatch in verdict.mismatches}
        missed = [name for name, (_, field) in MEMORY.items() if not any(one.startswith(field) for one in seen)]
        assert not missed, verdict
        await instance.restore(start.snapshot, 4)
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.QUICK)
        assert verdict.clean, (verdict.mismatches, verdict.problems)
    finally:
        await instance.close()


async def test_a_command_past_its_limit_dies_with_what_it_started(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        script = "setsid sleep 600 & sleep 600 & echo begun; wait"
        done = await instance.run(["/bin/sh", "-c", script], limit_s=2)
        assert done.timed_out
        assert done.exit_code == 137
        assert done.stdout == b"begun\n"
        names = {process.argv[0] for process in await instance.subject().processes()}
        assert "sleep" not in names
        assert await instance.alive()
        long = await instance.run(["/bin/sh", "-c", "yes | head -c 3000000"], output_bytes=1000)
        assert (len(long.stdout), long.truncated) == (1000, True)
    finally:
        await instance.close()


async def test_a_command_that_closes_its_output_has_its_whole_limit_and_no_more(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        silent = "exec >&- 2>&-; "
        other = asyncio.ensure_future(instance.run(["/bin/sh", "-c", "sleep 5; echo kept"]))
        done = await instance.run(["/bin/sh", "-c", f"{silent} sleep 600"], limit_s=2)
        assert (done.exit_code, done.timed_out) == (137, True)
        done = await instance.run(["/bin/sh", "-c", f"{silent} sleep 1; exit 3"])
        assert (done.exit_code, done.timed_out) == (3, False)
        assert (await other).stdout == b"kept\n"
        assert "sleep" not in {process.argv[0] for process in await instance.subject().processes()}
    finally:
        await instance.close()


async def test_a_command_whose_caller_goes_away_dies_wherever_it_stands(machinery: Any, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        for delay in (0.0, 0.005, 0.02, 0.05, 0.1, 0.5):
            running = asyncio.ensure_future(instance.run(["/bin/sh", "-c", "setsid sleep 600 & sleep 600"]))
            await asyncio.sleep(delay)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            names = [process.argv[0] for process in await instance.subject().processes()]
            assert "sleep" not in names, delay
        assert await instance.alive()
    finally:
        await instance.close()


async def test_volumes_that_an_image_declares_are_ours_and_go_with_the_container(
    machinery: Any, settings: Settings, redis_image: str
) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        subject = instance.subject()
        assert isinstance(subject, HasContainers)
        assert list(await subject.container("cache").volumes()) == ["/data"]
        mounted = {mount["Name"] for mount in mounts(settings) if mount["Type"] == "volume"}
        assert mounted
        assert mounted <= volumes(settings)  # none is the engine's own, without a name that we gave
    finally:
        await instance.close()
    assert volumes(settings) == set()


def mounts(settings: Settings) -> list[dict[str, Any]]:
    """What is mounted in the containers of this home, and of no other that shares the engine."""
    containers = asked("container", "ls", "--all", "--quiet", "--filter", f"label={HOME}={home_identity(settings)}").split()
    return [mount for found in json.loads(asked("container", "inspect", *containers)) for mount in found["Mounts"]]


def volumes(settings: Settings) -> set[str]:
    return set(asked("volume", "ls", "--quiet", "--filter", f"label={HOME}={home_identity(settings)}").split())


def asked(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=60).stdout


async def test_an_image_that_does_not_come_up_says_what_it_said(machinery: Any, debian: str) -> None:
    resource = {"kind": "container", "image": debian, "command": ["/bin/sh", "-c", "echo no licence found >&2; exit 4"]}
    environment = envs.define({"name": "broken", "version": "1", "resources": {"broken": resource}}, Path("/"))
    with pytest.raises(EnvironmentInvalid, match=r"ended with 4.*no licence found"):
        await machinery.runtime.build(environment)


async def test_another_runtime_says_that_it_cannot(settings: Any, redis_image: str) -> None:
    with pytest.raises(RuntimeUnavailable, match="only the docker runtime"):
        await cache(redis_image).resources[0].seed(None)  # type: ignore[arg-type]


async def test_what_cannot_be_carried_over_is_named(nginx_image: str, tmp_path: Path) -> None:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

    container = (
        DockerContainer(nginx_image)
        .with_exposed_ports("53/udp")
        .with_volume_mapping("/var/run/docker.sock", "/var/run/docker.sock")
        .with_kwargs(privileged=True)
        .waiting_for(HealthcheckWaitStrategy())
    )
    with pytest.raises(EnvironmentInvalid) as caught:
        envs.from_testcontainer(container, name="web")
    said = " ".join(caught.value.problems)
    assert all(word in said for word in ("53/udp", "docker.sock", "privileged", "HealthcheckWaitStrategy"))


def test_a_capability_that_leads_out_is_refused() -> None:
    with pytest.raises(EnvironmentInvalid, match="SYS_ADMIN"):
        cache("any", resources={"cache": {"kind": "container", "image": "any", "capabilities": ["SYS_ADMIN"]}})


@pytest.mark.slow
async def test_a_pool_of_any_image(settings: Settings, nothing_left: None, redis_image: str) -> None:
    chosen = replace(settings, runtime="docker")
    # Without the probe that reads what is held in memory: a fork begins with other contents than golden, and would not pass it.
    async with Pool.open([cache(redis_image, probes=[])], size=2, settings=chosen) as pool:
        async with pool.session("cache", wait=300) as session:
            assert await ask(session.endpoint("cache"), "SET greeting changed") == "+OK"
            async with await session.fork(await session.snapshot(), wait=300) as child:
                assert await ask(child.endpoint("cache"), "GET greeting") == "changed"
        async with pool.session("cache", wait=300) as second:
            assert await ask(second.endpoint("cache"), "GET greeting") == "hello"
        found = await pool.cleared([session.trajectory_id, child.trajectory_id, second.trajectory_id], timeout=300)
        assert {c.state for c in found.values()} == {ClearanceState.CLEARED}


async def test_a_socket_inside_is_reached_and_links_lead_nowhere_else(machinery: Any, redis_image: str, tmp_path: Path) -> None:
    command = ["redis-server", "--dir", "/data", "--port", "0", "--unixsocket", "/data/redis.sock"]
    resource = {"kind": "container", "image": redis_image, "command": command, "sockets": ["/data/redis.sock"]}
    environment = envs.define({"name": "cache", "version": "1", "resources": {"cache": resource}}, Path("/"))
    golden = await machinery.runtime.build(environment)
    instance = await machinery.runtime.start(environment, golden, CACHE, 1)
    reached = asyncio.Event()

    async def stranger(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    outside = await asyncio.start_unix_server(stranger, str(tmp_path / "outside.sock"))
    try:
        address = instance.endpoint("cache")
        assert await ask(address, "PING") == "+PONG"
        script = f"rm /data/redis.sock && ln -s {tmp_path}/outside.sock /data/redis.sock"
        assert (await instance.run(["/bin/sh", "-c", script])).exit_code == 0
        with contextlib.suppress(ConnectionError):  # the end of what leads nowhere may come as a reset
            assert await ask(address, "PING") == ""
        assert not reached.is_set()
    finally:
        outside.close()
        await instance.close()


async def test_what_a_killed_manager_left_is_swept_by_the_next(machinery: Any, settings: Settings, redis_image: str) -> None:
    environment = cache(redis_image)
    golden = await machinery.runtime.build(environment)
    lost = create(settings, machinery.runtime.storage)
    await lost.start(environment, golden, NamespaceId("lost-1"), 1)
    mine = await machinery.runtime.start(environment, golden, CACHE, 1)
    try:
        told = await machinery.runtime.sweep(dry_run=True)
        assert sorted(line.split()[0] for line in told) == ["container", "volume"]
        assert await machinery.runtime.sweep() == told
        assert await machinery.runtime.sweep() == ()
        assert await mine.alive()
    finally:
        await mine.close()
        await lost.close()


@pytest.mark.slow
def test_the_same_definition_runs_under_testcontainers(nginx_image: str, tmp_path: Path) -> None:
    """What is read as an environment elsewhere here is a definition that testcontainers itself can start."""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import PortWaitStrategy

    tmp_path.chmod(0o755)
    (tmp_path / "index.html").write_text("as it was\n")
    container = DockerContainer(nginx_image).with_exposed_ports(80).with_volume_mapping(tmp_path, "/var/www/html")
    with container.waiting_for(PortWaitStrategy(80).with_startup_timeout(120)) as running:
        url = f"http://{running.get_container_host_ip()}:{running.get_exposed_port(80)}/"
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.read() == b"as it was\n"
