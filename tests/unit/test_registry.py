"""Environments are found by name and path; clashes and broken plug-ins are named and hide nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envs.registry import Broken, Registry
from sandbox.errors import EnvironmentInvalid
from sandbox.settings import Settings, load

TEXT = '{extra}name = "{name}"\nversion = "1"\n[resources.data]\nkind = "files"\nfiles = {{ "a" = "1" }}\n'
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, directory: str | None = None, extra: str = "") -> Path:
        path = tmp_path / "made" / (directory or name)
        path.mkdir(parents=True)
        (path / "environment.toml").write_text(TEXT.format(name=name, extra=extra))
        return path

    return written


def settings_of(tmp_path: Path, *extra: Path) -> Settings:
    return load({"AUTOCLAVE_ENVIRONMENTS": ":".join(map(str, extra)), "HOME": str(tmp_path)}, home=tmp_path / "home")


def distribution(site: Path, package: str, points: dict[str, str]) -> None:
    """Lay down what pip writes for an installed package."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[autoclave.environments]\n{lines}")


def test_shipped_environments_are_there(tmp_path: Path) -> None:
    names = {entry.name for entry in Registry(settings_of(tmp_path)).entries()}

    assert {"repo", "shop"} <= names


def test_directories_of_the_settings_are_found(tmp_path: Path, write: Write) -> None:
    registry = Registry(settings_of(tmp_path, write("desk", "some-directory")))

    assert registry.open("desk").spec.name == "desk"


def test_a_path_works_like_a_name(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("desk")
    monkeypatch.chdir(path)

    for name in (f"{path}/", str(path), str(path / "environment.toml"), "./", ".", "../desk", "environment.toml"):
        found = Registry(settings_of(tmp_path)).open(name).spec
        assert (found.name, Path(found.source).resolve()) == ("desk", (path / "environment.toml").resolve())


def test_add_registers_and_survives(tmp_path: Path, write: Write) -> None:
    path = write("desk")
    settings = settings_of(tmp_path)

    environment, link = Registry(settings).add(path)
    Registry(settings).add(path)

    assert link == settings.home / "environments" / "desk"
    assert Registry(settings).open("desk").spec.digest == environment.spec.digest


def test_add_refuses_a_name_that_is_taken(tmp_path: Path, write: Write) -> None:
    with pytest.raises(EnvironmentInvalid, match="the name 'repo' is taken by autoclave"):
        Registry(settings_of(tmp_path)).add(write("repo"))


def test_add_checks_first(tmp_path: Path, write: Write) -> None:
    settings = settings_of(tmp_path)

    with pytest.raises(EnvironmentInvalid, match="nmae: unknown key"):
        Registry(settings).add(write("desk", extra="nmae = 1\n"))
    assert not (settings.home / "environments").exists()


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentInvalid, match=r'no environment .shopp.; did you mean "shop"\?'):
        Registry(settings_of(tmp_path)).open("shopp")


def test_two_of_one_name_are_refused_and_both_named(tmp_path: Path, write: Write) -> None:
    one, two = write("desk", "one"), write("desk", "two")

    with pytest.raises(EnvironmentInvalid, match="2 environments are called 'desk'") as caught:
        Registry(settings_of(tmp_path, one, two)).open("desk")
    assert {str(one), str(two)} == {p.removeprefix("from ") for p in caught.value.problems}


def test_a_broken_directory_hides_nothing(tmp_path: Path, write: Write) -> None:
    registry = Registry(settings_of(tmp_path, write("bad", extra="x = 1\n"), write("good")))

    found = {item.name: item for item in registry.survey()}

    assert isinstance(found["bad"], Broken)
    assert "unknown key" in str(found["bad"].error)
    assert not isinstance(found["good"], Broken)


def test_plug_ins_of_other_packages(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    distribution(
        site,
        "plugged",
        {"desk": "plugged_desk:environment", "torn": "plugged_torn:environment", "liar": "plugged_desk:environment"},
    )
    (site / "plugged_desk.py").write_text(f"import envs\ndef environment():\n    return envs.load({str(write('desk'))!r})\n")
    (site / "plugged_torn.py").write_text("raise RuntimeError('torn')\n")
    distribution(site, "rival", {"twice": "plugged_desk:environment"})
    distribution(site, "rival2", {"twice": "plugged_other:environment"})
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "plugged_desk", raising=False)
    registry = Registry(settings_of(tmp_path))

    assert registry.open("desk").spec.name == "desk"
    with pytest.raises(EnvironmentInvalid, match=r"'torn' of plugged .* does not import: RuntimeError: torn"):
        registry.open("torn")
    with pytest.raises(EnvironmentInvalid, match="calls itself 'desk'"):
        registry.open("liar")
    with pytest.raises(EnvironmentInvalid, match="2 environments are called 'twice'") as caught:
        registry.open("twice")
    assert any("rival2" in problem for problem in caught.value.problems)
    broken = {item.name for item in registry.survey() if isinstance(item, Broken)}
    assert {"torn", "liar", "twice"} <= broken
    assert "desk" not in broken
