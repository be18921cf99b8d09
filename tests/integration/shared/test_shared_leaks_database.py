"""Cross-namespace leaks on a shared server (isolation `database`): each is caught, and costs exactly whom the windows name."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(3000)]

LEAKS: list[dict[str, Any]] = [
    {"name": "role created", "sql": ("create role eve login",), "field": "roles/eve"},
    {"name": "the agent's role can log in", "sql": ("alter role agent login",), "field": "roles/agent"},
    {"name": "setting of the agent's role", "sql": ("alter role agent set work_mem = '1MB'",), "field": "role settings/*/agent"},
    {"name": "setting of the whole server", "sql": ("alter system set work_mem = '1MB'",), "field": "file settings/"},
    {"name": "another database", "sql": ("create database depot",), "field": "databases/depot"},
    {"name": "golden's settings", "sql": ("alter database world set timezone = 'Asia/Tokyo'",), "field": "role settings/world/*"},
    {"name": "golden can be entered", "sql": ("alter database world allow_connections true",), "field": "databases/world"},
    {
        "name": "replication slot",
        "sql": ("select pg_create_physical_replication_slot('eve', true)",),
        "field": "replication slots/eve",
    },
    {"name": "replication origin", "sql": ("select pg_replication_origin_create('eve')",), "field": "replication origins/eve"},
    {
        "name": "privilege on a setting",
        "sql": ("grant set on parameter log_statement to public",),
        "field": "parameter privileges/",
    },
    {"name": "comment on a shared role", "sql": ("comment on role agent is 'seen'",), "field": "shared comments/"},
    {
        "name": "rules of who may come in",
        "sql": ("copy (select 'local all all trust') to program 'cat >> pg_hba.conf'",),
        "field": "configuration/pg_hba.conf",
    },
    {"name": "member of another's role", "sql": ('grant "{b}" to "{c}"',), "field": "members/", "quick": False},
    {
        "name": "way into another's database",
        "sql": ('grant connect on database "{b}" to agent',),
        "field": "shared dependencies/",
    },
    {
        "name": "table in a common database",
        "sql": ("create table left_here (a int)",),
        "field": "table public.left_here",
        "quick": False,
    },
    {"name": "large object in a common database", "sql": ("select lo_create(4711)",), "field": "large objects/", "quick": False},
    {
        "name": "file in the data directory",
        "sql": ("copy (select 1) to program 'cat > base/left_here'",),
        "field": "unexpected files/",
        "quick": False,
    },
    {
        "name": "prepared transaction",
        "sql": ("begin", "create table later (a int)", "prepare transaction 'eve'"),
        "field": "prepared transactions/eve",
        "quick": False,
    },
    {
        "name": "extension in template1",
        "sql": ("create extension hstore",),
        "field": "extension hstore",
        "database": "template1",
        "quick": False,
    },
    {
        "name": "row in another's database",
        "sql": ("insert into items (name) values ('hello')",),
        "field": "items",
        "database": "ready",
        "quick": False,
    },
    {
        "name": "settings of another's role",
        "sql": ("alter role \"{b}\" set search_path = 'nowhere'",),
        "field": "role settings/*/(own)",
        "quick": False,
    },
    {"name": "row left in its own database", "sql": ("delete from items",), "field": "", "database": "own", "gone": True},
]


async def test_every_leak_is_caught_and_taints_exactly_whom_the_windows_name(try_leaks: Any, leak_type: Any) -> None:
    assert len(LEAKS) >= 20

    assert await try_leaks("database", [leak_type(**leak) for leak in LEAKS]) == []
