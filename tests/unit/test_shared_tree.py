"""A tree that several namespaces share, read while a directory of an earlier generation is removed from it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.probe import ProbeContext
from probes.shared_tree import WAITS_S, SharedTreeProbe
from sandbox.model import Depth, Isolation, NamespaceId
from sandbox.ports import Part, Sharing, TreeEntry
from sandbox.storage import PlainTree, delete_tree

OWN = "ns_aaaaaaaaaaaa"


class Going(PlainTree):
    """Its first directory goes while it is walked, so many times."""

    def __init__(self, top: Path, times: int) -> None:
        super().__init__(top)
        self.times = times

    def walk(self, top: str = "") -> Iterator[TreeEntry]:
        if top.endswith(".1") and self.times:
            self.times -= 1
            raise FileNotFoundError(2, "No such file or directory", top)
        return super().walk(top)


def reading(tree: PlainTree, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("probes.shared_tree.WAITS_S", (0.0,) * len(WAITS_S))
    own = Part(isolation=Isolation.DIRECTORY, namespace=NamespaceId("n"), name=OWN, secret="")
    sharing = Sharing(own=own, names={OWN}, tree=tree, directories={f"{OWN}.docs.1", f"{OWN}.docs.2"})
    monkeypatch.setattr(import_module("probes.probe"), "sharing_of", lambda _: sharing)
    subject: Any = SimpleNamespace(namespace="n")
    context = ProbeContext(subject=subject, depth=Depth.QUICK, baseline=None, backends=set(), limit_s=10)
    return SharedTreeProbe(name="tree", digest="1").read(context)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for number in (1, 2):
        (tmp_path / f"{OWN}.docs.{number}").mkdir()
        (tmp_path / f"{OWN}.docs.{number}" / "notes.txt").write_text("none")
    return tmp_path


async def test_what_goes_while_it_is_read_is_read_again(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await reading(Going(top, times=3), monkeypatch)

    assert found.problems == ()
    assert (found.fields["nobody's"], found.fields["linked from elsewhere"]) == ("", "")
    delete_tree(str(top / f"{OWN}.docs.1"))
    assert (await reading(PlainTree(top), monkeypatch)).fields == found.fields


async def test_what_never_comes_to_rest_is_no_reading(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        await reading(Going(top, times=100), monkeypatch)
