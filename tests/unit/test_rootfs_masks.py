"""Packages that lie below what every sandbox sees are hidden there."""

from __future__ import annotations

from pathlib import Path

from sandbox.runtimes.namespaces import rootfs


def test_only_what_lies_in_system_directories_is_hidden(tmp_path: Path) -> None:
    link = tmp_path / "share"
    link.symlink_to("/usr/share")
    assert rootfs.below_roots([tmp_path, Path("/usr/share"), link, Path("/usr/none"), Path("/usr/../usr/share")]) == (
        Path("/usr/share"),
    )
    assert rootfs.masked([Path("/usr/share")]) == ["--tmpfs", "/usr/share", "--remount-ro", "/usr/share"]


def test_our_own_packages_are_looked_at() -> None:
    ours = Path(rootfs.__file__).resolve().parents[2]
    below = any(ours.is_relative_to(root) for root in ("/usr", "/lib"))
    assert (ours in rootfs.hidden_directories()) is below
