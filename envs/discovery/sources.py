"""What an environment can be drafted from: a directory, a database that runs, an image."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import ValidationError

from envs.discovery.text import described
from sandbox import binaries
from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.resources.postgres.options import PostgresOptions
from sandbox.settings import Settings

DUMP_LIMIT_S = 600.0
QUESTION_LIMIT_S = 60.0
LARGEST_DATABASE = 1_000_000_000  # bytes on disk: its dump is held in memory
COPY = "app"
_DSN = re.compile(r"^postgres(ql)?://")
# What a server needs that begins as root, looks after its files and goes on as somebody else.
OF_A_ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
WAITS = ("sleep", "tail", "cat", "pause")  # what images run that are there for their files
_ABOUT = "select current_database(), current_setting('server_version_num')::int, pg_database_size(current_database())"
_GUARD = re.compile(r"(?:(?:--.*)?\n)*\\restrict (\S+)\n")  # after nothing but comments
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
        """Write it; return its files, `environment.toml` first. Nothing that exists is overwritten, and nothing is copied into
        itself."""
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise EnvironmentInvalid(f"{directory} exists and is not empty", fix="choose another with --into")
        if self.tree is not None and directory.resolve().is_relative_to(self.tree[0].resolve()):
            raise EnvironmentInvalid(f"{directory} lies in {self.tree[0]}, which is copied", fix="choose another with --into")
        directory.mkdir(parents=True, exist_ok=True)
        description = directory / "environment.toml"
        description.write_text(described(name, self.tables, self.remarks), "utf-8")
        if self.tree is not None:
            source, place = self.tree
            try:
                shutil.copytree(source, directory / place, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            except OSError as error:  # a shutil.Error is one, too, and lists each file
                raise EnvironmentInvalid(
                    f"{source} cannot be copied whole: {_first(error)}",
                    fix=f"take out what is no file, directory or link, or cannot be read; then remove {directory} and begin again",
                ) from error
        for place, text in self.texts.items():
            (directory / place).parent.mkdir(parents=True, exist_ok=True)
            (directory / place).write_text(text, "utf-8")
        return [description, *sorted(p for p in directory.rglob("*") if p.is_file() and p != description)]


def _first(error: OSError) -> str:
    """One line of what may be a list with an entry for each file."""
    faults = error.args[0] if isinstance(error, shutil.Error) and error.args else None
    if isinstance(faults, list) and faults:
        return f"{faults[0][0]}: {faults[0][2]}{f' and {len(faults) - 1} more' if len(faults) > 1 else ''}"
    return str(error)


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
        conninfo_to_dict(address)
    except psycopg.Error:  # what it says may hold the password
        raise EnvironmentInvalid(
            "the address of the database is none that can be read",
            fix="postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with % as %25",
        ) from None
    try:
        async with (
            asyncio.timeout(QUESTION_LIMIT_S),
            await psycopg.AsyncConnection.connect(address, connect_timeout=10) as connection,
        ):
            found = await (await connection.execute(_ABOUT)).fetchone()
            cursor = await connection.execute(
                "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' order by 1"
            )
            schemas = [str(row[0]) for row in await cursor.fetchall()]
    except (psycopg.Error, TimeoutError) as error:
        said = str(error).splitlines()[:1] or [f"no answer within {QUESTION_LIMIT_S:g} s"]
        raise EnvironmentInvalid(f"the database cannot be read: {said[0]}", fix="try the address with psql") from None
    assert found is not None
    database, number, size = str(found[0]), int(found[1]), int(found[2])
    if size > LARGEST_DATABASE:
        raise EnvironmentInvalid(
            f"the database {database} has {size:,} bytes on disk, and at most {LARGEST_DATABASE:,} are copied",
            fix="dump a smaller copy",
        )
    text = await _dumped(address, await in_thread(binaries.postgres, settings))
    table = {"kind": "postgres", "database": database, "seed": ["db/dump.sql", "db/grants.sql"]}
    remarks = [
        f"a dump of the database {database} (PostgreSQL {number // 10_000}); roles and rights are not: see db/grants.sql",
        "a server of its own for each namespace: nothing of the original is used, or touched",
    ]
    try:
        PostgresOptions.model_validate({"database": database})
    except ValidationError:  # every server has a `postgres`, and some have names that an address would have to quote
        table["database"] = COPY
        remarks.append(f"it is called {COPY} here: {database} is a name that no copy can have")
    texts = {"db/dump.sql": text, "db/grants.sql": _GRANTS.format(grants="".join(_grants(schema) for schema in schemas))}
    return Draft(resource="db", tables={"resources": {"db": table}}, remarks=tuple(remarks), texts=texts)


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
    if others := [name for name in parts if "password" in name or "secret" in name]:
        raise EnvironmentInvalid(
            f"the address holds {', '.join(others)}, which pg_dump takes on its command line only", fix="leave it out"
        )
    argv = [str(installed.host / "pg_dump"), "--encoding=UTF8", "--no-owner", "--no-privileges", "--rows-per-insert=500"]
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
        said = problem.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise EnvironmentInvalid(f"the dump failed: {said[0]}", fix="see pg_dump")
    try:
        return unguarded(out.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise EnvironmentInvalid(f"the dump is no UTF-8: {error}", fix="copy into a database of encoding UTF8 first") from error


def unguarded(dump: str) -> str:
    """Leave out the two lines that pg_dump writes for psql alone. A value may begin a line with a backslash, too, and stays."""
    guard = _GUARD.match(dump)
    if guard is None:
        return dump
    ours = (f"\\restrict {guard[1]}\n", f"\\unrestrict {guard[1]}\n")
    return "".join(line for line in io.StringIO(dump, newline="\n") if line not in ours)


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
    except errors.APIError as error:
        if not error.is_client_error():
            raise RuntimeUnavailable(f"the engine cannot say what {image} is: {error}", fix="look at its log") from error
        raise EnvironmentInvalid(
            f"{image} is no directory, no postgresql:// address, and no name of an image: {error.explanation or error}",
            fix="--from takes a directory, postgresql://..., or an image as `docker images` names it",
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
    if (said.get("User") or "root").partition(":")[0] in ("root", "0"):
        table["capabilities"] = list(OF_A_ROOT)
        remarks.append("it begins as root: these capabilities are what most such servers need, take away what this one does not")
    if words and words[0].rpartition("/")[2] in WAITS:
        table["stop_signal"] = "SIGKILL"
        remarks.append(f"{words[0]} only waits, and as first process it hears no other signal: it has nothing to save")
    return Draft(resource="app", tables={"resources": {"app": table}}, remarks=tuple(remarks), runtime="docker")
