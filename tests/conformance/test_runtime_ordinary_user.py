"""The same suite where the manager is an ordinary user: run again by one, who may speak to the engine where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.runtimes.docker.address import from_environment

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.root, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
UID = 64_201  # neither of the ids that the manager drops to as root
CHECK = "import pydantic, pytest, psycopg, sandbox.settings"
SUITE = ("tests/conformance/test_runtime.py", "tests/conformance/test_runtime_servers.py")


def as_user(argv: list[str], search: str, home: Path, timeout: float) -> str:
    address = from_environment()
    groups = [os.stat(address.path).st_gid] if address.is_socket and Path(address.path).exists() else []
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(home)}
    done = subprocess.run(
        argv,
        user=UID,
        group=UID,
        extra_groups=groups,
        cwd=ROOT,
        env={**env, "DOCKER_HOST": address.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=True,
        text=True,
    )
    return done.stdout


def interpreter_for_others(search: str) -> str:
    """Return an interpreter that another user can run with our packages; the one of this test may lie below a private home."""
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            as_user([candidate, "-c", CHECK], search, Path("/tmp"), 120)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return ""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "which", ["namespaces", pytest.param("docker-recreate", marks=pytest.mark.docker)], ids=["namespaces", "docker-recreate"]
)
def test_every_promise_is_kept_for_an_ordinary_user(which: str, passable_dir: Path, need: Callable[[str, str], None]) -> None:
    search = os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))])
    interpreter = interpreter_for_others(search)
    need("ordinary-user", "" if interpreter else "no interpreter that another user can run")
    home = passable_dir / "home"
    home.mkdir(mode=0o700)
    os.chown(home, UID, UID)
    parts = "namespaces,postgres" if which == "namespaces" else "docker,postgres"
    argv = [
        interpreter,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
        "--require",
        parts,
        "-k",
        which,
        *SUITE,
    ]
    try:
        said = as_user(argv, search, home, 1750)
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-6000:], pytrace=False)
    assert " passed" in said
    print(said[-2000:])
