"""Cross-namespace leaks on a shared database (isolation `schema`) and in a shared tree (`directory`)."""

from __future__ import annotations

import os
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


DIRECTORY: list[dict[str, Any]] = [
    {"name": "directory of nobody's", "plant": stray, "field": "nobody's"},
    {"name": "mode of the tree", "plant": mode, "field": "top"},
    {"name": "hard link between two parts", "plant": linked, "field": "", "quick": False},
    {"name": "link out of a part", "plant": outward, "field": "way-out", "quick": False},
    {"name": "file in another's home", "plant": written, "field": "hello", "quick": False},
    {"name": "mode of another's directory", "plant": opened, "field": "", "quick": False},
    {"name": "file of its own", "plant": own, "field": "", "gone": True},
]


@pytest.mark.postgres
async def test_leaks_on_a_shared_database(try_leaks: Any, leak_type: Any) -> None:
    assert await try_leaks("schema", [leak_type(database="world", **leak) for leak in SCHEMA]) == []


async def test_leaks_in_a_shared_tree(try_leaks: Any, leak_type: Any) -> None:
    assert await try_leaks("directory", [leak_type(**leak) for leak in DIRECTORY]) == []
