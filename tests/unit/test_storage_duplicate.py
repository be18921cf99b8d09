"""Copies lose nothing, and deletion copes with whatever an agent leaves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.storage import LayeredTree, PlainTree, digest_tree
from sandbox.storage.background import delete_tree
from sandbox.storage.duplicate import copy_tree, escaped, rename_xattrs, without_bookkeeping


def test_copy_keeps_modes_times_links_holes_and_xattrs(tmp_path: Path) -> None:
    top = tmp_path / "state"
    (top / "d").mkdir(parents=True)
    (top / "d" / "f").write_text("x")
    os.link(top / "d" / "f", top / "same")
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "fifo", 0o640)
    with (top / "sparse").open("wb") as file:
        file.write(b"head")
        file.truncate(50_000_000)
        file.seek(20_000_000)
        file.write(b"middle")
    os.setxattr(top / "d", "user.note", b"1")
    (top / "readonly").write_text("r")
    os.setxattr(top / "readonly", "user.note", b"1")
    (top / "readonly").chmod(0o444)
    for path in ("d/f", "d", "dangling"):
        os.utime(top / path, ns=(1_000_000_001, 2_000_000_002), follow_symlinks=False)
    os.chmod(top / "d", 0o2750)
    copy = tmp_path / "copy"
    copy_tree(PlainTree(top), copy)
    assert digest_tree(PlainTree(copy)).digest == digest_tree(PlainTree(top)).digest
    first = {e.path: e for e in PlainTree(top).walk()}
    second = {e.path: e for e in PlainTree(copy).walk()}
    assert {p: e.mtime_ns for p, e in first.items()} == {p: e.mtime_ns for p, e in second.items()}
    assert second["d/f"].inode == second["same"].inode
    assert second["d"].mode == 0o2750
    assert os.stat(copy / "sparse").st_blocks * 512 < 1_000_000
    assert (copy / "sparse").read_bytes() == (top / "sparse").read_bytes()


def test_copy_of_an_upper_keeps_what_hides_and_drops_the_mounts_notes(tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    (upper / "d").mkdir(parents=True)
    os.mknod(upper / "gone", stat.S_IFCHR, 0)
    os.setxattr(upper / "d", "user.overlay.opaque", b"y")
    os.setxattr(upper, "user.overlay.origin", b"handle")
    copy_tree(PlainTree(upper), tmp_path / "layer", xattr_name=without_bookkeeping)
    assert (tmp_path / "layer" / "gone").is_char_device()
    assert os.getxattr(tmp_path / "layer" / "d", "user.overlay.opaque") == b"y"
    assert os.listxattr(tmp_path / "layer") == []


def test_a_plain_trees_own_overlay_xattrs_are_escaped_when_it_becomes_a_layer(tmp_path: Path) -> None:
    top = tmp_path / "state"
    top.mkdir()
    (top / "f").write_text("")
    os.setxattr(top / "f", "user.overlay.whiteout", b"y")
    (top / "f").chmod(0o444)
    assert LayeredTree([top]).entry("f") is None
    rename_xattrs(top, escaped)
    tree = LayeredTree([top])
    assert tree.xattrs("f") == {"user.overlay.whiteout": b"y"}
    entry = tree.entry("f")
    assert entry is not None
    assert entry.mode == 0o444


def test_deletion_copes_with_depth_modes_and_long_paths(tmp_path: Path) -> None:
    trash = tmp_path / "trash"
    top = trash / "one"
    top.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    before = os.getcwd()
    try:
        os.chdir(top)
        for _ in range(1_050):  # deeper than the recursion limit, longer than PATH_MAX
            os.mkdir("deeper")
            os.chdir("deeper")
        Path("file").write_text("x")
    finally:
        os.chdir(before)
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed" / "inner" / "f").write_text("x")
    (top / "closed" / "inner").chmod(0)
    (top / "closed").chmod(0)
    (top / "link").symlink_to(outside)
    delete_tree(str(top))
    assert list(trash.iterdir()) == []
    assert (outside / "kept").read_text() == "kept"


def test_deletion_stops_when_told(tmp_path: Path) -> None:
    (tmp_path / "trash" / "one" / "two").mkdir(parents=True)
    delete_tree(str(tmp_path / "trash" / "one"), stop=lambda: True)
    assert (tmp_path / "trash" / "one" / "two").is_dir()


@pytest.mark.root
def test_copy_keeps_owners(tmp_path: Path) -> None:
    top = tmp_path / "state"
    top.mkdir()
    (top / "f").write_text("x")
    (top / "l").symlink_to("f")
    for path, uid in ((top, 64_101), (top / "f", 64_100), (top / "l", 64_100)):
        os.chown(path, uid, uid, follow_symlinks=False)
    (top / "f").chmod(0o4755)
    copy_tree(PlainTree(top), tmp_path / "copy")
    tree = PlainTree(tmp_path / "copy")
    assert next((e.path, e.uid, e.gid, e.mode) for e in tree.walk()) == ("f", 64_100, 64_100, 0o4755)
    assert [e.uid for e in tree.walk()] == [64_100, 64_100]
    assert tree.top().status.st_uid == 64_101
