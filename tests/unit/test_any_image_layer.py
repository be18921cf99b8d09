"""What of a container's writable layer is told, also where its engine lists nothing, and while its programs live."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.runtimes.docker.plain import layer
from sandbox.runtimes.docker.plain.view import kept_lines, may_lack_its_start


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    """An upper as an overlay makes it: directories are copied up with their attributes for what lies in them."""
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for top in (upper, lower):
        (top / "srv" / "app").mkdir(parents=True)
        (top / "srv" / "app" / "seed").write_text("as it was")
        for path in (top, top / "srv", top / "srv" / "app"):
            path.chmod(0o755)
    return upper, lower


def label(path: Path) -> None:
    try:
        os.setxattr(path, "user.planted", b"1")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "mode of the top": (lambda upper: upper.chmod(0o777), "/"),
    "mode of a directory": (lambda upper: (upper / "srv").chmod(0o777), "/srv"),
    "attribute of a directory": (lambda upper: label(upper / "srv"), "/srv"),
    "attribute of the top": (label, "/"),
    "link to a directory of the host": (lambda upper: (upper / "srv" / "link").symlink_to("/usr"), "/srv/link"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_an_engine_may_not_list_is_told(layers: tuple[Path, Path], name: str) -> None:
    upper, lower = layers
    assert set(layer.copied_up(upper, [lower])) == {"/srv/app/seed"}
    plant, path = PLANTED[name]
    plant(upper)
    assert set(layer.copied_up(upper, [lower])) == {"/srv/app/seed", path}


def test_the_layer_that_is_seen_is_the_one_that_counts(layers: tuple[Path, Path], tmp_path: Path) -> None:
    upper, lower = layers
    between = tmp_path / "between"
    (between / "srv").mkdir(parents=True)
    (between / "srv").chmod(0o777)
    (upper / "srv").chmod(0o777)
    assert set(layer.copied_up(upper, [between, lower])) == {"/srv/app/seed"}


def test_what_goes_while_it_is_read_is_no_error(layers: tuple[Path, Path]) -> None:
    upper, lower = layers
    (upper / "srv" / "app" / "other").write_text("temporary")
    (upper / "srv" / "app" / "third").write_text("temporary")
    listing = layer.copied_up(upper, [lower])
    first = next(listing)
    for path in (upper / "srv" / "app").iterdir():
        if f"/srv/app/{path.name}" != first:
            path.unlink()
    assert list(listing) == []
    assert layer.on_disk(upper, "/srv/app/other") == layer.GONE


def test_a_line_that_the_agent_wrote_for_its_own_name_is_kept() -> None:
    """A container without a network has no address of its own."""
    text = "127.0.0.1\tlocalhost\n10.0.0.9 container api.internal\n10.0.0.9 container\n"
    assert kept_lines(text, "") == "127.0.0.1\tlocalhost; 10.0.0.9 container api.internal; 10.0.0.9 container"
    assert kept_lines(text, "container") == "127.0.0.1\tlocalhost; 10.0.0.9 container api.internal"
    assert kept_lines("172.17.0.2\tbox.test box\n", "box.test") == ""


def test_an_output_of_which_the_engine_may_have_dropped_the_beginning_is_told() -> None:
    assert not may_lack_its_start(b"", b"")
    assert not may_lack_its_start(b"a line of some forty characters, as many\n" * 100_000, b"")
    assert may_lack_its_start(b"\n" * 500_000, b"")
    assert may_lack_its_start(b"\n" * 250_000, b"\n" * 250_000)
    assert may_lack_its_start(b"x" * 8_000_000, b"")


def test_what_goes_or_cannot_be_read_keeps_nothing_else_from_being_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.lstat
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("a")

    def lstat(path: str, **options: int) -> os.stat_result:
        if os.fspath(path).endswith("b"):
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, **options)

    monkeypatch.setattr(os, "lstat", lstat)
    assert layer.size_of(tmp_path) == 200
