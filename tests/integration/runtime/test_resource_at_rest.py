"""The `repo` and `files` kinds: what is in a golden state, and how a task's own state is made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec
from sandbox.ports import Instance, Runtime, Tree

pytestmark = [pytest.mark.namespaces]


def task(start: Mapping[str, Any]) -> TaskSpec:
    return TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="", start=start)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    seed = tmp_path / "library"
    (seed / "deep").mkdir(parents=True)
    (seed / "a.txt").write_text("one\ntwo\nthree\n")
    (seed / "deep" / "run").write_text("#!/bin/sh\n")
    (seed / "deep" / "run").chmod(0o755)
    (seed / "ignored.log").write_text("kept although ignored\n")
    (seed / ".gitignore").write_text("*.log\n")
    (seed / "link").symlink_to("deep/run")
    return seed


async def test_a_repository_holds_one_commit_and_nothing_else(
    make: Any, runtime: Runtime, begin: Callable[..., Awaitable[Instance]], library: Path
) -> None:
    world = make({"code": ("repo", {"seed": str(library), "target": "/workspace"})})
    golden = await runtime.build(world)
    again = await runtime.build(world)
    try:
        instance = await begin(world, golden)

        def tree() -> Tree:
            return instance.subject().tree("code")

        names = {e.path for e in tree().walk()}
        assert {"a.txt", "deep/run", "ignored.log", "link", ".git/HEAD", ".git/packed-refs"} <= names
        assert not {
            n for n in names if n.startswith((".git/logs", ".git/hooks", ".git/refs/heads/", ".git/refs/tags/", ".git/ORIG"))
        }
        entry = tree().entry("deep/run")
        assert entry is not None
        assert entry.mode == 0o755
        script = "git fsck --strict --unreachable; git log --format='%H %an %ad' --date=iso; git status --short --ignored"
        said = (await instance.run(["/bin/sh", "-c", script])).text.strip()
        assert said.endswith("Autoclave 2025-01-01 00:00:00 +0000")
        await instance.close()
        # The commit's name is the same however often it is made.
        second = await begin(world, again)
        assert (await second.run(["git", "rev-parse", "HEAD"])).text.strip() == said.split()[0]
        await second.close()
    finally:
        for sealed in {*golden.dirs, *again.dirs}:
            await runtime.storage.remove(sealed)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"files": {"a.txt": "new\n", "b/c.txt": "c\n"}}, "new\nc\n"),
        ({"replace": [{"file": "a.txt", "old": "two", "new": "2"}, {"file": "a.txt", "old": "three", "new": "3"}]}, "one\n2\n3\n"),
        ({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"}, "one\nzwei\nthree\n"),
        ({"remove": ["deep"], "files": {"deep": "a file now\n"}}, "one\ntwo\nthree\na file now\n"),
    ],
    ids=["files", "replace", "patch", "remove"],
)
async def test_a_task_changes_the_repository_and_hides_what_was_before(
    make: Any,
    runtime: Runtime,
    begin: Callable[..., Awaitable[Instance]],
    library: Path,
    start: Mapping[str, Any],
    expected: str,
) -> None:
    world = make({"code": ("repo", {"seed": str(library)})})
    golden = await runtime.build(world)
    child = await runtime.derive(world, golden, task({"code": start}))
    try:
        instance = await begin(world, child)
        done = await instance.run(["/bin/sh", "-c", "cd code; cat a.txt; cat b/c.txt deep 2>/dev/null; true"])
        assert done.text == expected
        script = (
            "cd code; git rev-list --all --count; git status --short; git cat-file --batch-all-objects --batch | grep -c '^two$'"
        )
        found = (await instance.run(["/bin/sh", "-c", script])).text.split()
        assert found == ["1", "1" if "two" in expected else "0"]
        await instance.close()
    finally:
        for sealed in {*golden.dirs, *child.dirs}:
            await runtime.storage.remove(sealed)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"replace": [{"file": "package/sums.py", "old": "nowhere", "new": "x"}]}, "occurs 0 times in package/sums.py"),
        ({"replace": [{"file": "gone.txt", "old": "x", "new": "y"}]}, "replace: gone.txt"),
        ({"patch": "--- a/package/sums.py\n+++ b/package/sums.py\n@@ -1,1 +1,1 @@\n-nowhere\n+x\n"}, "start.code.patch"),
        ({"remove": ["gone"]}, "start.code.remove"),
        ({"fils": {}}, "did you mean 'files'?"),
        ({}, "changes nothing"),
    ],
    ids=["text", "file", "patch", "remove", "typo", "nothing"],
)
async def test_a_start_state_that_cannot_be_made_is_named(built: Any, runtime: Runtime, start: Any, said: str) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        await runtime.derive(built.world, built.golden, task({"code": start}))
    assert said in str(caught.value)


async def test_a_task_for_a_resource_that_is_not_there(built: Any, runtime: Runtime) -> None:
    with pytest.raises(EnvironmentInvalid, match="no resource cod"):
        await runtime.derive(built.world, built.golden, task({"cod": {"files": {"a": "b"}}}))


async def test_a_script_that_fails_is_shown(make: Any, runtime: Runtime) -> None:
    world = make({"code": ("repo", {"script": "echo made > a; echo went wrong >&2; exit 4"})})
    with pytest.raises(EnvironmentInvalid, match=r"resources\.code\.script ended with 4: went wrong"):
        await runtime.build(world)


async def test_files_keep_modes_and_links(
    make: Any, runtime: Runtime, begin: Callable[..., Awaitable[Instance]], library: Path
) -> None:
    (library / "private").write_text("p")
    (library / "private").chmod(0o600)
    world = make({"docs": ("files", {"seed": str(library), "files": {"extra/x": "y"}})})
    golden = await runtime.build(world)
    child = await runtime.derive(world, golden, task({"docs": {"remove": ["deep"], "files": {"z": "z"}}}))
    try:
        instance = await begin(world, child)
        done = await instance.run(["/bin/sh", "-c", "cd docs; stat -c '%a %n' private; readlink link; cat extra/x z; echo; ls -A"])
        assert done.text.split() == ["600", "private", "deep/run", "yz", ".gitignore", "a.txt", "extra", "ignored.log", "link",
                                     "private", "z"]  # fmt: skip
        await instance.run(["/bin/sh", "-c", "cd docs; rm -r *; ln -s /etc evil; chmod 0 .; cd ..; chmod 700 docs; mkdir docs/z"])
        await instance.reset_in_place(2, hook=None)
        done = await instance.run(["/bin/sh", "-c", "cd docs; stat -c '%a %n' private; ls -A; cat z"])
        assert done.text.split() == ["600", "private", ".gitignore", "a.txt", "extra", "ignored.log", "link", "private", "z", "z"]
        await instance.close()
    finally:
        for sealed in {*golden.dirs, *child.dirs}:
            await runtime.storage.remove(sealed)


async def test_two_states_at_one_place_are_refused(make: Any, runtime: Runtime) -> None:
    world = make({"a": ("files", {"target": "/workspace/x"}), "b": ("files", {"target": "/workspace/x"})})
    with pytest.raises(EnvironmentInvalid, match="a/files and b/files both lie at /workspace/x"):
        await runtime.build(world)
