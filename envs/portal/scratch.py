"""The portal's database on a throw-away server, and its web server over it, for those who make tasks or test them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from envs.scratch import run_text, server
from sandbox.errors import RuntimeUnavailable

HERE = Path(__file__).parent
SEED_FILES = ("roles.sql", "schema.sql", "seed.sql", "passwords.sql", "rights.sql")


def seed(conninfo: str, database: str = "portal", files: Sequence[str] = SEED_FILES) -> str:
    """Create and fill a database, once per server; return its conninfo as superuser."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f'create database "{database}"'.encode())
    target = psycopg.conninfo.make_conninfo(conninfo, dbname=database)
    for name in files:
        run_text(target, (HERE / "db" / name).read_text("utf-8"), name)
    return target


def logins() -> list[str]:
    """Return everybody's user name, from a build of the rows."""
    with server() as conninfo, psycopg.connect(seed(conninfo, files=("roles.sql", "schema.sql", "seed.sql"))) as connection:
        return [row[0] for row in connection.execute("select login from portal.people order by id")]


@contextmanager
def web(conninfo: str, directory: Path) -> Iterator[Path]:
    """Run the portal's server over a database; yield the path of its socket, which lies in `directory`, as its uploads do."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    path = directory / "service.sock"
    environ = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "PORTAL_DB": str(given["host"]),
        "PORTAL_DB_NAME": str(given["dbname"]),
        "PORTAL_UPLOADS": str(directory / "uploads"),
    }
    process = subprocess.Popen([sys.executable, "-I", "-B", str(HERE / "app"), str(path)], env=environ)
    try:
        deadline = time.monotonic() + 20
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeUnavailable("the portal's server did not start")
            time.sleep(0.02)
        yield path
    finally:
        process.terminate()
        process.wait(timeout=20)
