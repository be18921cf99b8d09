"""An unpacked image as the root of a sandbox: whatever its author left out or did his own way."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Mount
from sandbox.runtimes.namespaces.sandbox import Sandbox

pytestmark = pytest.mark.namespaces
Start = Callable[..., Awaitable[Sandbox]]


@pytest.fixture
def image(passable_dir: Path) -> Path:
    """A root with three programs of the host, a user 1000 of its own, links in unusual places, and nothing else."""
    root = passable_dir / "image"
    for folder in ("usr/bin", "etc", "var/tmp", "var/lib", "run", "srv/real"):
        (root / folder).mkdir(parents=True)
    for program in map(shutil.which, ("sh", "cat", "ls")):
        assert program is not None
        shutil.copy2(os.path.realpath(program), root / "usr/bin" / Path(program).name)
        for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/"):
                (root / word.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(os.path.realpath(word), root / word.lstrip("/"))
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/bash\nweb:x:33:33::/:/bin/false\n"
    )
    (root / "etc/hosts").write_text("10.0.0.1 whoever-built-it\n")
    (root / "etc/resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    (root / "data").symlink_to("/srv/real")
    (root / "var/out").symlink_to("../../../../srv")
    (root / "tmp").symlink_to("/var/tmp")
    return root


async def said(sandbox: Sandbox, script: str) -> str:
    done = await sandbox.channel.run(["sh", "-c", script], limit_s=30)
    assert done.exit_code == 0, done
    return done.stdout.decode()


async def test_the_user_of_the_sandbox_is_known_beside_those_of_the_image(start: Start, image: Path) -> None:
    sandbox = await start(root=str(image), home="/home/agent")
    lines = (await said(sandbox, "cat /etc/passwd")).splitlines()
    assert lines == ["root:x:0:0::/root:/bin/sh", "web:x:33:33::/:/bin/false", "agent:x:1000:1000:agent:/home/agent:/bin/sh"]
    assert "agent:x:1000:" in await said(sandbox, "cat /etc/group")


async def test_names_are_those_of_the_sandbox(start: Start, image: Path) -> None:
    sandbox = await start(root=str(image), hostname="box")
    assert (await said(sandbox, "cat /etc/hosts")).splitlines()[0] == "127.0.0.1 localhost box"
    assert await said(sandbox, "cat /etc/resolv.conf /etc/hostname") == "box\n"


async def test_scratch_space_can_be_written_and_the_image_cannot(start: Start, image: Path) -> None:
    sandbox = await start(root=str(image))
    assert await said(sandbox, "echo here > /var/tmp/note; cat /tmp/note; echo there > /tmp/other") == "here\n"
    refused = await sandbox.channel.run(["sh", "-c", "echo x > /srv/real/x || echo y > /etc/y || echo z > /z"])
    assert refused.exit_code != 0
    assert list((image / "var/tmp").iterdir()) == list((image / "srv/real").iterdir()) == []


async def test_mount_points_are_made_anywhere_also_behind_links(start: Start, image: Path, passable_dir: Path) -> None:
    """The image's directories belong to somebody else than the sandbox's user, who can make nothing in them."""
    given = passable_dir / "given"
    given.mkdir()
    (given / "file").write_text("mounted")
    places = ("/run/db", "/var/lib/deep/er", "/data/set", "/var/out/side", "/opt/new", "/srv/real")
    sandbox = await start(root=str(image), mounts=tuple(Mount(target=p, layers=(str(given),), readonly=True) for p in places[:-1]))
    for place in places[:-1]:
        assert await said(sandbox, f"cat {place}/file") == "mounted"
    assert await said(sandbox, "cat /srv/real/set/file /srv/side/file") == "mountedmounted"
    assert sorted(p.name for p in (image / "srv").iterdir()) == ["real"]


@pytest.mark.root
async def test_a_root_that_the_dropped_users_cannot_reach_is_refused_by_name(start: Start, image: Path) -> None:
    image.parent.joinpath("private").mkdir(mode=0o700)
    moved = image.rename(image.parent / "private" / "image")
    with pytest.raises(EnvironmentInvalid, match="private lets only its owner pass"):
        await start(root=str(moved))
