"""Containers on the engine: made so that a lost answer leaves no orphan, driven so that asking twice is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sandbox.aio import undo
from sandbox.errors import AutoclaveError, RuntimeUnavailable
from sandbox.runtimes.docker import troubles
from sandbox.runtimes.docker.engine import CALL_S, Engine
from sandbox.runtimes.docker.labels import HOME, Mark, is_ours

_ASK_S = 10.0
_PAUSE_S = 0.1


async def create(engine: Engine, config: Mapping[str, Any], mark: Mark) -> str:
    """Make a container from a configuration in the engine's own words (`POST /containers/create`) and return its id.

    The container's name carries the mark's tag, and the engine lets no second one have it: a creation whose answer was lost is
    asked for again and found. When this ends in an error, the container is removed; where the engine cannot be asked any more,
    its name stays in `engine.doubtful`. Raises ImageMissing, LimitReached, RuntimeUnavailable.
    """
    doing = f"making a container of {config.get('Image', '?')} for environment {mark.environment or '?'}"
    whole = {**config, "Labels": {**config.get("Labels", {}), **mark.labels()}}
    async with engine.creating(doing):
        try:
            return await _until_there(engine, whole, mark, doing)
        except BaseException as error:
            engine.doubtful.add(mark.name)
            await undo(error, _withdraw(engine, mark))
            raise


async def _until_there(engine: Engine, config: Mapping[str, Any], mark: Mark, doing: str) -> str:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + engine.limits.create_s
    last: AutoclaveError | None = None
    while (left := give_up - loop.time()) > 0:
        try:
            return await engine.call(lambda client: _make(client, config, mark), doing=doing, limit_s=min(left, CALL_S))
        except troubles.EngineGone as error:
            if last is None:
                raise
            last = error  # it was asked before: it may come back, with the container or without
        except (troubles.AnswerLost, _Underway) as error:
            last = error
        await asyncio.sleep(_PAUSE_S)
    raise RuntimeUnavailable(
        f"{doing}: not there after {engine.limits.create_s:g} s ({last.message if last else 'no answer'})",
        fix="look at the engine's load and its log; what comes late is removed by the next sweep",
    ) from last


class _Underway(AutoclaveError):
    """The engine holds the name and has not finished the container yet."""


def _make(client: Any, config: Mapping[str, Any], mark: Mark) -> str:
    from docker import errors

    try:
        return str(client.create_container_from_config(dict(config), mark.name)["Id"])
    except errors.APIError as error:
        if error.status_code != 409:
            raise
    try:
        found = client.inspect_container(mark.name)
    except errors.NotFound:
        raise _Underway(f"container {mark.name} is being made") from None
    if not is_ours(found["Config"].get("Labels"), mark):
        raise RuntimeUnavailable(f"a container that is not ours is called {mark.name}", fix="rename or remove it")
    return str(found["Id"])


async def _withdraw(engine: Engine, mark: Mark) -> None:
    """Remove what a failed creation may have made; what cannot be decided now is left to the sweep."""
    gone = await engine.call(lambda client: _remove(client, mark.name), doing="withdrawing a creation", limit_s=_ASK_S)
    if gone:
        engine.doubtful.discard(mark.name)


def _remove(client: Any, name: str) -> bool:
    """Remove a container with its anonymous volumes; True where there was one."""
    from docker import errors

    try:
        client.remove_container(name, force=True, v=True)
    except errors.NotFound:
        return False
    except errors.APIError as error:
        if error.status_code != 409:  # a removal is under way
            raise
    return True


async def remove(engine: Engine, container: str, *, limit_s: float = CALL_S) -> None:
    """Kill and remove a container with its anonymous volumes, and wait until it is gone. Idempotent. One that could not be removed
    stays in `engine.doubtful`."""
    engine.doubtful.add(container)

    def work(client: Any) -> bool:
        _remove(client, container)
        return not _there(client, container)

    give_up = asyncio.get_running_loop().time() + limit_s
    while not await engine.call(work, doing=f"removing container {container[:12]}", limit_s=limit_s):
        if asyncio.get_running_loop().time() > give_up:
            raise RuntimeUnavailable(f"container {container[:12]} is not gone after {limit_s:g} s", fix="look at the engine's log")
        await asyncio.sleep(0.02)
    engine.doubtful.discard(container)


def _there(client: Any, container: str) -> bool:
    from docker import errors

    try:
        client.inspect_container(container)
    except errors.NotFound:
        return False
    return True


async def start(engine: Engine, container: str) -> None:
    """Start it; nothing where it runs."""
    await engine.call(lambda client: client.start(container), doing=f"starting container {container[:12]}")


async def stop(engine: Engine, container: str, *, grace_s: float) -> int:
    """Let it end by its stop signal and return its exit code. It is killed after `grace_s`."""

    def work(client: Any) -> int:
        client.stop(container, timeout=max(1, round(grace_s)))
        return int(client.inspect_container(container)["State"]["ExitCode"])

    return await engine.call(work, doing=f"stopping container {container[:12]}", limit_s=grace_s + CALL_S)


async def kill(engine: Engine, container: str, signal: int = 9) -> None:
    """Send a signal to its first process; nothing where none runs."""

    def work(client: Any) -> None:
        from docker import errors

        try:
            client.kill(container, signal)
        except errors.APIError as error:
            if error.status_code != 409:
                raise

    await engine.call(work, doing=f"sending signal {signal} to container {container[:12]}")


async def inspect(engine: Engine, container: str) -> Mapping[str, Any]:
    """Return what the engine says of it; raise ContainerMissing."""
    found: Mapping[str, Any] = await engine.call(
        lambda client: client.inspect_container(container), doing=f"inspecting container {container[:12]}"
    )
    return found


async def wait_ended(engine: Engine, container: str, *, timeout: float) -> bool:
    """Wait until its first process has ended; False after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + timeout
    while (await inspect(engine, container))["State"]["Running"]:
        if loop.time() > give_up:
            return False
        await asyncio.sleep(0.05)
    return True


async def log_tail(engine: Engine, container: str, lines: int = 20, *, since: float | None = None) -> str:
    """Return the last lines that it wrote; with `since` (seconds of the engine's clock), those that it wrote thereafter."""
    found: bytes = await engine.call(
        lambda client: client.logs(container, tail=lines, since=since), doing=f"reading the log of container {container[:12]}"
    )
    return found.decode("utf-8", "replace").strip()


async def ours(engine: Engine) -> list[Mapping[str, Any]]:
    """List every container of our home, running or not."""
    found: list[Mapping[str, Any]] = await engine.call(
        lambda client: client.containers(all=True, filters={"label": f"{HOME}={engine.home}"}), doing="listing our containers"
    )
    return found
