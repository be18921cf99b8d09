"""The digest of a tree: equal for equal states, different for every kind of difference."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.storage import LayeredTree, PlainTree, digest_tree
from sandbox.storage.duplicate import copy_tree


@pytest.fixture
def state(tmp_path: Path) -> Path:
    top = tmp_path / "state"
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "f").write_text("content")
    (top / "g").write_text("other")
    os.link(top / "g", top / "h")
    (top / "l").symlink_to("d/f")
    os.setxattr(top / "g", "user.note", b"1")
    return top


def digest(top: Path) -> str:
    return digest_tree(PlainTree(top)).digest


def unlink_hard(top: Path) -> None:
    (top / "h").unlink()
    shutil.copy2(top / "g", top / "h")


def relink(top: Path) -> None:
    (top / "l").unlink()
    (top / "l").symlink_to("d/e")


def turn_into_fifo(top: Path) -> None:
    (top / "d/f").unlink()
    os.mkfifo(top / "d/f", 0o644)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda t: (t / "d/f").write_text("Content"),
    "mode": lambda t: (t / "d/f").chmod(0o600),
    "mode of a directory": lambda t: (t / "d").chmod(0o700),
    "mode of the top": lambda t: t.chmod(0o711),
    "setuid": lambda t: (t / "d/f").chmod(0o4644),
    "new empty file": lambda t: (t / "new").touch(),
    "new directory": lambda t: (t / "new").mkdir(),
    "deletion": lambda t: (t / "d/f").unlink(),
    "rename": lambda t: (t / "d/f").rename(t / "d/F"),
    "link target": relink,
    "xattr": lambda t: os.setxattr(t / "g", "user.note", b"2"),
    "new xattr on a directory": lambda t: os.setxattr(t / "d", "user.note", b"2"),
    "kind": turn_into_fifo,
    "hard link broken": unlink_hard,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_kind_of_change_changes_the_digest(state: Path, change: str) -> None:
    before = digest(state)
    CHANGES[change](state)
    assert digest(state) != before


def test_times_and_place_do_not_count(state: Path, tmp_path: Path) -> None:
    before = digest(state)
    os.utime(state / "d/f", (1, 1))
    assert digest(state) == before
    copy_tree(PlainTree(state), tmp_path / "copy")
    assert digest(tmp_path / "copy") == before
    assert digest_tree(LayeredTree([state])).digest == before


def test_names_and_contents_cannot_be_shifted_into_each_other(tmp_path: Path) -> None:
    for name, files in {"one": {"ab": "c"}, "two": {"a": "bc"}}.items():
        (tmp_path / name).mkdir()
        for path, text in files.items():
            (tmp_path / name / path).write_text(text)
    assert digest(tmp_path / "one") != digest(tmp_path / "two")


@pytest.mark.root
def test_owner_counts_relative_to_the_top(state: Path) -> None:
    before = digest(state)
    for path in (state, *state.rglob("*")):
        os.chown(path, 64_101, 64_101, follow_symlinks=False)
    assert digest(state) == before
    os.chown(state / "d/f", 64_100, 64_101)
    assert digest(state) != before


def test_worker_processes_give_the_same_digest(state: Path) -> None:
    for i in range(50):
        (state / f"file {i}\n").write_bytes(b"x" * (i * 5_000))
    found = digest_tree(PlainTree(state), workers=1)
    assert digest_tree(PlainTree(state), workers=3) == found
    assert found.bytes == sum(5_000 * i for i in range(50)) + len("content") + len("other")
    assert found.files == 54


def test_a_worker_that_fails_is_an_error_not_a_digest(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OSError, match="hashing failed"):
        digest_tree(PlainTree(state), workers=2)
