"""Two builds of an image from the same packages give the same files: content, modes, owners, dates."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.docker, pytest.mark.timeout(1800)]
FOLDER = Path(__file__).parents[2] / "images"
# What the engine itself puts into every container that it makes.
ENGINES = {".dockerenv", "dev", "dev/console", "etc", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf"}
LABEL = "autoclave.images.folder=test"


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=1500).stdout.strip()


@pytest.fixture
def built() -> Iterator[list[str]]:
    """Two fresh builds of `base` on what stands below the engine's own, and of `repo` on each."""
    tag = f"autoclave-test/{secrets.token_hex(4)}"
    below = docker("image", "inspect", "-f", "{{index .RootFS.Layers 0}}", "autoclave/base")
    debian = next(
        name
        for name in docker("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines()
        if "debian:" in name and docker("image", "inspect", "-f", "{{index .RootFS.Layers 0}}", name) == below
    )
    made = []
    try:
        for number in "12":
            for name, on in (("base", f"DEBIAN={debian}"), ("repo", f"BASE={tag}:base{number}")):
                docker(
                    "build",
                    "--no-cache",
                    "-q",
                    "--label",
                    LABEL,
                    "-t",
                    f"{tag}:{name}{number}",
                    "--build-arg",
                    on,
                    str(FOLDER / name),
                )
                made.append(f"{tag}:{name}{number}")
        yield made
    finally:
        if made:
            docker("rmi", *reversed(made))


def tree(image: str) -> dict[str, tuple[object, ...]]:
    container = docker("create", "--label", LABEL, image, "/never-started")
    found: dict[str, tuple[object, ...]] = {}
    try:
        with (
            subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export,
            tarfile.open(fileobj=export.stdout, mode="r|") as files,
        ):
            for entry in files:
                content = files.extractfile(entry) if entry.isreg() else None
                digest = hashlib.file_digest(content, "sha256").hexdigest() if content else ""  # type: ignore[arg-type]
                date = 0 if entry.name.rstrip("/") in ENGINES else int(entry.mtime)
                found[entry.name] = (entry.type, entry.mode, entry.uid, entry.gid, date, entry.linkname, digest)
    finally:
        docker("rm", container)
    return found


def test_two_builds_are_the_same(built: list[str]) -> None:
    for first, second in ((built[0], built[2]), (built[1], built[3])):
        one, other = tree(first), tree(second)
        assert len(one) > 5000
        assert [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)] == []
