"""The repo and files probes over real trees: copies agree, and no planted leak stays unseen."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.defaults import create_verifier
from probes.leaks import files as files_leaks
from probes.leaks import repo as repo_leaks
from probes.leaks.leak import Needs, ShellLeak
from probes.verifier import ProbeVerifier
from sandbox.model import Baseline, Depth, EnvironmentSpec, ProbeSpec, ResourceSpec, Verdict
from sandbox.storage.tree import PlainTree

GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}
SEED = """
git init -q -b main .
mkdir -p package/inner docs
for n in $(seq 30); do echo "value = $n" > package/m$n.py; done
echo inner > package/inner/x.py; echo '*.cache' > .gitignore; echo text > docs/a.txt; ln -s docs/a.txt link
touch package/empty; chmod +x docs/a.txt
git add -A && git commit -q -m start && git gc -q
echo more >> docs/a.txt && git commit -qam second && git reflog expire --expire=now --all
"""


def shell(script: str, folder: Path, **names: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **GIT, **names}
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def git(folder: Path, *argv: str) -> str:
    environ = {"PATH": os.environ["PATH"], **GIT}
    return subprocess.run(["git", *argv], cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=60).stdout


def verifier_for(kind: str, **options: Any) -> ProbeVerifier:
    spec = EnvironmentSpec(
        name="e",
        version="1",
        digest="d",
        resources=(ResourceSpec(name="tree", kind=kind),),
        probes=(ProbeSpec(name="tree", kind=kind, resource="tree", options=options), ProbeSpec(name="i", kind="process")),
    )
    return create_verifier(spec)


@pytest.fixture(scope="module")
def golden_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "repo"
    folder.mkdir()
    shell(SEED, folder)
    return folder


@pytest.fixture(scope="module")
def golden_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "home"
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "notes.txt").write_text("a note\n")
    (folder / ".bashrc").write_text("# nothing\n")
    for name in ("a", "b"):
        (folder / "work" / name).write_text(name)
        (folder / "work" / "deep" / name).write_text(name)
    (folder / "work" / "nothing").mkdir()
    return folder


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    def copy(golden: Path) -> Path:
        target = tmp_path / f"copy{len(list(tmp_path.iterdir()))}"
        subprocess.run(["cp", "-a", str(golden), str(target)], check=True)
        return target

    (tmp_path / "outside").mkdir()
    yield copy
    subprocess.run(["chmod", "-R", "u+rwx", str(tmp_path)], check=False)
    shutil.rmtree(tmp_path)


CASES = [
    *(pytest.param("repo", leak, id=f"repo-{leak.name}") for leak in repo_leaks.LEAKS),
    *(pytest.param("files", leak, id=f"files-{leak.name}") for leak in files_leaks.LEAKS),
]


@pytest.mark.parametrize(("kind", "leak"), CASES)
async def test_every_planted_leak_is_seen(
    kind: str,
    leak: ShellLeak,
    golden_repo: Path,
    golden_home: Path,
    world: Callable[[Path], Path],
    tree_subject: Callable[..., Any],
    tracked_tree: Any,
    tmp_path: Path,
) -> None:
    if leak.needs is Needs.ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    golden = golden_repo if kind == "repo" else golden_home
    here = world(golden)
    verifier = verifier_for(kind)
    baselines = [await record(verifier, tree_subject, trees, golden) for trees in (PlainTree, lambda p: tracked_tree(p, golden))]
    names = {"FILE": "package/m1.py", "FOLDER": "package"} if kind == "repo" else {"FILE": "notes.txt", "FOLDER": "work"}
    shell(leak.shell, here, OUTSIDE=str(tmp_path / "outside"), **names)

    plain, tracked = baselines
    quick = await verifier.check(tree_subject(PlainTree(here), in_place=True), plain, Depth.QUICK)
    by_list = await verifier.check(tree_subject(tracked_tree(here, golden), in_place=True), tracked, Depth.QUICK)
    deep = await verifier.check(tree_subject(PlainTree(here)), plain, Depth.DEEP)

    assert quick.problems == by_list.problems == deep.problems == ()
    if leak.seen is None:
        assert leak.blind
        assert quick.clean
        return
    assert quick.mismatches
    assert quick.mismatches == by_list.mismatches  # the short way finds exactly what the long one finds
    assert fields(deep) >= fields(quick)


async def record(verifier: ProbeVerifier, subject: Callable[..., Any], trees: Callable[[Path], Any], golden: Path) -> Baseline:
    return await verifier.record([subject(trees(golden)), subject(trees(golden))], None, key="k")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hook", "git hook/pre-commit"),
        ("alias", "git config/alias.st"),
        ("monitor-command", "git config/core.fsmonitor"),
        ("stash", "git ref/refs/stash"),
        ("branch", "git ref/refs/heads/planted"),
        ("reflog", "git reflog/HEAD"),
        ("skip-worktree", "git index/skip-worktree"),
        ("assume-unchanged", "git index/assume-unchanged"),
        ("tracked-edit", "package/m1.py"),
        ("untracked-file", "./planted"),
        ("unreachable-object", "git history/unreached objects"),
        ("nested-repository", "git nested/planted"),
        ("index-lock", "git lock/index.lock"),
        ("bisect", "git state/BISECT_START"),
        ("alternates", "git objects/alternates"),
        ("worktree", "git worktree/tree"),
        ("replaced-object", "git state/refs/replace"),
        ("split-index", "git index/extensions"),
        ("corrupt-object", None),
    ],
)
async def test_a_difference_names_what_was_planted(
    name: str,
    expected: str | None,
    golden_repo: Path,
    world: Callable[[Path], Path],
    tree_subject: Callable[..., Any],
    tmp_path: Path,
) -> None:
    here = world(golden_repo)
    verifier = verifier_for("repo")
    baseline = await record(verifier, tree_subject, PlainTree, golden_repo)
    leak = next(leak for leak in repo_leaks.LEAKS if leak.name == name)
    shell(leak.shell, here, OUTSIDE=str(tmp_path / "outside"), FILE="package/m1.py", FOLDER="package")

    found = fields(await verifier.check(tree_subject(PlainTree(here), in_place=True), baseline, Depth.QUICK))

    if name == "replaced-object":
        assert any(f.startswith("git ref/refs/replace/") for f in found)
    elif name == "corrupt-object":
        assert any(f.startswith(".git/objects/") for f in found)
    else:
        assert expected in found


async def test_copies_agree_and_looking_with_git_changes_nothing(
    golden_repo: Path, world: Callable[[Path], Path], tree_subject: Callable[..., Any]
) -> None:
    verifier = verifier_for("repo")
    baseline = await verifier.record([tree_subject(PlainTree(world(golden_repo))) for _ in range(2)], None, key="k")
    here = world(golden_repo)
    for path in here.rglob("*.py"):
        os.utime(path)
    shell("git status --short && git log -1 && git diff", here)  # refreshes the times in the index

    for depth in Depth:
        assert (await verifier.check(tree_subject(PlainTree(here)), baseline, depth)).clean
        assert (await verifier.check(tree_subject(PlainTree(here), in_place=True), baseline, depth)).clean


async def test_the_usual_reset_leaves_what_the_probe_sees(
    golden_repo: Path, world: Callable[[Path], Path], tree_subject: Callable[..., Any]
) -> None:
    verifier = verifier_for("repo")
    baseline = await record(verifier, tree_subject, PlainTree, golden_repo)
    here = world(golden_repo)
    shell('git config alias.x "!true"; git branch planted; git tag t; echo x > new; echo y >> package/m2.py', here)
    shell("git reset -q --hard && git clean -qfdx", here)

    found = fields(await verifier.check(tree_subject(PlainTree(here), in_place=True), baseline, Depth.QUICK))

    assert {"git config/alias.x", "git ref/refs/heads/planted", "git ref/refs/tags/t"} <= found
    assert not {"./new", "package/m2.py"} & found


async def test_a_baseline_tells_of_history_and_of_objects_that_nothing_reaches(
    golden_repo: Path, world: Callable[[Path], Path], tree_subject: Callable[..., Any]
) -> None:
    verifier = verifier_for("repo")
    here = world(golden_repo)
    shell(
        'for n in 1 2 3; do echo $n >> package/m1.py; git commit -qam "c $n"; done; git tag future; git gc -q; '
        "git reset -q --hard HEAD~2; echo late | git hash-object -w --stdin",
        here,
    )
    baseline = await record(verifier, tree_subject, PlainTree, here)
    texts = {n: t for r in baseline.readings for n, t in r.fields.items()}
    count = git(here, "rev-list", "--count", "HEAD")
    everything = git(here, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    reached = git(here, "rev-list", "--objects", "HEAD").splitlines()

    assert texts["git history/commits"] == count.strip()
    assert texts["git objects/names"].split(",")[0] == str(len(set(everything)))
    unreached = set(everything) - {line.split()[0] for line in reached}
    assert texts["git history/unreached objects"].split(",")[0] == str(len(unreached))
    assert len(unreached) > 1


async def test_excluded_paths_are_not_read(
    golden_home: Path, world: Callable[[Path], Path], tree_subject: Callable[..., Any]
) -> None:
    verifier = verifier_for("files", exclude=["work/deep", "*.log"])
    baseline = await record(verifier, tree_subject, PlainTree, golden_home)
    here = world(golden_home)
    (here / "work" / "deep" / "a").write_text("other")
    (here / "x.log").write_text("other")

    assert (await verifier.check(tree_subject(PlainTree(here), in_place=True), baseline, Depth.DEEP)).clean


async def test_after_a_restore_quick_sees_what_the_start_touched(
    golden_home: Path, world: Callable[[Path], Path], tree_subject: Callable[..., Any], tracked_tree: Any
) -> None:
    verifier = verifier_for("files")
    baseline = await record(verifier, tree_subject, lambda p: tracked_tree(p, golden_home), golden_home)
    here = world(golden_home)
    assert (await verifier.check(tree_subject(tracked_tree(here, golden_home)), baseline, Depth.QUICK)).clean
    (here / "planted").write_text("x")

    verdict = await verifier.check(tree_subject(tracked_tree(here, golden_home)), baseline, Depth.QUICK)

    assert [(m.field, m.actual) for m in verdict.mismatches] == [("changed since clone", "planted")]


def fields(verdict: Verdict) -> set[str]:
    return {m.field for m in verdict.mismatches}
