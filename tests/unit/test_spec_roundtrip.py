"""A valid description reads the same from TOML and from Python, its digest follows content, and places of keys are right."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs import define, digest
from envs.places import Places
from envs.reader import read
from envs.spec import EnvironmentFile, SplitTable, TaskTable, json_schema
from envs.tasks import split
from sandbox.model import ResetMethod

BARE = st.from_regex(r"[a-z][a-z0-9_-]{0,12}", fullmatch=True)
LINE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs"]), min_size=1, max_size=20)


def toml(data: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Write the TOML that a person would: values, then tables, then arrays of tables."""
    lines = [f"{json.dumps(k)} = {value(v)}" for k, v in data.items() if not nested(v)]
    for key, inner in data.items():
        header = ".".join(json.dumps(part) for part in (*path, key))
        if isinstance(inner, dict):
            lines += [f"[{header}]", toml(inner, (*path, key))]
        elif nested(inner):
            for item in inner:
                lines += [f"[[{header}]]", toml(item, (*path, key))]
    return "\n".join(line for line in lines if line)


def nested(item: Any) -> bool:
    return isinstance(item, dict) or (isinstance(item, list) and bool(item) and isinstance(item[0], dict))


def value(item: Any) -> str:
    if isinstance(item, list):
        return "[" + ", ".join(value(x) for x in item) + "]"
    return json.dumps(item, ensure_ascii=True) if isinstance(item, str | bool) else repr(item)


def unique(items: st.SearchStrategy[dict[str, Any]], key: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(items, max_size=3, unique_by=lambda row: row[key])


TASK = st.fixed_dictionaries(
    {"id": BARE, "prompt": LINE, "success": st.just({"kind": "command", "argv": ["true"]})},
    optional={"family": BARE, "difficulty": st.sampled_from(["easy", "hard"]), "split": st.sampled_from(["train", "held-out"])},
)
DESCRIPTION = st.fixed_dictionaries(
    {
        "name": BARE,
        "version": st.just("1.2.3"),
        "resources": st.just({"data": {"kind": "files", "target": "/workspace", "files": {"a.txt": "x"}}}),
    },
    optional={
        "description": LINE,
        "env": st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), LINE, max_size=2),
        "limits": st.fixed_dictionaries({}, optional={"cpus": st.floats(0.1, 8), "pids": st.integers(4, 4096)}),
        "reset": st.sampled_from(
            [{"method": "clean", "restore_every": 5}, {"method": "hook", "hook": ["true"]}, {"max_resets": 3}]
        ),
        "check": st.fixed_dictionaries({}, optional={"deep_every": st.integers(1, 99), "window": st.just("exposed-only")}),
        "volatile": unique(st.fixed_dictionaries({"pattern": st.just("data/log"), "reason": st.just("holds a date")}), "pattern"),
        "destructive": unique(st.fixed_dictionaries({"name": BARE, "run": LINE}), "name"),
        "tasks": unique(TASK, "id"),
    },
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=DESCRIPTION)
def test_toml_and_python_give_the_same_environment(tmp_path: Path, data: dict[str, Any]) -> None:
    (tmp_path / "environment.toml").write_text("# a comment\n" + toml(data), "utf-8")

    written = read(tmp_path)
    made = define(data, tmp_path)

    assert dataclasses.replace(written.spec, source="") == dataclasses.replace(made.spec, source="")
    assert dict(written.tasks) == dict(made.tasks)


@settings(max_examples=60, deadline=None)
@given(data=DESCRIPTION)
def test_every_top_level_key_is_found_on_its_line(data: dict[str, Any]) -> None:
    text = toml(data)
    lines = text.split("\n")
    places = Places(text)

    assert tomllib.loads(text) == data
    for key, inner in data.items():
        line = lines[places.line((key,)) - 1]
        assert json.dumps(key) in line, (key, line)
        for index, item in enumerate(inner if nested(inner) and isinstance(inner, list) else []):
            for name in item:
                if name != "success":
                    assert lines[places.line((key, index, name)) - 1].startswith(f'"{name}" ='), (key, index, name)


def test_places_see_through_strings_and_arrays() -> None:
    text = (
        'a = """\n[reset]\nmethod = "x"\n"""\nlist = [\n  "b = 1", # [no]\n  { c = 2 },\n]\n'
        '[reset] # here\nhook = ["x",\n  "y"]\nmethod = "z"\n'
    )

    places = Places(text)

    assert [places.line(("reset",)), places.line(("reset", "method")), places.line(("list", 1, "c"))] == [9, 12, 5]
    assert places.line(("nowhere",)) == 1


def described(base: Path, **changes: Any) -> str:
    data = {"name": "x", "version": "1", "resources": {"data": {"kind": "files", "seed": "seed"}}} | changes
    return define(data, base).spec.digest


def test_the_digest_covers_seeds_and_values_and_nothing_else(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "a").write_text("1")
    first = described(tmp_path)

    (seed / "__pycache__").mkdir()
    (seed / "__pycache__" / "a.pyc").write_text("x")
    (tmp_path / "unrelated").write_text("x")
    assert described(tmp_path) == first
    assert described(tmp_path, description="other") != first

    (seed / "a").write_text("2")
    second = described(tmp_path)
    assert second != first
    (seed / "a").chmod(0o755)
    assert described(tmp_path) not in (first, second)


def test_the_digest_covers_hooks_and_checks(tmp_path: Path) -> None:
    for name in ("seed", "checks"):
        (tmp_path / name).mkdir()
    hook = tmp_path / "reset.sh"
    hook.write_text("#!/bin/sh\ntrue\n")
    task = {"id": "t", "prompt": "p", "success": {"kind": "command", "argv": ["x"], "checks": ["checks"]}}
    changes = {"reset": {"hook_script": "reset.sh"}, "tasks": [task]}
    first = described(tmp_path, **changes)

    hook.write_text("#!/bin/sh\nfalse\n")
    second = described(tmp_path, **changes)
    (tmp_path / "checks" / "run.sh").write_text("exit 0")

    assert len({first, second, described(tmp_path, **changes)}) == 3


def test_digests_of_trees_differ_by_name_kind_and_link(tmp_path: Path) -> None:
    trees = [tmp_path / name for name in ("file", "other-name", "directory", "link", "other-link")]
    for tree in trees:
        tree.mkdir()
    (trees[0] / "a").write_text("x")
    (trees[1] / "b").write_text("x")
    (trees[2] / "a").mkdir()
    (trees[3] / "a").symlink_to("x")
    (trees[4] / "a").symlink_to("y")

    assert len({digest.of_path(tree) for tree in trees}) == 5


def test_a_named_path_that_is_a_link_stands_for_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_text("x")
    (tmp_path / "link").symlink_to("a")
    before = digest.of_path(tmp_path / "link")
    (tmp_path / "a" / "f").write_text("y")

    assert digest.of_path(tmp_path / "link") != before


def test_files_that_instances_are_run_with_are_watched_and_those_that_golden_holds_are_not(tmp_path: Path) -> None:
    for name in ("app", "seed", "reference", "checks", "start"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("x")
    (tmp_path / "hook.sh").write_text("#!/bin/sh\ntrue\n")
    task = {"id": "t", "family": "f", "prompt": "p", "success": {"kind": "command", "argv": ["true"], "checks": ["checks"]}}
    environment = define(
        {
            "name": "desk",
            "version": "1",
            "resources": {
                "web": {"kind": "service", "argv": ["/bin/true", "{socket}"], "app": "app", "state": "/srv/web", "seed": "seed"},
                "docs": {"kind": "files", "seed": "start"},
            },
            "reset": {"method": "hook", "hook_script": "hook.sh"},
            "shared": [{"path": "reference", "mount": "/opt/reference"}],
            "tasks": [task],
        },
        tmp_path,
    )
    assert environment.changed_files() == []
    (tmp_path / "hook.sh").write_text("#!/bin/sh\nfalse\n")
    for name in ("seed", "start"):
        (tmp_path / name / "f").write_text("y")
    assert environment.changed_files() == []
    (tmp_path / "app" / "f").write_text("y")
    (tmp_path / "checks" / "more").mkdir()
    shutil.rmtree(tmp_path / "reference")

    assert environment.changed_files() == ["app", "checks", "reference"]
    assert environment.with_reset(ResetMethod.RESTORE).changed_files() == ["app", "checks", "reference"]


def tasks_of(count: int, **more: Any) -> list[TaskTable]:
    success = {"kind": "command", "argv": ["true"]}
    return [TaskTable(id=f"t{i}", family=f"f{i % 3}", prompt="p", success=success, **more) for i in range(count)]


def test_the_split_is_stable_and_stratified() -> None:
    tasks = tasks_of(60)
    rule = SplitTable(seed=7, held_out=0.2)

    found = split(tasks, rule)

    assert found == split(list(reversed(tasks)), rule)
    assert found != split(tasks, SplitTable(seed=8, held_out=0.2))
    for family in range(3):
        held = [t for t in tasks if t.family == f"f{family}" and found[t.id] == "held-out"]
        assert len(held) == 4


def test_a_split_that_is_given_stays() -> None:
    assert set(split(tasks_of(9, split="held-out"), SplitTable(held_out=0.0)).values()) == {"held-out"}


def test_the_schema_is_one_that_editors_take() -> None:
    schema = json_schema()

    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"name", "version"}
    assert set(schema["properties"]) == set(EnvironmentFile.model_fields)


@pytest.mark.parametrize("kind", ["files", "repo", "postgres"])
def test_a_new_environment_is_right(tmp_path: Path, kind: str) -> None:
    from envs import skeleton

    written = skeleton.write("help-desk", kind=kind, directory=tmp_path / "desk")

    found = read(tmp_path / "desk")
    assert written[0].name == "environment.toml"
    assert found.spec.name == "help-desk"
    assert found.spec.destructive
    assert found.tasks


def test_a_new_environment_overwrites_nothing(tmp_path: Path) -> None:
    from envs import skeleton
    from sandbox.errors import EnvironmentInvalid

    (tmp_path / "x").write_text("mine")

    with pytest.raises(EnvironmentInvalid, match="is not empty"):
        skeleton.write("desk", kind="files", directory=tmp_path)
    with pytest.raises(EnvironmentInvalid, match="is no name"):
        skeleton.write("My Desk", kind="files", directory=tmp_path / "new")
