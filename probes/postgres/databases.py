"""Several databases of one server, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg

from probes.canonical import name_of
from probes.postgres.connection import session
from probes.postgres.database import read_database, read_filenodes
from probes.probe import ProbeContext

AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class Databases:
    """What was read of them, and the files of their relations by object id of the database."""

    fields: dict[str, str] = field(default_factory=dict)
    filenodes: dict[int, frozenset[int]] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(sorted(self.troubles))


async def read_databases(context: ProbeContext, resource: str, wanted: Mapping[int, str]) -> Databases:
    """Read databases, given by object id and name, each through a session of its own."""
    found = Databases()
    places = asyncio.Semaphore(AT_ONCE)

    async def one(oid: int, database: str) -> None:
        async with places:
            try:
                async with session(context, resource, database) as connection:
                    fields, trouble = await read_database(connection, database, deep=context.deep)
                    found.filenodes[oid] = await read_filenodes(connection) if context.deep else frozenset()
            except psycopg.Error as error:
                fields, trouble = {}, [f"db {name_of(database)}: {error.sqlstate or ''} {' '.join(str(error).split())}"]
        found.fields.update(fields)
        found.troubles.extend(trouble)

    async with asyncio.TaskGroup() as group:
        for oid, database in wanted.items():
            group.create_task(one(oid, database))
    return found
