"""Options of the shipped resources: what is refused, and with which words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResourceSpec, Role
from sandbox.resources import files, postgres, repo, service
from sandbox.resources.contents import archive


def spec(kind: str, options: Mapping[str, Any]) -> ResourceSpec:
    return ResourceSpec(name="it", kind=kind, options=options)


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "a.txt").write_text("a")
    return tmp_path / "seed"


@pytest.mark.parametrize(
    ("create", "kind", "options", "said"),
    [
        (
            postgres.create,
            "postgres",
            {"databse": "shop"},
            "resources.it.databse: there is no such option (did you mean 'database'?)",
        ),
        (postgres.create, "postgres", {"zzz": 1}, "known: database, extensions"),
        (postgres.create, "postgres", {"version": "18"}, "resources.it.version"),
        (postgres.create, "postgres", {"database": "template1"}, "is every server's own"),
        (postgres.create, "postgres", {"database": "a; drop"}, "resources.it.database"),
        (postgres.create, "postgres", {"role": "postgres"}, "the agent needs one of its own"),
        (postgres.create, "postgres", {"role": "pg_monitor"}, "the agent needs one of its own"),
        (postgres.create, "postgres", {"settings": {"listen_addresses": "*"}}, "listen_addresses cannot be set here"),
        (postgres.create, "postgres", {"seed": ["/nowhere/a.sql"]}, "resources.it.seed: '/nowhere/a.sql' is not a file"),
        (repo.create, "repo", {}, "give exactly one of `seed`"),
        (repo.create, "repo", {"seed": "/nowhere"}, "'/nowhere' is not a directory"),
        (repo.create, "repo", {"script": "true", "target": "/usr/x"}, "/usr belongs to the system"),
        (files.create, "files", {"target": "relative"}, "must be an absolute path"),
        (files.create, "files", {"target": "/a/../b"}, "must be an absolute path"),
        (files.create, "files", {"files": {"../x": "y"}}, "must be a path inside the directory"),
        (files.create, "files", {"files": {"/x": "y"}}, "must be a path inside the directory"),
        (service.create, "service", {}, "resources.it.argv"),
        (service.create, "service", {"argv": ["x"], "seed": "/nowhere"}, "`seed` fills `state`"),
        (service.create, "service", {"argv": ["x"], "http": "health"}, "resources.it.http"),
    ],
)
def test_wrong_options_are_refused_by_name(create: Any, kind: str, options: Mapping[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        create(spec(kind, options))
    assert said in str(caught.value)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        postgres.create(spec("postgres", {"databse": "x", "superuser": "yes", "max_prepared_transactions": -1}))
    assert len(caught.value.problems) == 3


def test_defaults() -> None:
    db = postgres.create(spec("postgres", {}))
    assert db.options.superuser is False
    assert db.options.max_prepared_transactions == 0
    assert [(s.name, s.role) for s in db.state_dirs()] == [("data", Role.SERVER)]
    assert files.create(spec("files", {})).target == "/workspace/it"
    assert repo.create(spec("repo", {"script": "true", "target": "/workspace"})).target == "/workspace"


def test_a_digest_covers_options_and_the_content_of_seeds(seed: Path) -> None:
    options = {"seed": str(seed)}
    first = files.create(spec("files", options)).digest
    assert files.create(spec("files", options)).digest == first
    assert files.create(spec("files", {**options, "files": {"b": "c"}})).digest != first
    (seed / "a.txt").write_text("b")
    changed = files.create(spec("files", options)).digest
    assert changed != first
    (seed / "a.txt").chmod(0o755)
    assert files.create(spec("files", options)).digest != changed


def test_an_archive_is_the_same_whatever_the_times_and_owners(seed: Path) -> None:
    (seed / "deep").mkdir()
    (seed / "deep" / "link").symlink_to("../a.txt")
    (seed / "twin").hardlink_to(seed / "a.txt")
    before = archive(seed)
    (seed / "a.txt").touch()
    (seed / "__pycache__").mkdir()
    (seed / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert archive(seed) == before
    (seed / "a.txt").write_text("other")
    assert archive(seed) != before


def test_a_seed_with_a_socket_is_refused(seed: Path) -> None:
    import os

    os.mkfifo(seed / "pipe")
    with pytest.raises(EnvironmentInvalid, match="neither a file"):
        archive(seed)
