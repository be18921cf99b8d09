"""What an environment can be drafted from: a directory, a database that runs, an image."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from envs.discovery.text import described
from sandbox import binaries
from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.settings import Settings

DUMP_LIMIT_S = 600.0
_DSN = re.compile(r"^postgres(ql)?://")
# What a server holds in memory alone, by its program, and the command inside that tells all of it.
IN_MEMORY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "redis-server": ("keys", ("redis-cli", "debug", "digest")),
    "valkey-server": ("keys", ("valkey-cli", "debug", "digest")),
}
# What a server needs that begins as root, looks after its files and goes on as somebody else.
OF_A_ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
_GRANTS = """-- What the agent may do in the copied database: everything that it needs, and no more. Edit this.
{grants}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A description as data, with remarks for its author, and what must lie beside it. `tree` is copied, `texts` are written."""

    resource: str
    tables: Mapping[str, Any]
    remarks: tuple[str, ...] = ()
    runtime: str | None = None  # where only one can run it
    tree: tuple[Path, str] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def write(self, name: str, directory: Path) -> list[Path]:
        """Write it; return its files, `environment.toml` first. Nothing that exists is overwritten."""
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise EnvironmentInvalid(f"{directory} exists and is not empty", fix="choose another with --into")
        directory.mkdir(parents=True, exist_ok=True)
        description = directory / "environment.toml"
        description.write_text(described(name, self.tables, self.remarks), "utf-8")
        if self.tree is not None:
            source, place = self.tree
            shutil.copytree(source, directory / place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for place, text in self.texts.items():
            (directory / place).parent.mkdir(parents=True, exist_ok=True)
            (directory / place).write_text(text, "utf-8")
        return [description, *sorted(p for p in directory.rglob("*") if p.is_file() and p != description)]


async def draft(given: str, settings: Settings) -> Draft:
    """Draft from what `given` names: an address of PostgreSQL, a directory, else an image that the engine knows."""
    if _DSN.match(given):
        return await _of_database(given, settings)
    path = Path(given).expanduser()
    if path.is_dir():
        return _of_directory(path.absolute())
    if path.exists() or given.startswith((".", "/", "~")):
        raise EnvironmentInvalid(f"{given} is no directory", fix="--from takes a directory, postgresql://..., or an image")
    return await in_thread(_of_image, given)


def _of_directory(path: Path) -> Draft:
    if (path / ".git").exists():
        table = {"kind": "repo", "target": "/workspace", "seed": "seed"}
        said = f"the files of {path} as one commit; its history is left out, since solutions could be looked up in it"
        return Draft(resource="code", tables={"resources": {"code": table}}, remarks=(said,), tree=(path, "seed"))
    table = {"kind": "files", "target": "/workspace", "seed": "seed"}
    return Draft(resource="work", tables={"resources": {"work": table}}, remarks=(f"a copy of {path}",), tree=(path, "seed"))


async def _of_database(address: str, settings: Settings) -> Draft:
    """Dump it with a program of our own. The address may hold a password: it is not written down."""
    import psycopg

    try:
        async with await psycopg.AsyncConnection.connect(address, connect_timeout=10) as connection:
            found = await (
                await connection.execute("select current_database(), current_setting('server_version_num')::int")
            ).fetchone()
            cursor = await connection.execute(
                "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' order by 1"
            )
            schemas = [str(row[0]) for row in await cursor.fetchall()]
    except psycopg.Error as error:
        raise EnvironmentInvalid(
            f"the database cannot be read: {str(error).splitlines()[0]}", fix="try the address with psql"
        ) from None
    assert found is not None
    database, number = str(found[0]), int(found[1])
    text = await _dumped(address, await in_thread(binaries.postgres, settings))
    table = {"kind": "postgres", "database": database, "seed": ["db/dump.sql", "db/grants.sql"]}
    remarks = (
        f"a dump of the database {database} (PostgreSQL {number // 10_000}); roles and rights are not: see db/grants.sql",
        "a server of its own for each namespace: nothing of the original is used, or touched",
    )
    texts = {"db/dump.sql": text, "db/grants.sql": _GRANTS.format(grants="".join(_grants(schema) for schema in schemas))}
    return Draft(resource="db", tables={"resources": {"db": table}}, remarks=remarks, texts=texts)


def _grants(schema: str) -> str:
    quoted = '"' + schema.replace('"', '""') + '"'
    return (
        f"grant usage on schema {quoted} to agent;\n"
        f"grant select, insert, update, delete on all tables in schema {quoted} to agent;\n"
        f"grant usage, select on all sequences in schema {quoted} to agent;\n"
    )


async def _dumped(address: str, installed: binaries.PostgresBinaries) -> str:
    parts = conninfo_to_dict(address)
    password = parts.pop("password", None)  # never in the arguments, which everybody on the machine can read
    argv = [str(installed.host / "pg_dump"), "--no-owner", "--no-privileges", "--rows-per-insert=500"]
    argv += ["--dbname", make_conninfo("", **parts)]
    environ = {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}
    try:
        async with asyncio.timeout(DUMP_LIMIT_S):
            process = await asyncio.create_subprocess_exec(
                *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environ
            )
            try:
                out, problem = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    except TimeoutError:
        raise EnvironmentInvalid(f"the dump did not end within {DUMP_LIMIT_S:g} s", fix="dump a smaller copy") from None
    if process.returncode != 0:
        raise EnvironmentInvalid(
            f"the dump failed: {problem.decode(errors='replace').strip().splitlines()[-1:]}", fix="see pg_dump"
        )
    lines = out.decode("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("\\"))  # psql's own commands


def _of_image(image: str) -> Draft:
    """Read what the image says of itself. It is never pulled."""
    try:
        import docker
        from docker import errors
        from docker.utils import kwargs_from_env
    except ImportError:
        raise RuntimeUnavailable("an image needs the docker package", fix="pip install 'autoclave[docker]'") from None
    import requests

    try:
        client = docker.APIClient(**kwargs_from_env(), version="auto", timeout=60)
        try:
            said = client.inspect_image(image)["Config"]
        finally:
            client.close()
    except errors.ImageNotFound:
        raise EnvironmentInvalid(
            f"{image} is no directory, no postgresql:// address, and no image that the engine has", fix=f"docker pull {image}"
        ) from None
    except (errors.DockerException, requests.RequestException) as error:
        raise RuntimeUnavailable(f"no Docker engine answers: {error}", fix="start one, or set DOCKER_HOST") from error
    ports = sorted(int(p.partition("/")[0]) for p in said.get("ExposedPorts") or {} if p.endswith("/tcp"))
    words = [*(said.get("Entrypoint") or []), *(said.get("Cmd") or [])]
    table: dict[str, Any] = {"kind": "container", "image": image, **({"ports": ports} if ports else {})}
    remarks = [f"runs {' '.join(words) or 'nothing by itself'} as {said.get('User') or 'root'}"]
    if not ports:
        remarks.append("it declares no port: give `ports` where something must be reached, and `ready` for when it is ready")
    if said.get("Volumes"):
        remarks.append(f"volumes that the image declares are kept, reset and read: {', '.join(sorted(said['Volumes']))}")
    if (said.get("User") or "root") in ("root", "0"):
        table["capabilities"] = list(OF_A_ROOT)
        remarks.append("it begins as root: these capabilities are what most such servers need, take away what this one does not")
    probes = list(_in_memory(words))
    remarks += [] if probes else ["what a server holds in memory alone is not read: add a command to `inside` where that matters"]
    tables: dict[str, Any] = {"resources": {"app": table}}
    return Draft(resource="app", tables=tables | ({"probes": probes} if probes else {}), remarks=tuple(remarks), runtime="docker")


def _in_memory(words: Sequence[str]) -> list[dict[str, Any]]:
    for word in words:
        if (known := IN_MEMORY.get(word.rpartition("/")[2])) is not None:
            name, argv = known
            return [{"name": "app", "kind": "container", "resource": "app", "inside": {name: list(argv)}}]
    return []
