"""A PostgreSQL server with a database for the agent."""

from __future__ import annotations

import secrets
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from sandbox import binaries
from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, InstanceLost
from sandbox.model import Isolation, ResourceSpec, Role
from sandbox.ports import LiveResource, Mount, Part, SeedHost, ServerPlan, StateDir
from sandbox.resources import options as reading
from sandbox.resources.postgres import access, cleaning, configuration, parts, seeding, walls
from sandbox.resources.postgres.options import SUPERUSER, PostgresOptions, PostgresStart
from sandbox.settings import Settings, load

TARGET = "/srv/postgres"
_SOCKET = ".s.PGSQL.5432"
_STOP_S = 60.0


class Postgres:
    """One server for each namespace. Its binaries are looked for when they are first needed."""

    def __init__(self, spec: ResourceSpec, options: PostgresOptions, settings: Settings | None) -> None:
        self._spec = spec
        self._options = options
        self._settings = settings

    @property
    def spec(self) -> ResourceSpec:
        return self._spec

    @property
    def options(self) -> PostgresOptions:
        return self._options

    @cached_property
    def binaries(self) -> binaries.PostgresBinaries:
        """Raises RuntimeUnavailable."""
        return binaries.postgres(self._settings or load(), self._options.version)

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {
            "postgres": self.binaries.version,
            "binaries": f"{self.binaries.origin} ({self.binaries.host})",
            "reset_scope": "the whole server",
            "agent_role": f"{self._options.role}{' (superuser)' if self._options.superuser else ''}",
        }

    @cached_property
    def digest(self) -> str:
        options = self._options.model_dump(exclude={"seed"})
        return reading.digest("postgres", 1, options, self.binaries.version, files=[Path(p) for p in self._options.seed])

    def state_dirs(self) -> Sequence[StateDir]:
        return (StateDir(name=access.DATA, target=TARGET, role=Role.SERVER),)

    def server(self) -> ServerPlan | None:
        return ServerPlan(
            argv=(self.binaries.program("postgres"), "-D", TARGET),
            env={"LC_ALL": "C", "TZ": "UTC"},
            binds=self.binaries.binds,
            socket_dir=configuration.SOCKET_DIR,
        )

    def agent_env(self) -> Mapping[str, str]:
        found = {"PGHOST": f"/run/{self._spec.name}", "PGUSER": self._options.role, "PGDATABASE": self._options.database}
        return {**found, "PATH": self.binaries.inside}

    def agent_binds(self) -> Sequence[Mount]:
        return self.binaries.binds

    def endpoint(self, socket_dir: str) -> str:
        return psycopg.conninfo.make_conninfo(host=socket_dir, user=self._options.role, dbname=self._options.database)

    def trusted_endpoint(self, live: LiveResource) -> str:
        return access.superuser_conninfo(live, self._options.database)

    async def seed(self, host: SeedHost) -> None:
        await seeding.initialise(host, self.binaries, self._options, TARGET)
        live = await host.serve()
        try:
            await seeding.fill(live, self._options, self._spec, host.environment.isolation)
            await self._settle(host, live)
        finally:
            await host.stop(live)
        await seeding.trim(host, self.binaries, TARGET)

    async def start_state(self, host: SeedHost, options: Mapping[str, Any]) -> None:
        start = reading.read_start(self._spec, options, PostgresStart)
        if not start.seed and not start.sql:
            raise EnvironmentInvalid(f"start.{self._spec.name} changes nothing: give `seed` (files) or `sql`")
        live = await host.serve()
        try:
            if self._options.template:
                await self._drop_template(live)
            await seeding.run_files(live, self._options.database, start.seed)
            if start.sql:
                await seeding.run_text(live, self._options.database, start.sql, f"start.{self._spec.name}.sql")
            await self._settle(host, live)
        finally:
            await host.stop(live)
        await seeding.trim(host, self.binaries, TARGET)

    async def _settle(self, host: SeedHost, live: LiveResource) -> None:
        await seeding.settle(live, self._options, self._spec, host.environment.isolation, self.binaries, TARGET)

    async def _drop_template(self, live: LiveResource) -> None:
        name = sql.Identifier(cleaning.template_of(self._options))
        async with access.superuser(live) as connection:
            await connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(name))
            await connection.execute(sql.SQL("DROP DATABASE {}").format(name))

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        """A query of ours is answered. In the agent's database: the first session of each database fills its caches on disk."""
        said = ""

        async def answers() -> bool:
            nonlocal said
            if not live.alive():
                raise InstanceLost(f"the server of resource {self._spec.name} ended before it was ready", fix="see its log")
            if live.socket_dir is None or not (live.socket_dir / _SOCKET).exists() or access.still_starting(live):
                return False
            try:
                async with access.superuser(live, self._options.database) as connection:
                    await connection.execute("select 1")
            except psycopg.OperationalError as error:
                said = str(error).strip()
                # While seeding, after an agent dropped it, or where parts are copied from it: the server is up all the same.
                return "does not exist" in said or "not currently accepting connections" in said
            return True

        if not await poll(answers, timeout=timeout, slowest=0.004):
            raise InstanceLost(f"the server of resource {self._spec.name} answered no query within {timeout:g} s: {said}")

    async def stop(self, live: LiveResource, *, timeout: float = _STOP_S) -> None:
        live.signal(signal.SIGINT)  # fast: sessions end, a checkpoint is made
        if not await live.wait_stopped(timeout):
            raise InstanceLost(f"the server of resource {self._spec.name} did not stop within {timeout:g} s")

    async def disconnect(self, live: LiveResource) -> None:
        try:
            async with access.superuser(live) as connection:
                await cleaning.end_sessions(connection)
        except psycopg.Error as error:
            raise InstanceLost(f"the sessions of resource {self._spec.name} could not be ended: {str(error).strip()}") from error

    @asynccontextmanager
    async def hook_access(self, live: LiveResource) -> AsyncIterator[Mapping[str, str]]:
        """A superuser of its own for the time of the hook, working as the server's owner: an agent that laid a trap for the hook
        gets a password that is worth nothing a moment later."""
        name = f"autoclave_hook_{secrets.token_hex(4)}"
        password = access.new_password()
        role, owner = sql.Identifier(name), sql.Identifier(SUPERUSER)
        async with access.superuser(live) as connection:
            stored = sql.Literal(access.verifier(password))
            await connection.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(role, stored))
            await connection.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(role, owner))
        try:
            yield {"PGUSER": name, "PGPASSWORD": password}
        finally:
            async with access.superuser(live) as connection:
                await cleaning.end_sessions(connection)
                await connection.execute(sql.SQL("DROP ROLE {}").format(role))

    async def clean(self, live: LiveResource) -> None:
        await cleaning.clean(live, self._options)

    # parts of a server that several namespaces share

    @property
    def isolations(self) -> Collection[Isolation]:
        return (Isolation.DATABASE, Isolation.SCHEMA)

    async def make_part(self, live: LiveResource, part: Part) -> None:
        await parts.make(live, self._options, part)

    async def fence_part(self, live: LiveResource, part: Part) -> None:
        await parts.fence(live, part)

    async def disconnect_part(self, live: LiveResource, part: Part) -> None:
        await parts.disconnect(live, part)

    async def drop_part(self, live: LiveResource, part: Part) -> None:
        await parts.drop(live, self._options, part)

    async def part_bytes(self, live: LiveResource, part: Part) -> int:
        return await parts.size(live, self._options, part)

    def part_env(self, part: Part) -> Mapping[str, str]:
        return {"PGUSER": part.name, "PGPASSWORD": part.secret, "PGDATABASE": self._database_of(part)}

    def part_endpoint(self, socket_dir: str, secret_file: str, part: Part) -> str:
        return psycopg.conninfo.make_conninfo(host=socket_dir, user=part.name, dbname=self._database_of(part), passfile=secret_file)

    def part_secret(self, part: Part) -> str:
        return access.passfile_line(part.secret, part.name)

    def trusted_part_endpoint(self, live: LiveResource, part: Part) -> str:
        return access.superuser_conninfo(live, self._database_of(part))

    async def try_walls(self, live: LiveResource, writer: Part, reader: Part) -> Sequence[str]:
        return await walls.try_walls(live, self._options, writer, reader)

    def _database_of(self, part: Part) -> str:
        return part.name if part.isolation is Isolation.DATABASE else self._options.database


def create(spec: ResourceSpec, settings: Settings | None = None) -> Postgres:
    """Make the resource; raise EnvironmentInvalid. The binaries' setting comes from `settings`, else from the environment."""
    options = reading.read(spec, PostgresOptions)
    missing = [path for path in options.seed if not Path(path).is_absolute() or not Path(path).is_file()]
    if missing:
        problems = tuple(f"resources.{spec.name}.seed: {path!r} is not a file (given as an absolute path)" for path in missing)
        raise EnvironmentInvalid(f"the seed of resource {spec.name!r} cannot be used", problems=problems)
    return Postgres(spec, options, settings)
