"""Servers that see other servers start after them and stop before them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResourceSpec
from sandbox.ports import Resource, ServerPlan
from sandbox.runtimes.group.order import peers_of, start_in_order, stop_in_order, with_dependents


class Served:
    """As much of a resource as the order looks at."""

    def __init__(self, name: str, peers: tuple[str, ...], *, serves: bool) -> None:
        self.spec = ResourceSpec(name=name, kind="service")
        self._plan = ServerPlan(argv=("server",), env={}, peers=peers) if serves else None

    def server(self) -> ServerPlan | None:
        return self._plan


def resources(peers: Mapping[str, tuple[str, ...]], *, idle: tuple[str, ...] = ()) -> list[Resource]:
    found: list[Any] = [Served(name, of, serves=True) for name, of in peers.items()]
    return cast("list[Resource]", [*found, *(Served(name, (), serves=False) for name in idle)])


PEERS = {"web": ("db", "queue"), "queue": ("db",), "db": (), "mail": ()}


def test_a_server_without_peers_needs_nobody() -> None:
    assert peers_of("shop", resources({"db": ()}, idle=("files",))) == {"db": ()}


@pytest.mark.parametrize("missing", ["files", "nothing"])
def test_a_peer_must_be_a_server(missing: str) -> None:
    with pytest.raises(EnvironmentInvalid, match=f"web needs {missing}"):
        peers_of("shop", resources({"web": (missing,)}, idle=("files",)))


def test_a_cycle_is_named() -> None:
    with pytest.raises(EnvironmentInvalid, match=r"web -> .*db -> |db -> .*web -> "):
        peers_of("shop", resources({"web": ("db",), "db": ("queue",), "queue": ("web",)}))


def test_what_sees_a_server_starts_anew_with_it() -> None:
    assert with_dependents(PEERS, ["queue"]) == {"queue", "web"}
    assert with_dependents(PEERS, ["db"]) == {"db", "queue", "web"}
    assert with_dependents(PEERS, []) == frozenset()


async def test_peers_start_first_and_stop_last() -> None:
    events: list[str] = []

    async def begin(name: str) -> None:
        await asyncio.sleep(0)
        events.append(f"{name} up")

    async def end(name: str) -> None:
        await asyncio.sleep(0)
        events.append(f"{name} down")

    await start_in_order(PEERS, ["web", "queue", "db", "mail"], begin)
    await stop_in_order(PEERS, list(PEERS), end)
    at = {event: index for index, event in enumerate(events)}
    assert len(at) == 8
    assert at["db up"] < at["queue up"] < at["web up"] < at["web down"] < at["queue down"] < at["db down"]


async def test_peers_that_run_already_are_not_waited_for() -> None:
    started: list[str] = []

    async def begin(name: str) -> None:
        started.append(name)

    async with asyncio.timeout(10):
        await start_in_order(PEERS, ["web"], begin)
    assert started == ["web"]


async def test_a_server_that_fails_takes_those_that_wait_for_it() -> None:
    async def begin(name: str) -> None:
        if name == "db":
            raise EnvironmentInvalid("db does not start")
        await asyncio.sleep(0)

    async with asyncio.timeout(10):
        with pytest.raises(EnvironmentInvalid, match="db does not start"):
            await start_in_order(PEERS, ["web", "queue", "db"], begin)
