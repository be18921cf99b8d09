"""The superuser's access: a random password that only the host has, in a file of the data directory that agents cannot read."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from sandbox.errors import InstanceLost
from sandbox.ports import Clone, LiveResource
from sandbox.resources.postgres.options import SUPERUSER

PASSFILE = "autoclave.pgpass"
DATA = "data"
_CONNECT_S = 10
_PID_FILE, _STATUS_LINE = "postmaster.pid", 7
_KNOWS_REQUIRE_AUTH = 160_000


def new_password() -> str:
    return secrets.token_urlsafe(32)


def verifier(password: str) -> str:
    """Return what the server stores. One iteration: 256 random bits cannot be guessed, and each login is 2 ms faster."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    return f"SCRAM-SHA-256$1:{_base64(salt)}${_base64(stored)}:{_base64(server_key)}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def passfile_line(password: str, user: str = SUPERUSER) -> str:
    return f"*:*:*:{user}:{password}\n"


def passfile(clone: Clone) -> Path:
    """Return where the password lies: in the sealed layers, which nobody inside can write, else (while seeding) in the clone."""
    for layer in clone.origin.layers:
        path = Path(layer, PASSFILE)
        if os.path.lexists(path):
            return path
    return clone.tree().real(PASSFILE)


def superuser_conninfo(live: LiveResource, database: str) -> str:
    """Return a conninfo in which no secret stands. A server that an agent took over cannot ask for the password in clear."""
    if live.socket_dir is None:
        raise InstanceLost(f"resource {live.spec.name} has no socket directory")
    guard = {"require_auth": "scram-sha-256"} if psycopg.pq.version() >= _KNOWS_REQUIRE_AUTH else {}
    path = passfile(live.state[DATA])
    return make_conninfo(host=str(live.socket_dir), user=SUPERUSER, dbname=database, passfile=str(path), **guard)


def still_starting(live: LiveResource) -> bool:
    """True while the postmaster's own file says so: asking it meanwhile would cost a process each time, and be refused. What the
    file says is a hint only; the server is ready when it answers."""
    try:
        lines = live.state[DATA].tree().read(_PID_FILE, 4096).split(b"\n")
    except OSError:
        return False
    return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == b"starting"


@asynccontextmanager
async def superuser(live: LiveResource, database: str = "postgres") -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Open a session as superuser whose settings nobody in the server decides."""
    connection = await psycopg.AsyncConnection.connect(
        superuser_conninfo(live, database),
        autocommit=True,
        connect_timeout=_CONNECT_S,
        options="-c search_path=pg_catalog -c statement_timeout=60s -c lock_timeout=10s -c role=none",
        application_name="autoclave",
        prepare_threshold=None,
    )
    try:
        yield connection
    finally:
        await connection.close()
