"""Unpacks an image of a Docker engine into the store, so that it can be a sandbox's root.

The engine is asked which image a name means, and unpacks it at the first use of that image; no container is ever started. Blocking.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import clock, staging
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.settings import Settings

log = logging.getLogger(__name__)

DEFAULT = "autoclave/base"
LABEL = "autoclave.unpacking"
_LIMIT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An unpacked image: its files and its variables."""

    id: str
    root: Path
    env: Mapping[str, str]


def fetch(settings: Settings, image: str) -> Fetched:
    """Return the image, unpacked now if it was not before. Raises RuntimeUnavailable without an engine, EnvironmentInvalid without
    the image."""
    with _client() as (client, errors):
        try:
            found = client.inspect_image(image)
        except errors.ImageNotFound:
            raise EnvironmentInvalid(
                f"the Docker engine has no image {image}", fix=f"`docker pull {image}`, or build it; our own: images/build"
            ) from None
        pairs = (pair.partition("=") for pair in (found.get("Config") or {}).get("Env") or ())
        env = {name: value for name, _, value in pairs}
        final = staging.staged_directory(settings).with_name("roots") / found["Id"].removeprefix("sha256:")[:32]
        if not final.is_dir():
            final.parent.mkdir(mode=0o755, exist_ok=True)
            _unpack(client, found["Id"], final)
    return Fetched(id=found["Id"], root=final, env=env)


@contextlib.contextmanager
def _client() -> Iterator[tuple[Any, Any]]:
    try:
        import docker
        from docker import errors
        from docker.utils import kwargs_from_env
    except ImportError:
        raise RuntimeUnavailable(
            'root = "image" needs the docker package to fetch the image', fix="pip install 'autoclave[docker]'"
        ) from None
    import requests

    try:
        client = docker.APIClient(**kwargs_from_env(), version="auto", timeout=120)
        try:
            yield client, errors
        finally:
            client.close()
    except (errors.DockerException, requests.RequestException) as error:
        raise RuntimeUnavailable(
            f'root = "image" needs a Docker engine to fetch the image once: {error}',
            fix="start one, or set DOCKER_HOST, or unpack the image yourself and name its directory as root",
        ) from error


def _unpack(client: Any, image: str, final: Path) -> None:
    for one in client.containers(all=True, filters={"label": LABEL}):
        if one["Created"] < clock.SystemClock().now().timestamp() - 2 * _LIMIT_S:  # of a manager that was killed meanwhile
            client.remove_container(one["Id"], force=True, v=True)
    container = client.create_container(image, command=["/never-started"], labels={LABEL: image})["Id"]
    building = final.with_name(f".{final.name}-{uuid.uuid4().hex[:8]}")
    try:
        building.mkdir(mode=0o700)  # nobody else may come near an image's setuid programs before these bits are gone
        _extract(client.export(container), building)
        building.chmod(0o755)
        try:
            building.rename(final)
        except OSError:
            if not final.is_dir():  # another process of ours may have been first; the content is the same
                raise
        log.info("image unpacked", extra={"image": image, "directory": str(final)})
    finally:
        shutil.rmtree(building, ignore_errors=True)
        client.remove_container(container, force=True, v=True)


def _extract(pieces: Iterator[bytes], directory: Path) -> None:
    """Owners become ours, since sandboxes' users can only read what all may read; devices and setuid bits are left out."""
    words = ["tar", "-xp", "--no-same-owner", "--delay-directory-restore", "--exclude=dev/*", "--exclude=.dockerenv"]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen([*words, "-C", str(directory)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said) as tar,
    ):
        assert tar.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            for piece in pieces:
                tar.stdin.write(piece)
            tar.stdin.close()
        if tar.wait(_LIMIT_S):
            said.seek(0)
            why = said.read().decode(errors="replace").strip()[-500:]
            raise RuntimeUnavailable(f"an image could not be unpacked to {directory}: {why}", fix="free space in the store")
    for folder, _, files in os.walk(directory):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o6000:
                path.chmod(mode & 0o1777)


def fingerprint(root: Path) -> str:
    """Digest what an unpacked image is made of: names, kinds, modes, sizes, dates and link targets; content is not read."""
    import xxhash

    total = xxhash.xxh3_128()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else ""
            size = 0 if os.path.isdir(path) else status.st_size
            total.update(json.dumps([os.path.relpath(path, root), status.st_mode, size, int(status.st_mtime), link]).encode())
    return total.hexdigest()
