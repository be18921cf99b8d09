"""The shop in a database of a throw-away server."""

from __future__ import annotations

from pathlib import Path

import psycopg

from envs.scratch import run_text

SQL = Path(__file__).parent / "db"
SEED_FILES = ("roles.sql", "schema.sql", "functions.sql", "seed.sql", "rules.sql")


def seed(conninfo: str, database: str) -> str:
    """Create and fill a database; return its conninfo as superuser. Roles are created once per server."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f'create database "{database}"'.encode())
        known = connection.execute("select from pg_roles where rolname = 'shop_owner'").fetchone() is not None
    target = psycopg.conninfo.make_conninfo(conninfo, dbname=database)
    for name in SEED_FILES:
        text = (SQL / name).read_text("utf-8")
        run_text(target, f'alter database "{database}" owner to shop_owner' if known and name == "roles.sql" else text, name)
    return target
