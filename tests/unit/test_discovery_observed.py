"""What looking at fresh instances leaves behind: nothing, on an engine neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from envs.discovery.known import Known
from envs.discovery.observe import observe
from envs.discovery.procedure import discover
from sandbox.model import EnvironmentSpec
from sandbox.ports import Instance, Subject
from sandbox.testing import MemoryRuntime, memory_environment
from sandbox.testing.verifier import ScriptedVerifier


class Reader(ScriptedVerifier):
    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self._broken = broken

    async def read(
        self, subject: Subject, *, like: Mapping[str, Mapping[str, str]] | None = None
    ) -> Mapping[str, Mapping[str, str]]:
        if self._broken:
            raise OSError("it cannot be read")
        return {"memory": {entry.path: "1" for entry in subject.tree("state").walk()}}


async def test_what_was_found_is_data_too(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be asked stands in a remark: who reads only the data has to see it."""
    environment = memory_environment()
    environment.verifier = Reader(broken=False)
    remark = "redis-server runs in app, but what it holds cannot be asked for"

    async def known(spec: EnvironmentSpec, instance: Instance) -> Known:
        return Known(remarks=(remark,))

    monkeypatch.setattr("envs.discovery.observe.known", known)
    found = (await discover(environment, bench.runtime, instances=2, later_s=0)).as_json()

    assert (found["builds"], found["left"], found["remarks"]) == (0, [], [remark])
    assert {probe["kind"]: probe["origin"] for probe in found["probes"]} == {"files": "default", "process": "default"}
    assert remark in found["text"]
    assert json.loads(json.dumps(found)) == found


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
