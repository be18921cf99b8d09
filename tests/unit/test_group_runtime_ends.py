"""A runtime that closes: what fails of it does not keep the rest open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstanceLost
from sandbox.runtimes.group.runtime import GroupRuntime
from sandbox.settings import load


class Held:
    """What a runtime holds, and ends."""

    closed = False
    name = "held"

    def __init__(self, *, fails: bool = False) -> None:
        self.ends = 0
        self._fails = fails

    async def close(self) -> None:
        self.ends += 1
        if self._fails:
            raise InstanceLost("its server does not end")


async def test_an_instance_that_cannot_be_closed_keeps_no_other_open(tmp_path: Path) -> None:
    boxes: Any = Held()
    runtime = GroupRuntime(load({}, home=tmp_path), storage=boxes, boxes=boxes)
    shared: list[Any] = [Held(fails=True), Held()]
    single: list[Any] = [Held(), Held(fails=True)]
    runtime._shared, runtime._instances = set(shared), set(single)

    with pytest.raises(InstanceLost):
        await runtime.close()
    await runtime.close()

    assert [each.ends for each in (*shared, *single)] == [1, 1, 1, 1]
    assert boxes.ends == 2
