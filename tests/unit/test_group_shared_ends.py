"""A shared instance ends whatever its server does, and a directory in its tree that could not be made is nobody's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ResetFailed, RuntimeUnavailable
from sandbox.model import InstanceId, Isolation, NamespaceId, Role, SealedDir
from sandbox.ports import Mount
from sandbox.runtimes.group.plans import Plans
from sandbox.runtimes.group.shared import GroupShared
from sandbox.runtimes.group.tree_parts import SharedTree
from sandbox.settings import Settings, Users
from sandbox.testing import MemoryStorage, memory_environment


@pytest.fixture
def settings() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as short:  # a socket's path may have 107 bytes
        place = Path(short)
        yield Settings(home=place, store=place, scratch=place, run=place / "run", users=Users(agent=None, server=None))


class Boxes:
    """A machine on which no sandbox starts any more."""

    name = "none"

    async def start(self, plan: object) -> Any:
        raise RuntimeUnavailable("no sandbox starts", fix="look at the machine")

    async def release(self, name: str) -> None:
        return


class Place:
    """Where the shared tree would be."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mount(self, target: str, *, readonly: bool = False) -> Mount:
        return Mount(target=target, layers=(str(self._path),), readonly=readonly)


class Server:
    """A server that runs and does not answer, until it is killed."""

    def __init__(self) -> None:
        self.killed = self.destroyed = False

    async def kill(self) -> None:
        self.killed = True

    async def destroy(self) -> None:
        self.destroyed = True


class Holder:
    """A namespace on it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.asked = 0
        self.closed = False

    async def revoke(self) -> None:
        self.asked += 1
        if not self._server.killed:
            raise ResetFailed("the server did not answer")

    async def close(self) -> None:
        await self.revoke()
        self.closed = True


async def test_a_server_that_does_not_answer_does_not_keep_its_instance_from_ending(settings: Settings) -> None:
    plans = Plans(settings, memory_environment("tree", isolation=Isolation.DIRECTORY, namespaces_per_instance=2))
    shared = GroupShared(settings, MemoryStorage(), Boxes(), plans, InstanceId("i"), None)  # type: ignore[arg-type]
    server = Server()
    holders = [Holder(server), Holder(server)]
    shared._world = server  # type: ignore[assignment]
    shared._tenants = {NamespaceId(f"n{n}"): holder for n, holder in enumerate(holders)}  # type: ignore[misc]

    await shared.close()

    assert server.killed
    assert server.destroyed
    assert [holder.closed for holder in holders] == [True, True]
    assert [holder.asked for holder in holders] == [3, 3]  # with the server, without it, and at their own end


async def test_a_directory_that_could_not_be_copied_is_nobodys(settings: Settings) -> None:
    plans = Plans(settings, memory_environment("tree", isolation=Isolation.DIRECTORY))
    (state,) = plans.states[:1]
    tree = SharedTree(Boxes(), plans, Place(settings.store / "tree"))  # type: ignore[arg-type]
    golden = settings.store / "golden"
    for place in (golden, settings.store / "tree"):
        place.mkdir()
    with pytest.raises(RuntimeUnavailable, match="no sandbox starts"):
        await tree.make("ns_1", state, SealedDir(name=state.name, layers=(str(golden),), digest="d", role=Role.AGENT))
    assert tree.directories == set()
