"""The steps of a real move of one device between vLLM and the reference learner."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rollout.advice.elastic import Act
from rollout.engines.engine import Engine, Request
from rollout.setup import Machinery, Options, engine_for
from sandbox.ports import Clock


@asynccontextmanager
async def move_steps(model: Path, clock: Clock) -> AsyncIterator[dict[str, Act]]:
    """Start the engine, hand out the steps, and end what runs in the end. Raises RuntimeUnavailable without vLLM or torch."""
    from rollout.learner.grpo import Grpo

    options = Options(environment="", engine="vllm", model=str(model))
    environment: Any = SimpleNamespace(spec=SimpleNamespace(name=""), tasks={})
    with tempfile.TemporaryDirectory(prefix="autoclave-move-") as folder:
        machinery = Machinery(options=options, environment=environment, clock=clock, folder=Path(folder))
        held: dict[str, Any] = {}

        async def start() -> None:
            engine, tokenizer = engine_for(machinery)
            await engine.__aenter__()
            held["engine"] = engine
            await _answers(engine, tokenizer.encode("a"))

        async def end() -> None:
            engine = held.pop("engine", None)
            if engine is not None:
                await engine.__aexit__(None, None, None)

        async def load() -> None:
            held["learner"] = Grpo(model.absolute(), folder=Path(folder))
            await held["learner"].ready()

        async def drop() -> None:
            held["learner"].close()
            del held["learner"]

        try:
            await start()
            yield {
                "the engine ends": end,
                "the learner loads weights and optimizer": load,
                "the learner ends": drop,
                "the engine starts and answers": start,
            }
        finally:
            if "learner" in held:
                await drop()
            await end()


async def _answers(engine: Engine, ids: tuple[int, ...]) -> None:
    await engine.generate(Request(ids=ids, session="move", max_tokens=1))
