"""Trees read from the host: merging of layers, no link followed, nothing forged."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from sandbox.storage import LayeredTree, PlainTree, digest_tree


def build(top: Path, files: dict[str, str]) -> Path:
    top.mkdir(parents=True)
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def paths(tree: PlainTree | LayeredTree) -> list[str]:
    return [entry.path for entry in tree.walk()]


def whiteout(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, 0)


def test_walk_is_sorted_by_component_not_by_text(tmp_path: Path) -> None:
    top = build(tmp_path / "t", {"a/z": "", "a.b": "", "a-b/c": "", "b": ""})
    assert paths(PlainTree(top)) == ["a", "a/z", "a-b", "a-b/c", "a.b", "b"]


def test_entries_name_their_kind_and_links_are_not_followed(tmp_path: Path) -> None:
    top = build(tmp_path / "t", {"file": "text"})
    secret = build(tmp_path / "outside", {"secret": "secret"})
    (top / "link").symlink_to(secret / "secret")
    (top / "dirlink").symlink_to(secret)
    os.mkfifo(top / "fifo")
    for tree in (PlainTree(top), LayeredTree([top])):
        assert {e.path: e.kind for e in tree.walk()} == {"dirlink": "link", "fifo": "fifo", "file": "file", "link": "link"}
        link = tree.entry("link")
        assert link is not None
        assert link.target == str(secret / "secret")
        with pytest.raises(OSError, match="Too many levels") as raised:
            tree.read("link")
        assert raised.value.errno == errno.ELOOP
        with pytest.raises(FileNotFoundError):
            tree.read("dirlink/secret")
        with pytest.raises(OSError, match="Invalid argument"):
            tree.read("fifo")  # and does not wait for a writer
        with pytest.raises(IsADirectoryError):
            tree.read("")
        for escape in ("../outside/secret", "/etc/passwd", "a//b", "./file"):
            with pytest.raises(ValueError, match="relative and plain"):
                tree.read(escape)
        assert tree.read("file", 2) == b"te"


def test_upper_hides_replaces_and_merges(tmp_path: Path) -> None:
    base = build(
        tmp_path / "base", {"kept": "1", "gone": "1", "dir/old": "1", "dir/both": "1", "opaque/old": "1", "turned/in": "1"}
    )
    upper = build(tmp_path / "upper", {"dir/new": "2", "dir/both": "2", "opaque/new": "2", "turned": "2"})
    whiteout(upper / "gone")
    os.setxattr(upper / "opaque", "user.overlay.opaque", b"y")
    tree = LayeredTree([upper, base], upper=True)
    assert paths(tree) == ["dir", "dir/both", "dir/new", "dir/old", "kept", "opaque", "opaque/new", "turned"]
    assert tree.read("dir/both") == b"2"
    assert tree.read("dir/old") == b"1"
    assert tree.real("dir/old") == base / "dir" / "old"
    assert tree.entry("gone") is None
    assert tree.entry("opaque/old") is None
    assert tree.entry("turned/in") is None
    with pytest.raises(FileNotFoundError):
        tree.real("gone")
    changed = tree.changed()
    assert changed is not None
    assert changed - {""} == {
        *("dir", "dir/both", "dir/new", "gone", "opaque", "opaque/new", "opaque/old", "turned", "turned/in"),
    }


def test_a_middle_layer_hides_what_lies_below_it(tmp_path: Path) -> None:
    base = build(tmp_path / "base", {"d/one": "1", "gone": "1", "e/deep/x": "1"})
    middle = build(tmp_path / "middle", {"d/two": "2"})
    whiteout(middle / "gone")
    whiteout(middle / "e")
    upper = build(tmp_path / "upper", {"d/three": "3", "gone": "3", "e/fresh": "3"})
    tree = LayeredTree([upper, middle, base], upper=True)
    assert paths(tree) == ["d", "d/one", "d/three", "d/two", "e", "e/fresh", "gone"]
    assert tree.read("gone") == b"3"


def test_a_lower_file_ends_the_merge(tmp_path: Path) -> None:
    base = build(tmp_path / "base", {"x/old": "1"})
    middle = build(tmp_path / "middle", {"x": "file"})
    upper = build(tmp_path / "upper", {"x/new": "3"})
    assert paths(LayeredTree([upper, middle, base])) == ["x", "x/new"]


def test_overlay_marks_are_no_xattrs_and_escaped_ones_are(tmp_path: Path) -> None:
    base = build(tmp_path / "base", {"f": "1"})
    upper = build(tmp_path / "upper", {"f": "2", "empty": ""})
    for name, value in (("user.mine", b"1"), ("user.overlay.origin", b"o"), ("user.overlay.overlay.opaque", b"y")):
        os.setxattr(upper / "f", name, value)
    os.setxattr(upper / "empty", "user.overlay.whiteout", b"")
    tree = LayeredTree([upper, base])
    assert tree.xattrs("f") == {"user.mine": b"1", "user.overlay.opaque": b"y"}
    assert tree.entry("empty") is None
    assert PlainTree(upper).entry("empty") is not None


def test_a_redirecting_overlay_is_refused_rather_than_misread(tmp_path: Path) -> None:
    base = build(tmp_path / "base", {"old/f": "1"})
    upper = build(tmp_path / "upper", {"new/g": "2"})
    (upper / "old").mkdir()
    os.setxattr(upper / "old", "user.overlay.redirect", b"elsewhere")
    with pytest.raises(OSError, match="redirect_dir"):
        paths(LayeredTree([upper, base]))


def test_an_unchanged_upper_has_no_changes_and_a_chmod_of_the_top_shows(tmp_path: Path) -> None:
    base = build(tmp_path / "base", {"f": "1"})
    upper = build(tmp_path / "upper", {})
    upper.chmod(stat.S_IMODE(base.stat().st_mode))
    tree = LayeredTree([upper, base], upper=True)
    assert tree.changed() == frozenset()
    upper.chmod(0o700)
    assert tree.changed() == frozenset({""})
    assert PlainTree(base).changed() is None


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    name = os.fsdecode(b"caf\xe9\n")
    (top / name).write_text("x")
    assert paths(PlainTree(top)) == [name]
    assert PlainTree(top).read(name) == b"x"
    assert digest_tree(PlainTree(top)).files == 1
