"""The directories of an instance's sockets: what a reset in place moves, and what is no more at the former address."""

from __future__ import annotations

from pathlib import Path

from sandbox.runtimes.group.sockets import SocketDirs
from sandbox.settings import Settings, Users


def test_a_running_servers_directory_moves_with_what_its_resource_keeps_beside_it(tmp_path: Path) -> None:
    dirs = SocketDirs(
        Settings(home=tmp_path, store=tmp_path, scratch=tmp_path, run=tmp_path / "run", users=Users(agent=None, server=None))
    )
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
    assert list((tmp_path / "run").iterdir()) == []
