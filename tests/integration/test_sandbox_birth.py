"""Processes are born inside their control groups, and the thread that starts them goes back to the manager's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandbox.model import Limits
from sandbox.runtimes.namespaces import limits
from sandbox.runtimes.namespaces.birth import birthplace
from sandbox.runtimes.namespaces.sandbox import Sandbox
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.root]


@pytest.fixture
def groups(settings: Settings, need: Callable[[str, str], None]) -> limits.Groups:
    found = limits.Groups.detect(settings)
    need("cgroup1", "" if found.bases and all(v == 1 for v, _ in found.bases.values()) else "no version 1 control groups")
    return found


def threads(path: Path) -> set[int]:
    return {int(line) for line in (path / "tasks").read_text().split()}


async def test_a_sandbox_is_in_its_groups_and_no_thread_of_ours_is(
    groups: limits.Groups, start: Callable[..., Awaitable[Sandbox]]
) -> None:
    sandbox = await start()
    made = [path for _, base in groups.bases.values() for path in base.iterdir() if path.is_dir()]
    ours = {int(name) for name in os.listdir("/proc/self/task")}

    assert made
    for path in made:
        assert sandbox.pid in threads(path)
        assert not threads(path) & ours


def test_a_thread_that_failed_to_start_anything_goes_back(groups: limits.Groups) -> None:
    group = groups.make("test-birth", Limits())
    try:
        place = birthplace(group)
        assert place is not None
        me = threading.get_native_id()

        def begin() -> None:
            with place.entered():
                assert all(me in threads(path) for path in group.paths)
                raise FileNotFoundError("no such program")

        with pytest.raises(FileNotFoundError):
            begin()
        place.close()
        assert not any(threads(path) for path in group.paths)
    finally:
        group.remove(timeout=2.0)


def test_killing_what_is_left_in_a_group_spares_the_manager(groups: limits.Groups) -> None:
    group = groups.make("test-spared", Limits())
    place = birthplace(group)
    assert place is not None
    with place.entered():
        group.remove(timeout=0.05)  # cannot be removed while we are in it, and must not kill us
        assert all(path.is_dir() for path in group.paths)
    place.close()
    group.remove(timeout=2.0)
    assert not any(path.exists() for path in group.paths)


def test_without_the_way_back_nobody_enters(groups: limits.Groups, tmp_path: Path) -> None:
    elsewhere = tmp_path / "cgroup"
    elsewhere.write_text("3:cpuset:/\n")
    group = groups.make("test-no-way-back", Limits())
    try:
        assert birthplace(group, own=elsewhere) is None
    finally:
        group.remove(timeout=2.0)
