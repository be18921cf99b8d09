"""`make demo` in a new clone with an empty home, as root and as an ordinary user: private directories, nothing set up before."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER = "autoclave-test"

pytestmark = [pytest.mark.acceptance, pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.root, pytest.mark.timeout(1200)]


@pytest.fixture
def ordinary() -> Iterator[pwd.struct_passwd]:
    """An ordinary user of this machine, for the time of the test."""
    made = subprocess.run(["useradd", "--create-home", USER], check=False, capture_output=True).returncode == 0
    yield pwd.getpwnam(USER)
    if made:
        subprocess.run(["userdel", "--remove", USER], check=True, capture_output=True)


def make_demo(clone: Path, home: Path, user: int | None) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "PATH": os.defpath if user is None else "/usr/bin:/bin", "LANG": "C.UTF-8"}
    environ |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "http", "HTTP", "SSL_"))}
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else "python3"
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}"],
        cwd=clone,
        env=environ,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )


def test_as_root(tmp_path: Path) -> None:
    home, clone = tmp_path / "home", tmp_path / "clone"
    home.mkdir(mode=0o700)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)

    done = make_demo(clone, home, None)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "16 of 16" in done.stdout


def test_as_an_ordinary_user(ordinary: pwd.struct_passwd) -> None:
    place = Path(ordinary.pw_dir) / "new"
    home, clone = place / "home", place / "clone"
    place.mkdir(mode=0o700)
    home.mkdir(mode=0o700)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    for path in (place, *place.rglob("*")):
        os.chown(path, ordinary.pw_uid, ordinary.pw_gid, follow_symlinks=False)

    done = make_demo(clone, home, ordinary.pw_uid)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "16 of 16" in done.stdout
    shutil.rmtree(place)
