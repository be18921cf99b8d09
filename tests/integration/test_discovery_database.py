"""A draft of a database that runs elsewhere: what it is called there need not be what a copy can be called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from envs import load, scratch
from envs.discovery.sources import draft
from sandbox.settings import Settings

pytestmark = pytest.mark.postgres


async def test_a_database_of_any_name_is_drafted_so_that_it_loads(settings: Settings, tmp_path: Path) -> None:
    with scratch.server() as conninfo:
        place = quote(str(conninfo_to_dict(conninfo)["host"]), safe="")
        with psycopg.connect(conninfo, autocommit=True) as server:
            server.execute('create database "Our Tickets"')
            server.execute("create database tickets")
        found = {}
        for name in ("postgres", "Our Tickets", "tickets"):
            made = await draft(f"postgresql://postgres@/{quote(name)}?host={place}", replace(settings))
            files = made.write("desk", tmp_path / name)
            found[name] = load(files[0]).spec.resources[0].options["database"]
            assert ("is a name that no copy can have" in files[0].read_text()) is (name != "tickets")

    assert found == {"postgres": "app", "Our Tickets": "app", "tickets": "tickets"}
