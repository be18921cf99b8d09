"""Cross-namespace leaks on a shared database (isolation `schema`) and in a shared tree (`directory`)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(3000)]

SCHEMA: list[dict[str, Any]] = [
    {"name": "role created", "sql": ("create role eve login",), "field": "roles/eve"},
    {"name": "privilege for everybody on a part", "sql": ('grant usage on schema "{b}" to public',), "field": "", "quick": False},
    {"name": "another's schema for another", "sql": ('grant all on schema "{b}" to "{c}"',), "field": "", "quick": False},
    {"name": "member of another's role", "sql": ('grant "{b}" to "{c}"',), "field": "members/", "quick": False},
    {"name": "table in the common schema", "sql": ("create table public.left_here ()",), "field": "left_here", "quick": False},
    {"name": "schema of nobody's", "sql": ("create schema depot",), "field": "schema depot", "quick": False},
    {"name": "large object of nobody's", "sql": ("select lo_create(4711)",), "field": "large objects of postgres", "quick": False},
    {"name": "extension", "sql": ("create extension hstore schema public",), "field": "extension hstore", "quick": False},
    {
        "name": "event trigger",
        "sql": (
            "create function public.note() returns event_trigger language plpgsql as 'begin end'",
            "create event trigger seen on ddl_command_end execute function public.note()",
        ),
        "field": "event trigger seen",
        "quick": False,
    },
    {
        "name": "row in another's table",
        "sql": ("insert into \"{b}\".items (name) values ('hello')",),
        "field": "items",
        "quick": False,
    },
    {"name": "setting of the agent's role", "sql": ("alter role agent set work_mem = '1MB'",), "field": "role settings/*/agent"},
    {"name": "setting of the whole server", "sql": ("alter system set work_mem = '1MB'",), "field": "file settings/"},
    {
        "name": "setting of the database",
        "sql": ("alter database world set timezone = 'Asia/Tokyo'",),
        "field": "role settings/world/*",
    },
    {"name": "another database", "sql": ("create database depot",), "field": "databases/depot"},
    {"name": "replication origin", "sql": ("select pg_replication_origin_create('eve')",), "field": "replication origins/eve"},
    {
        "name": "prepared transaction",
        "sql": ("begin", "create table public.later (a int)", "prepare transaction 'eve'"),
        "field": "prepared transactions/eve",
        "quick": False,
    },
    {
        "name": "function in the common schema",
        "sql": ("create function public.now() returns text language sql return 'never'",),
        "field": "now",
        "quick": False,
    },
    {
        "name": "rights on what comes later",
        "sql": ("alter default privileges grant all on tables to public",),
        "field": "",
        "quick": False,
    },
    {"name": "publication", "sql": ("create publication eve for all tables",), "field": "eve", "quick": False},
    {
        "name": "large object of another's",
        "sql": ("select lo_create(4712)", 'alter large object 4712 owner to "{b}"'),
        "field": "large objects",
        "quick": False,
    },
    {
        "name": "trigger on another's table",
        "sql": (
            "create function public.note() returns trigger language plpgsql as 'begin return new; end'",
            'create trigger eve before insert on "{b}".items execute function public.note()',
        ),
        "field": "eve",
        "quick": False,
    },
    {"name": "table in its own schema", "sql": ('create table "{a}".mine ()',), "field": "", "gone": True},
]


def directory(top: Path, part: str, owner: str) -> Path:
    """The present one: an earlier one may still be on its way out."""
    return max(top.glob(f"{part}.{owner}.*"), key=lambda p: int(p.suffix[1:]))


def stray(top: Path, names: dict[str, str]) -> None:
    (top / "stray").mkdir()


def mode(top: Path, names: dict[str, str]) -> None:
    top.chmod(0o777)


def linked(top: Path, names: dict[str, str]) -> None:
    one, other = (directory(top, names[n], "docs") for n in "bc")
    os.link(one / "notes.txt", other / "shared.txt")


def outward(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "docs") / "way-out").symlink_to("../..")


def written(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "home") / "hello").write_text("from another")


def opened(top: Path, names: dict[str, str]) -> None:
    directory(top, names["b"], "docs").chmod(0o777)


def own(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["a"], "docs") / "mine").write_text("mine")


def fifo(top: Path, names: dict[str, str]) -> None:
    os.mkfifo(top / "way")


def loose_link(top: Path, names: dict[str, str]) -> None:
    (top / "way").symlink_to(directory(top, names["b"], "docs").name)


def listening(top: Path, names: dict[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as server:  # an address is longer than it may be
        where = os.open(directory(top, names["b"], "home"), os.O_PATH | os.O_DIRECTORY)
        server.bind(f"/proc/self/fd/{where}/talk.sock")
        os.close(where)


def named_like_a_part(top: Path, names: dict[str, str]) -> None:
    (top / "ns_0123456789ab.docs.1").mkdir()


def second(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "docs").parent / f"{names['b']}.docs.99").mkdir(mode=0o700)


def removed(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "docs") / "notes.txt").unlink()


def replaced(top: Path, names: dict[str, str]) -> None:
    """The same size and the same time."""
    path = directory(top, names["b"], "docs") / "notes.txt"
    before = path.stat()
    path.write_text("nine\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swapped(top: Path, names: dict[str, str]) -> None:
    one, other = (directory(top, names[n], "docs") / "notes.txt" for n in "bc")
    other.unlink()
    one.rename(other)


def owner(top: Path, names: dict[str, str]) -> None:
    path = directory(top, names["b"], "docs") / "notes.txt"
    if os.geteuid():  # an ordinary user gives nothing away; a bit says as much
        path.chmod(0o4700)
    else:
        os.chown(path, 12345, 12345)


def attribute(top: Path, names: dict[str, str]) -> None:
    os.setxattr(directory(top, names["b"], "docs") / "notes.txt", "user.left", b"here")


def empty(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "docs") / ".hidden").mkdir()


def linked_by_name(top: Path, names: dict[str, str]) -> None:
    """Wherever it leads."""
    (directory(top, names["b"], "home") / "next").symlink_to(f"/tree/{names['c']}.home.1")


def linked_dirty(top: Path, names: dict[str, str]) -> None:
    """From a directory that is about to be thrown away."""
    one, other = directory(top, names["a"], "docs"), directory(top, names["b"], "docs")
    os.link(one / "notes.txt", other / "kept.txt")


def script(top: Path, names: dict[str, str]) -> None:
    (directory(top, names["b"], "home") / ".profile").write_text("echo hello\n")


DIRECTORY: list[dict[str, Any]] = [
    {"name": "directory of nobody's", "plant": stray, "field": "nobody's"},
    {"name": "pipe of nobody's", "plant": fifo, "field": "nobody's"},
    {"name": "link of nobody's", "plant": loose_link, "field": "nobody's"},
    {"name": "directory of a part that is not there", "plant": named_like_a_part, "field": "nobody's"},
    {"name": "mode of the tree", "plant": mode, "field": "top"},
    {"name": "hard link between two parts", "plant": linked, "field": "", "quick": False},
    {"name": "hard link from a part that is thrown away", "plant": linked_dirty, "field": "", "quick": False},
    {"name": "link out of a part", "plant": outward, "field": "way-out", "quick": False},
    {"name": "link to another part", "plant": linked_by_name, "field": "next", "quick": False},
    {"name": "file in another's home", "plant": written, "field": "hello", "quick": False},
    {"name": "what another's shell reads first", "plant": script, "field": ".profile", "quick": False},
    {"name": "socket in another's home", "plant": listening, "field": "talk.sock", "quick": False},
    {"name": "mode of another's directory", "plant": opened, "field": "", "quick": False},
    {"name": "another's file is gone", "plant": removed, "field": "notes.txt", "quick": False},
    {"name": "another's file says something else", "plant": replaced, "field": "notes.txt", "quick": False},
    {"name": "another's file became a third one's", "plant": swapped, "field": "notes.txt", "quick": False},
    {"name": "owner of another's file", "plant": owner, "field": "notes.txt", "quick": False},
    {"name": "attribute of another's file", "plant": attribute, "field": "notes.txt", "quick": False},
    {"name": "empty directory in another's", "plant": empty, "field": ".hidden", "quick": False},
    {"name": "second directory of another's", "plant": second, "field": "nobody's"},
    {"name": "file of its own", "plant": own, "field": "", "gone": True},
]


EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.acceptance)])  # a third of them in every run


@EVERY
@pytest.mark.postgres
async def test_leaks_on_a_shared_database(every: int, try_leaks: Any, leak_type: Any) -> None:
    assert len([leak for leak in SCHEMA if not leak.get("gone")]) >= 20
    missed = await try_leaks("schema", [leak_type(database="world", **leak) for leak in SCHEMA[::every]])
    assert not missed, "\n".join(map(str, missed))


@EVERY
async def test_leaks_in_a_shared_tree(every: int, try_leaks: Any, leak_type: Any) -> None:
    assert len([leak for leak in DIRECTORY if not leak.get("gone")]) >= 20
    missed = await try_leaks("directory", [leak_type(**leak) for leak in DIRECTORY[::every]])
    assert not missed, "\n".join(map(str, missed))
