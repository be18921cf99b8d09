"""What becomes of the vLLM engine when a publication goes wrong on the way; vLLM itself is a stand-in here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollout.engines import vllm
from rollout.engines.engine import Request
from rollout.engines.vllm import VllmEngine, VllmRule
from rollout.errors import EngineLost
from sandbox.clock import SystemClock


class Llm:
    """Says what vLLM's AsyncLLM says; steps in `fails` raise, steps in `hangs` never end."""

    def __init__(self, weights: str) -> None:
        self.errored = False
        self.weights, self.name = weights, "default"
        self.paused = False
        self.fails: set[str] = set()
        self.hangs: set[str] = set()

    async def _step(self, name: str) -> None:
        if name in self.hangs:
            await asyncio.Event().wait()
        if name in self.fails:
            raise RuntimeError(f"call to {name} failed")

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        await self._step("pause")
        self.paused = True

    async def resume_generation(self) -> None:
        await self._step("resume")
        self.paused = False

    async def collective_rpc(self, method: str, *, kwargs: dict[str, str]) -> None:
        await self._step(f"load {Path(kwargs['weights_path']).name}")
        self.weights = kwargs["weights_path"]

    async def update_weight_version(self, name: str) -> None:
        await self._step("name")
        self.name = name

    async def compute_weight_checksums(self) -> list[dict[str, str]]:
        await self._step("checksum")
        return [{"layer": self.weights}]

    def get_num_unfinished_requests(self) -> int:
        return 2


def model(folder: Path) -> Path:
    """A directory with one tensor of two numbers."""
    folder.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    return folder


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    class Dead(Exception):
        pass

    names = SimpleNamespace(platform=SimpleNamespace(device_type="cpu"), EngineDeadError=Dead, VLLMError=Dead, VLLMClientError=Dead)
    monkeypatch.setattr(vllm, "_names", lambda _: names)
    made = VllmEngine(model(tmp_path / "first"), clock=SystemClock(), rule=VllmRule(publish_s=0.3, resume_s=0.2))
    made._engine = Llm(str(tmp_path / "first"))
    made.vocab_size, made.context = 10, 100
    made._checksum = await made._sum()
    return made


async def lost(engine: VllmEngine, why: str) -> None:
    with pytest.raises(EngineLost, match=why):
        await engine.generate(Request(ids=(1,), session="s", max_tokens=1))


async def test_new_weights_are_named_and_shown_to_have_changed(engine: VllmEngine, tmp_path: Path) -> None:
    report = await engine.publish(model(tmp_path / "second"), 1)

    assert (report.version, report.changed, report.in_flight) == (1, True, 2)
    assert (engine._engine.name, engine._engine.paused, engine.version) == ("1", False, 1)


async def test_weights_that_do_not_load_are_replaced_by_the_old_ones(engine: VllmEngine, tmp_path: Path) -> None:
    engine._engine.fails = {"load second"}
    with pytest.raises(EngineLost, match="second did not load"):
        await engine.publish(model(tmp_path / "second"), 1)

    assert engine._engine.weights == str(tmp_path / "first")
    assert (engine.version, engine._engine.paused) == (0, False)
    assert (await engine.publish(model(tmp_path / "third"), 1)).changed is True


@pytest.mark.parametrize("step", ["name", "checksum"])
async def test_weights_whose_name_is_not_taken_serve_nobody(engine: VllmEngine, tmp_path: Path, step: str) -> None:
    """Their tokens would be told as those of the version before."""
    engine._engine.fails = {step}
    with pytest.raises(EngineLost, match="does not take their name"):
        await engine.publish(model(tmp_path / "second"), 1)

    assert engine.version == 0
    await lost(engine, "does not take their name")


@pytest.mark.parametrize("steps", [{"pause", "resume"}, {"load second"}, {"name"}, {"resume"}])
async def test_an_engine_that_hangs_in_a_publication_costs_a_deadline_and_is_lost(
    engine: VllmEngine, tmp_path: Path, steps: set[str]
) -> None:
    engine._engine.hangs = steps
    with pytest.raises(EngineLost, match="no answer in time"):
        async with asyncio.timeout(60):
            await engine.publish(model(tmp_path / "second"), 1)

    await lost(engine, "no answer in time")
