"""The same promises where the manager is an ordinary user: the other sandbox tests, run again by one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.root, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
UID = 64_200  # neither of the ids that the manager drops to as root
CHECK = "import pydantic, pytest, sandbox.settings"


def interpreter_for_others(search: str) -> str:
    """Return an interpreter that user id UID can run with our packages; the one of this test may lie below a private home."""
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        try:
            as_user([candidate, "-c", CHECK], search, Path("/tmp"), 60)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    return ""


def as_user(argv: list[str], search: str, home: Path, timeout: float) -> str:
    done = subprocess.run(
        argv,
        user=UID,
        group=UID,
        extra_groups=(UID + 1,),  # as most users have: a group that cannot be dropped without privileges
        cwd=ROOT,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=True,
        text=True,
    )
    return done.stdout


@pytest.mark.timeout(400)
def test_everything_holds_for_an_ordinary_user(passable_dir: Path, need: Callable[[str, str], None]) -> None:
    search = os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))])
    interpreter = interpreter_for_others(search)
    need("ordinary-user", "" if interpreter else "no interpreter that another user can run")
    home = passable_dir / "home"
    home.mkdir(mode=0o700)
    os.chown(home, UID, UID)
    files = [f"tests/integration/test_sandbox_{name}.py" for name in ("confinement", "commands", "bounds", "lifecycle", "unpacked")]
    try:
        said = as_user([interpreter, "-m", "pytest", "-q", "-rs", "-p", "no:randomly", *files], search, home, 380)
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stdout[-6000:], pytrace=False)
    assert " passed" in said
    print(said[-2000:])
