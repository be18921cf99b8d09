"""The probe of a PostgreSQL server: everything that an agent can leave behind in one, read from outside."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from probes.canonical import name_of
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.postgres import datadir, shared, sharing
from probes.postgres.connection import anywhere
from probes.postgres.databases import read_databases
from probes.postgres.instance import read_names, read_running
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec

LISTED = "select d.datname, d.oid::int8, d.datallowconn from pg_catalog.pg_database d order by 1"
# Fields of a database that are read at depth deep only, also after hook or clean: they say how rows lie, not what they hold.
DEEP_ONLY = ("planner/", "orphan files", "files")


class PostgresOptions(Options):
    """`databases` limits what is read in depth to some databases (all that accept connections by default)."""

    databases: tuple[str, ...] = ()
    state: str | None = Field(default=None, description="the state directory that is the data directory, where there are several")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresProbe:
    """Reads a whole server: names, what runs, files, and (in depth) every database."""

    name: str
    resource: str
    options: PostgresOptions
    digest: str

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        if not field.startswith(("db ", datadir.UNEXPECTED)):
            return Depth.QUICK
        if not in_place:
            return Depth.DEEP
        rest = field.partition("/")[2]
        return Depth.DEEP if rest.startswith(DEEP_ONLY) or rest.endswith("/order") else Depth.QUICK

    def of_instance(self, field: str) -> bool:
        return sharing.of_instance(field)

    async def read(self, context: ProbeContext) -> Findings:
        if context.sharing is not None:
            return await shared.read(self, context, context.sharing)
        tree = context.subject.tree(self.resource, self.options.state)
        fields = await read_in_thread(datadir.read_configuration, tree)
        async with anywhere(context, self.resource) as connection:
            fields |= await read_running(connection, context, self.name)
            fields |= await read_names(connection)
            databases = await (await connection.execute(LISTED)).fetchall()
        if not context.thorough:
            return Findings(fields=fields)
        wanted = {int(oid): str(n) for n, oid, accepts in databases if accepts and self._wanted(context, str(n))}
        closed = {int(oid): str(n) for n, oid, accepts in databases if not accepts}
        found = await read_databases(context, self.resource, wanted)
        fields |= found.fields
        if context.deep:
            known = {oid: name for oid, name in wanted.items() if oid in found.filenodes}
            fields |= await read_in_thread(datadir.read_everything, tree, {**known, **closed}, found.filenodes)
        else:
            fields |= await read_in_thread(datadir.read_changed, tree, context.baseline)
        return Findings(fields=fields, problems=found.problems)

    def _wanted(self, context: ProbeContext, database: str) -> bool:
        """A database that the baseline does not know is a mismatch by its name already; what it holds adds nothing."""
        if context.baseline is not None and f"databases/{name_of(database)}" not in context.baseline:
            return False
        return not self.options.databases or database in self.options.databases


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> PostgresProbe:
    """Make the probe of a `postgres` resource."""
    options = read_options(spec, PostgresOptions, environment)
    return PostgresProbe(
        name=spec.name,
        resource=resource_of(spec, environment),
        options=options,
        digest=digest_of_kind(spec, options),
    )
