"""The catalogue of planted leaks: what each entry says of itself, and how packages add theirs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.leaks import Catalogue, Leak, Needs, ShellLeak, catalogue
from probes.leaks.catalogue import faults
from sandbox.errors import EnvironmentInvalid
from sandbox.model import Depth, ResetMethod

RESETS = Path(__file__).parents[2] / "docs" / "resets.md"
KINDS = {"postgres", "files", "repo", "browser", "process", "container", "network"}
ENTRIES = [(kind, leak) for kind, leaks in catalogue().items() if kind in KINDS for leak in leaks]
Install = Callable[[str, str], None]


def test_there_are_at_least_120_of_all_kinds() -> None:
    assert {kind for kind, _ in ENTRIES} == KINDS
    assert len({(kind, leak.name) for kind, leak in ENTRIES}) == len(ENTRIES)
    assert len([leak for _, leak in ENTRIES if leak.seen is not None]) >= 120


@pytest.mark.parametrize(("kind", "leak"), ENTRIES, ids=[f"{kind}/{leak.name}" for kind, leak in ENTRIES])
def test_each_says_what_it_does_who_can_when_it_is_seen_and_what_repairs_it(kind: str, leak: Leak) -> None:
    assert faults(leak) == []
    assert leak.needs in Needs
    assert leak.seen in (Depth.QUICK, Depth.DEEP, None)
    assert leak.repaired_by in (ResetMethod.CLEAN, ResetMethod.RESTORE)


def test_no_two_leave_the_same_thing_under_two_names() -> None:
    """What is planted, and not what it is called, makes a kind: no entry repeats another one's text."""
    bare = [(kind, re.sub(r"(name|what)=('[^']*'|\"[^\"]*\"), ", "", repr(leak))) for kind, leak in ENTRIES]
    assert len(set(bare)) == len(bare)


def test_what_clean_must_repair_it_did_repair_when_it_was_measured() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in RESETS.read_text("utf-8").splitlines()]
    measured = {(row[0], row[1]): row[5] for row in rows if len(row) == 8 and row[0] != "leak" and set(row[0]) != {"-"}}
    declared = {(leak.name, leak.what): leak for _, leak in ENTRIES}
    known = {key: (declared[key].repaired_by, cell) for key, cell in measured.items() if key in declared}

    assert len(known) > 100
    assert [key for key, (by, cell) in known.items() if by is ResetMethod.CLEAN and cell not in ("gone", "")] == []


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(package, text)` lays down a package whose module has a `CATALOGUE`, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def laid(package: str, text: str) -> None:
        (tmp_path / f"{package}.py").write_text(text)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[autoclave.leaks]\n{package} = {package}:CATALOGUE\n")
        monkeypatch.delitem(sys.modules, package, raising=False)

    return laid


GOOD = """
from probes.leaks import Catalogue, ShellLeak
CATALOGUE = Catalogue(kind="{kind}", leaks=(ShellLeak(name="{name}", what="a queue more", shell="touch queue"),))
"""


def test_a_package_adds_its_own(install: Install) -> None:
    install("acme_leaks", GOOD.format(kind="files", name="queue"))

    assert [leak.what for leak in catalogue()["files"] if leak.name == "queue"] == ["a queue more"]


def test_a_name_that_is_taken_is_refused_with_both_packages(install: Install) -> None:
    install("acme_leaks", GOOD.format(kind="files", name="edit"))

    with pytest.raises(EnvironmentInvalid) as refused:
        catalogue()
    assert any("files/edit is also in" in text for text in refused.value.problems)
    assert any("acme_leaks" in text for text in refused.value.problems)


def test_what_is_no_catalogue_is_refused_by_name(install: Install) -> None:
    install("acme_leaks", "CATALOGUE = ['planted']")

    with pytest.raises(EnvironmentInvalid) as refused:
        catalogue()
    assert refused.value.problems == ("acme_leaks: is a list, must be a probes.leaks.Catalogue",)


def test_a_leak_that_says_too_little_is_refused() -> None:
    leak = ShellLeak(name="Big Name", what="", shell=":", seen=None, repaired_by=ResetMethod.HOOK)

    assert len(faults(leak)) == 4
    assert Catalogue(kind="files", leaks=(leak,)).leaks == (leak,)


@pytest.mark.parametrize(
    ("kind", "leak"),
    [(kind, leak) for kind, leak in ENTRIES if isinstance(leak, ShellLeak)],
    ids=[f"{kind}/{leak.name}" for kind, leak in ENTRIES if isinstance(leak, ShellLeak)],
)
def test_shell_text_is_text_of_a_shell(kind: str, leak: ShellLeak) -> None:
    done = subprocess.run(["/bin/sh", "-n", "-c", leak.shell], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
