"""What can be set for a `postgres` resource.

    [resources.db]
    kind = "postgres"
    version = 18                   # the major version; any when absent
    database = "shop"
    seed = ["db/schema.sql", "db/data.sql"]   # run in this order as superuser, each in a session of its own
    role = "agent"                 # the role that the agent logs in as, without a password
    superuser = false
    owner = true                   # the agent's role owns the database, unless the seed says otherwise
    extensions = ["hstore"]
    max_prepared_transactions = 0
    settings = { work_mem = "8MB" }
    template = true                # keep a copy in the server, for reset method "clean"

A task's own start state: `start.db = { seed = [...], sql = "..." }`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from sandbox.resources.options import Options

SUPERUSER = "postgres"
_TAKEN_DATABASES = ("postgres", "template0", "template1")
# What the runtime decides: where things lie, who may come in, what makes a stop clean and a reading repeatable.
DECIDED = frozenset(
    {
        "archive_mode", "autovacuum", "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file",
        "listen_addresses", "log_destination", "logging_collector", "max_prepared_transactions", "port", "unix_socket_directories",
        "unix_socket_group", "unix_socket_permissions",
    }
)  # fmt: skip


def _database(name: str) -> str:
    if name in _TAKEN_DATABASES:
        raise ValueError(f"{name!r} is every server's own")
    return name


def _role(name: str) -> str:
    if name == SUPERUSER or name.startswith("pg_"):
        raise ValueError(f"{name!r} is the server's own; the agent needs one of its own")
    return name


Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,49}$")]


def _settings(values: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
    if decided := sorted(set(values) & DECIDED):
        raise ValueError(f"{', '.join(decided)} cannot be set here: the resource decides it")
    return values


Settings = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_.]*$")], str | int | float | bool], AfterValidator(_settings)
]


class PostgresOptions(Options):
    version: int | None = Field(None, ge=13)
    database: Annotated[Name, AfterValidator(_database)] = "app"
    seed: list[str] = Field(default_factory=list)
    role: Annotated[Name, AfterValidator(_role)] = "agent"
    superuser: bool = False
    owner: bool = True
    extensions: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]] = Field(default_factory=list)
    max_prepared_transactions: int = Field(0, ge=0, le=1000)
    settings: Settings = Field(default_factory=dict)
    template: bool = True


class PostgresStart(Options):
    seed: list[str] = Field(default_factory=list)
    sql: str = ""
