"""What a server is configured to."""

from __future__ import annotations

import pytest

from sandbox.resources.postgres.configuration import SESSIONS, postgresql_conf
from sandbox.resources.postgres.options import PostgresOptions


def values(options: PostgresOptions, parts: int = 0) -> dict[str, str]:
    lines = postgresql_conf(options, 18, parts=parts).splitlines()
    return {name: value.strip("'") for name, _, value in (line.partition(" = ") for line in lines)}


@pytest.mark.parametrize("parts", [1, 2, 16])
def test_holders_who_take_all_the_sessions_they_may_have_leave_the_checks_theirs(parts: int) -> None:
    taken = parts * SESSIONS
    assert (
        int(values(PostgresOptions.model_validate({}), parts)["max_connections"]) - taken >= 8 * parts
    )  # four probes at once, two sessions each


def test_what_an_author_sets_wins() -> None:
    options = PostgresOptions.model_validate({"settings": {"max_connections": 500}})
    assert values(options, 16)["max_connections"] == "500"
    assert values(PostgresOptions.model_validate({}))["max_connections"] == "40"
