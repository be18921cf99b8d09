"""The `postgres` kind: a PostgreSQL server of its own for each namespace. See `options` for what can be set."""

from sandbox.resources.postgres.resource import Postgres, create

__all__ = ["Postgres", "create"]
