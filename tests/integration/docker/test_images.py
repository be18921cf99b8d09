"""Our images: what they promise, that nothing is built twice, and that an image is a root of the embedded runtime."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.model import Role
from sandbox.runtimes.group.box import SandboxPlan
from sandbox.runtimes.namespaces import fetched
from sandbox.runtimes.namespaces.boxes import NamespaceBoxes
from sandbox.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
NAMES = ("base", "browser", "postgres", "repo")


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def build(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "images/build"), "--json", *words], check=True, capture_output=True, timeout=280
    )
    found: dict[str, Any] = json.loads(done.stdout)["images"]
    return found


def containers_of_unpacking() -> list[str]:
    labels = ("autoclave.images.folder=unpack", fetched.LABEL)
    return [line for label in labels for line in docker("ps", "-aq", "--filter", f"label={label}").split()]


def test_what_has_not_changed_is_not_built_again() -> None:
    found = build()
    assert set(found) == set(NAMES)
    assert not any(image["built"] for image in found.values())
    assert all(docker("image", "inspect", "-f", "{{.Id}}", f"autoclave/{name}:latest") == found[name]["id"] for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_runs_as_nobody_special_and_starts_nothing(name: str) -> None:
    config = json.loads(docker("image", "inspect", "-f", "{{json .Config}}", f"autoclave/{name}"))
    assert (config["User"], config.get("Entrypoint"), config.get("Volumes")) == ("1000:1000", None, None)
    script = "id -u; ls /var/lib/apt/lists /var/log; wc -l < /usr/local/share/autoclave/packages.txt"
    said = docker(
        "run", "--rm", "--network", "none", "--label", "autoclave.images.folder=test", f"autoclave/{name}", "sh", "-c", script
    )
    lines = said.splitlines()
    assert lines[0] == "1000"
    assert lines[1:4] == ["/var/lib/apt/lists:", "", "/var/log:"]
    assert int(lines[-1]) > 50


@pytest.mark.parametrize(
    ("name", "command", "shown"),
    [
        ("postgres", "postgres --version && psql --version", "18."),
        (
            "repo",
            "git --version && python3 -c 'import unittest' && make --version | head -1 && patch --version | head -1",
            "git version",
        ),
        ("browser", "chromium --version", "Chromium"),
    ],
)
def test_an_image_holds_what_its_environments_need(name: str, command: str, shown: str) -> None:
    assert shown in docker("run", "--rm", "--network", "none", f"autoclave/{name}", "sh", "-c", command)


def test_an_image_is_unpacked_without_what_could_harm_the_host(passable_dir: Path) -> None:
    found = build("base", "--unpack", str(passable_dir))
    root = passable_dir / "base"
    assert found["base"]["unpacked"] == str(root)
    assert (root / "usr/bin/passwd").is_file() or (root / "usr/bin/newgrp").is_file()
    special = [p for p in root.rglob("*") if not p.is_symlink() and p.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert special == []
    assert list((root / "dev").iterdir()) == []
    assert stat.S_IMODE((root / "etc/shadow").stat().st_mode) & 0o004 == 0
    assert containers_of_unpacking() == []
    refused = subprocess.run(
        [sys.executable, str(ROOT / "images/build"), "base", "--unpack", "/usr"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 0 or "is not replaced" in refused.stderr


@pytest.mark.namespaces
async def test_an_environments_image_is_its_root(settings: Settings, nothing_left: None) -> None:
    boxes = NamespaceBoxes(settings)
    plan = SandboxPlan(name="test", role=Role.AGENT, root="image", image="autoclave/postgres", workdir="/workspace")
    async with await boxes.start(plan) as box:
        done = await box.channel.run(["sh", "-c", "command -v psql; id -un; cat /usr/local/share/autoclave/packages.txt | wc -l"])
        lines = done.stdout.decode().split()
        assert lines[:2] == ["/opt/postgres/bin/psql", "agent"]
        assert box.in_force["root"] == "unpacked image, read-only"
    again = fetched.fetch(settings, "autoclave/postgres")
    assert again.root.is_dir()
    assert [p.name for p in again.root.parent.iterdir()] == [again.root.name]
    assert again.id in await boxes.identity("image", "autoclave/postgres")
    assert await boxes.identity("image", "autoclave/base") != await boxes.identity("image", "autoclave/postgres")
    assert containers_of_unpacking() == []
    with pytest.raises(EnvironmentInvalid, match="no image autoclave/nothing-of-that-name"):
        fetched.fetch(settings, "autoclave/nothing-of-that-name")


async def test_a_changed_root_is_another_baseline(settings: Settings, passable_dir: Path) -> None:
    root = passable_dir / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("one")
    before = await NamespaceBoxes(settings).identity(str(root), "")
    assert await NamespaceBoxes(settings).identity(str(root), "") == before
    (root / "bin/tool").chmod(0o700)
    assert await NamespaceBoxes(settings).identity(str(root), "") != before
