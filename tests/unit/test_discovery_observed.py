"""What looking at fresh instances leaves behind: nothing, on an engine neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from envs.discovery.observe import observe
from sandbox.ports import Subject
from sandbox.testing import MemoryRuntime, memory_environment
from sandbox.testing.verifier import ScriptedVerifier


class Reader(ScriptedVerifier):
    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self._broken = broken

    async def read(self, subject: Subject) -> Mapping[str, Mapping[str, str]]:
        if self._broken:
            raise OSError("it cannot be read")
        return {"memory": {entry.path: "1" for entry in subject.tree("state").walk()}}


@pytest.mark.parametrize("broken", [False, True])
async def test_what_snapshots_stand_on_is_swept_when_their_directories_have_gone(
    broken: bool, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: MemoryRuntime = bench.runtime
    swept: list[int] = []

    async def sweep(*, dry_run: bool = False) -> tuple[str, ...]:
        swept.append(len(bench.storage.sealed))
        return ()

    monkeypatch.setattr(runtime, "sweep", sweep)
    environment = memory_environment()
    environment.verifier = Reader(broken=broken)
    if broken:
        with pytest.raises(OSError, match="cannot be read"):
            await observe(environment, runtime, instances=2, later_s=0)
    else:
        assert (await observe(environment, runtime, instances=2, later_s=0)).instances == 2

    assert swept == [0]
