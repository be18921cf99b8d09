"""A real PostgreSQL from the wheel, started over copies of one golden data directory, as the probes see it."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from envs.scratch import passable
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, NamespaceId, ProcessInfo, ResourceSpec, Role
from sandbox.ports import Listener, Mount, Tree
from sandbox.storage.tree import PlainTree

SERVER_UID = pwd.getpwnam("nobody").pw_uid  # initdb wants a user with a name
USER: dict[str, Any] = {"user": SERVER_UID, "group": SERVER_UID, "extra_groups": ()} if os.geteuid() == 0 else {}
SETTINGS = """
listen_addresses = ''
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
jit = off
wal_level = logical
max_prepared_transactions = 5
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track = none
"""
SEED = """
create table public.customers (id serial primary key, name text not null, email text);
insert into public.customers (name, email) select 'name ' || g, 'n' || g || '@example.org' from generate_series(1, 500) g;
create table public.orders (id serial primary key, customer_id int references public.customers, total numeric, status text);
insert into public.orders (customer_id, total, status) select 1 + g % 500, g * 1.25, 'open' from generate_series(1, 2000) g;
create index orders_customer_id_idx on public.orders (customer_id);
create function public.touch() returns trigger language plpgsql as 'begin return new; end';
create trigger touch before insert on public.customers for each row execute function public.touch();
create materialized view public.totals as select count(*) as n from public.customers;
create unlogged table public.scratch (a int);
insert into public.scratch select generate_series(1, 10);
create extension pg_stat_statements;
select lo_from_bytea(9001, '\\x01');
alter schema public owner to agent;
alter table public.customers owner to agent;
alter table public.orders owner to agent;
alter materialized view public.totals owner to agent;
alter table public.scratch owner to agent;
alter function public.touch() owner to agent;
"""
NAMESPACE = NamespaceId("test")
ENVIRONMENT = EnvironmentSpec(
    name="shop", version="1", digest="test", resources=(ResourceSpec(name="db", kind="postgres", options={}),)
)


@cache
def programs() -> Path:
    """Where the server's user can run them; a copy where the virtual environment lies below a private directory."""
    place = Path(tempfile.mkdtemp(prefix="autoclave-test-postgres-", dir="/var/tmp"))
    place.chmod(0o755)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return passable(place)


@dataclass
class Server:
    """One postmaster over one data directory."""

    data: Path
    sockets: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.sockets} user=postgres dbname=shop"

    def start(self) -> Server:
        argv = [str(programs() / "postgres"), "-D", str(self.data), "-k", str(self.sockets)]
        with (self.sockets / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd="/", **USER)
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(f"{self.dsn} dbname=template1", connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError((self.sockets / "log").read_text()[-2000:]) from None
                time.sleep(0.01)

    def stop(self, number: int = signal.SIGQUIT) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def connect(self, database: str = "shop", user: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(f"host={self.sockets} user={user} dbname={database}", autocommit=True)

    def execute(self, *statements: str, database: str = "shop", user: str = "postgres") -> list[Any]:
        rows: list[Any] = []
        with self.connect(database, user) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows


@dataclass
class ServerSubject:
    """A subject with one postgres resource and nothing else."""

    server: Server
    in_place: bool = False
    proof: IdentityProof | None = field(default_factory=lambda: IdentityProof(method="digest", holds=True))
    environment: EnvironmentSpec = ENVIRONMENT
    namespace: NamespaceId = NAMESPACE
    in_force: Mapping[str, Any] = field(default_factory=dict)

    def tree(self, resource: str, state: str | None = None) -> Tree:
        if resource != "db":
            raise LookupError(resource)
        return PlainTree(self.server.data)

    def endpoint(self, resource: str) -> str:
        return self.server.dsn

    async def processes(self) -> Sequence[ProcessInfo]:
        return []

    async def listeners(self) -> Sequence[Listener]:
        return []

    async def mounts(self, role: Role) -> Sequence[str]:
        return []

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        raise NotImplementedError


@dataclass
class Farm:
    """Makes servers from the golden directory."""

    room: Path
    golden: Path
    made: int = 0

    def clone(self) -> Server:
        self.made += 1
        data, sockets = self.room / f"data{self.made}", self.room / f"s{self.made}"
        subprocess.run(["cp", "-a", str(self.golden), str(data)], check=True)
        make_room(sockets)
        return Server(data=data, sockets=sockets)

    @contextmanager
    def running(self) -> Iterator[Server]:
        server = self.clone()
        try:
            yield server.start()
        finally:
            server.stop()
            remove(server.data)
            remove(server.sockets)


def remove(path: Path) -> None:
    """Remove a directory from which the last of an ended server's children may just be removing files, too."""
    end = time.monotonic() + 30
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def make_room(path: Path) -> None:
    path.mkdir(mode=0o755)
    if USER:
        os.chown(path, SERVER_UID, SERVER_UID)


@pytest.fixture(scope="session")
def farm() -> Iterator[Farm]:
    room = Path(tempfile.mkdtemp(prefix="autoclave-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"))
    room.chmod(0o755)
    try:
        golden, sockets = room / "golden", room / "seed"
        make_room(sockets)
        if USER:
            os.chown(room, SERVER_UID, SERVER_UID)
        subprocess.run(
            [str(programs() / "initdb"), "-D", str(golden), "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C.UTF-8"],
            check=True,
            capture_output=True,
            cwd="/",
            **USER,
        )
        with (golden / "postgresql.conf").open("a") as file:
            file.write(SETTINGS)
        server = Server(data=golden, sockets=sockets).start()
        try:
            server.execute("create role agent login password 'a'", "create database shop owner agent", database="postgres")
            server.execute(*filter(str.strip, SEED.split(";\n")))
            for database in ("shop", "postgres", "template1"):
                server.execute("vacuum (freeze, analyze)", database=database)
        finally:
            server.stop(signal.SIGINT)
        yield Farm(room=room, golden=golden)
    finally:
        shutil.rmtree(room, ignore_errors=True)


@pytest.fixture
def server(farm: Farm) -> Iterator[Server]:
    with farm.running() as running:
        yield running


@pytest.fixture
def subject_of() -> Callable[..., ServerSubject]:
    def make(server: Server, **changes: Any) -> ServerSubject:
        return ServerSubject(server=server, **changes)

    return make


class TrackedTree(PlainTree):
    """A directory beside the copy it was cloned from: knows what was touched, as an overlay does."""

    def __init__(self, top: Path, golden: Path) -> None:
        super().__init__(top)
        self._golden = PlainTree(golden)

    def changed(self) -> frozenset[str] | None:
        here, there = self._seen(self), self._seen(self._golden)
        return frozenset(p for p in here.keys() | there.keys() if here.get(p) != there.get(p))

    @staticmethod
    def _seen(tree: PlainTree) -> dict[str, object]:
        return {
            e.path: (e.kind, e.mode, e.uid, e.gid, e.target, tree.xattrs(e.path), tree.read(e.path) if e.kind == "file" else b"")
            for e in tree.walk()
        }


@dataclass
class TreeSubject(ServerSubject):
    """A subject whose one resource is a tree of files."""

    files: Tree | None = None

    def tree(self, resource: str, state: str | None = None) -> Tree:
        if resource != "tree" or self.files is None:
            raise LookupError(resource)
        return self.files


@pytest.fixture
def tree_subject() -> Callable[..., TreeSubject]:
    def make(files: Tree, **changes: Any) -> TreeSubject:
        return TreeSubject(server=Server(data=Path("/nowhere"), sockets=Path("/nowhere")), files=files, **changes)

    return make


@pytest.fixture
def tracked_tree() -> type[TrackedTree]:
    return TrackedTree
