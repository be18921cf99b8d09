"""The configuration files of a server, written once at seeding."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.model import Isolation
from sandbox.resources.postgres.options import SUPERUSER, PostgresOptions

SOCKET_DIR = "/run/server"
SESSIONS = 20  # of one part of a shared server at once, so that it cannot take every connection of the server ...
_OURS = 10  # ... and for its reset and its checks meanwhile
# The state is thrown away, never recovered: nothing needs to be flushed. autovacuum is off because it would change statistics,
# and with them plans and readings, at times of its own.
_DEFAULTS: Mapping[str, str | int | bool] = {
    "listen_addresses": "",
    "unix_socket_directories": SOCKET_DIR,
    "unix_socket_permissions": "0777",  # who may come in is decided by the directory and pg_hba.conf
    "fsync": False,
    "synchronous_commit": False,
    "full_page_writes": False,
    "autovacuum": False,
    "jit": False,
    "max_connections": 40,
    "shared_buffers": "32MB",
    "min_wal_size": "2MB",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "1h",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": False,
    "log_checkpoints": False,
}


# By the first major version that knows them. Workers for reading ahead are processes that each start would wait for.
_SINCE: Mapping[int, Mapping[str, str | int | bool]] = {18: {"io_method": "sync"}}


def postgresql_conf(options: PostgresOptions, major: int, *, parts: int = 0) -> str:
    """Return what is added at the end of postgresql.conf; later lines win there. `parts`: of a server that so many share."""
    newer = {name: value for since, values in _SINCE.items() if major >= since for name, value in values.items()}
    # What holders leave over must do for the checks of all.
    shared = {"max_connections": (parts + 1) * (SESSIONS + _OURS)} if parts else {}
    values = {**_DEFAULTS, **newer, **shared, "max_prepared_transactions": options.max_prepared_transactions, **options.settings}
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())


def pg_hba_conf(options: PostgresOptions, isolation: Isolation = Isolation.INSTANCE) -> str:
    """The agent's role comes in by reaching the socket; everybody else, the superuser first, needs a password. The server sees the
    agent, the manager and any other process as one and the same foreign user id, so `peer` could not tell them apart.

    Where namespaces share the server, each has a role of its own, which reaches the database of its own name (or, with a schema
    each, the one database that there is) with a password; the agent's role is nobody's."""
    if isolation is not Isolation.INSTANCE:
        own = f"sameuser +{options.role}" if isolation is Isolation.DATABASE else f'"{options.database}" all'
        return (
            f"local {own} scram-sha-256\n"
            f'local all "{SUPERUSER}" scram-sha-256\n'
            f'local replication "{SUPERUSER}" scram-sha-256\n'
            "local all all reject\n"
        )
    return (
        f'local all "{options.role}" trust\n'
        f'local replication "{SUPERUSER}" scram-sha-256\n'
        "local all all scram-sha-256\n"
    )  # fmt: skip


def _quoted(value: str | int | float | bool) -> str:
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"
