"""The kind `postgres`: a whole server, read from outside over its socket and through its data directory."""

from probes.postgres.probe import PostgresOptions, PostgresProbe, create

__all__ = ["PostgresOptions", "PostgresProbe", "create"]
