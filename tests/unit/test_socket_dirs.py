"""The directories of an instance's sockets: what a reset in place moves, and what is no more at the former address."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.runtimes.group.sockets import SocketDirs
from sandbox.settings import Settings, Users


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as short:  # a socket's path may have 107 bytes
        yield Path(short)


def test_a_running_servers_directory_moves_with_what_its_resource_keeps_beside_it(place: Path) -> None:
    users = Users(agent=None, server=None)
    dirs = SocketDirs(Settings(home=place, store=place, scratch=place, run=place / "run", users=users))
    old = dirs.for_server("browser")
    (old / "own").mkdir()
    (old / "own" / "cdp.sock").touch()
    (old.parent / "secret").write_text("beside")
    dirs.publish(1, [("browser", old)])

    fresh = dirs.renew(old)

    assert not old.parent.exists()
    assert (fresh / "own" / "cdp.sock").exists()
    assert (fresh.parent / "secret").read_text() == "beside"
    assert not (dirs.address("browser") / "own").exists(), "the former address leads nowhere"
    dirs.close()
    assert list((place / "run").iterdir()) == []
