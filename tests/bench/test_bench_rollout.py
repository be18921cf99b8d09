"""The rollout loop over vLLM: what it costs beside bare requests of the same engine, and how idle tool waits leave it.

The pool's resets are stubbed: what is measured is the loop, on the cores that it shares with the engine where there is no GPU.
"""

from __future__ import annotations

import asyncio
import gc
import runpy
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from rollout.drive import drive
from rollout.engines.engine import Completion, Request
from rollout.engines.vllm import VllmEngine, VllmRule
from rollout.loop import RolloutLoop
from rollout.policies.chat import ChatPolicy
from rollout.policies.policy import Answer, Call, Calls, Final, ToolSpec
from rollout.policies.tokens import ModelTokenizer
from rollout.running.runner import Parts
from rollout.running.tooling import Tooling
from rollout.setup import Options, books_of, parts_of, plan_of
from rollout.tools.tool import Observation, text_schema
from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.model import TaskSpec
from sandbox.pool import Pool, PoolLimits
from sandbox.testing import MemoryRuntime, memory_environment

pytestmark = [
    pytest.mark.bench,
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

SLOTS, ANSWER, GROUPS, GROUP = 8, 64, 8, 8
TASKS = [
    TaskSpec(id=f"task-{n}", family="f", difficulty="easy", split="train", prompt=f"pay order {n}", success={"orders": "paid"})
    for n in range(GROUPS)
]


class Watched:
    """The engine, and when it had requests."""

    def __init__(self, inner: VllmEngine) -> None:
        self._inner = inner
        self.asked: list[Request] = []
        self.tokens = 0
        self.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def clear(self) -> None:
        self.asked, self.tokens = [], 0
        self._flying, self._since, self.idle_s = 0, 0.0, 0.0
        self.first: float | None = None
        self.last = 0.0

    async def generate(self, request: Request) -> Completion:
        now = time.perf_counter()
        if self.first is None:
            self.first = now
        elif not self._flying:
            self.idle_s += now - self.last
        self._flying += 1
        self.asked.append(request)
        try:
            found = await self._inner.generate(request)
        finally:
            self._flying -= 1
            self.last = time.perf_counter()
        self.tokens += len(found.ids)
        return found


class Talking(ChatPolicy):
    """Takes whatever a model without knowledge says as its last word, or as a call of the tool that waits."""

    def __init__(self, tokenizer: ModelTokenizer, *, acts: bool) -> None:
        super().__init__(tokenizer)
        self._acts = acts

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return ()  # every answer has the same length

    def read(self, ids: Sequence[int], tools: Sequence[ToolSpec]) -> Answer:
        return Calls(calls=(Call(tool="shell", arguments={"command": "wait"}),)) if self._acts else Final(text="")


class Wait:
    """A tool that takes a second."""

    limit_s = 60.0
    spec = ToolSpec(name="shell", description="wait", parameters=text_schema(command="anything"))

    def __init__(self) -> None:
        self._acts = 0

    async def act(self, session: Any, arguments: Mapping[str, Any]) -> Observation:
        await asyncio.sleep(1.0)
        self._acts += 1
        return Observation(text=f"{self._acts} waits")  # the same result again and again would end a trajectory as a loop


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Some 20 million random weights: a step takes as long as one does, and nothing is downloaded."""
    made = tmp_path / "model"
    runpy.run_path(str(Path(__file__).parents[1] / "small_model.py"))["build"](made, hidden=512, layers=8)
    return made


@asynccontextmanager
async def served(model: Path) -> AsyncIterator[tuple[Watched, ModelTokenizer]]:
    async with VllmEngine(model, clock=SystemClock(), rule=VllmRule(slots=SLOTS, context=2048)) as engine:
        yield Watched(engine), ModelTokenizer(model)
    del engine
    with warnings.catch_warnings():  # vLLM leaves its message context to the collector, whose warning would be a later test's
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def looped(
    place: Path, engine: Watched, tokenizer: ModelTokenizer, *, size: int, turns: int, change: Callable[[Parts], Parts]
) -> float:
    """Run all groups through the loop; return the seconds from the first request to the last answer."""
    options = Options(
        environment="memory",
        engine="vllm",
        trajectories=GROUPS * GROUP,
        group_size=GROUP,
        size=size,
        slots=SLOTS,
        turns=turns,
        answer_tokens=ANSWER,
        keep_flat=True,
        max_gap=GROUPS,
    )
    clock = SystemClock()
    environment = memory_environment(tasks=TASKS)
    place.mkdir()
    async with open_ledger(place / "ledger.sqlite", clock=clock) as ledger:
        limits = PoolLimits(creations=64, resets=256)
        async with Pool([environment], ledger=ledger, runtime=MemoryRuntime(), clock=clock, size=size, limits=limits) as pool:
            plan = replace(plan_of(options), holding=size, low=size, high=size)
            books = books_of(plan, environment, options, folder=place, clock=clock)
            parts = parts_of(plan, options, pool=pool, environment=environment, engine=engine, tokenizer=tokenizer, clock=clock)
            engine.clear()
            async with books.journal:
                async with RolloutLoop(books, change(parts)) as loop:
                    await drive(loop, None)
                counts = books.accounts.counts()
    assert counts["accepted"] == books.accounts.admitted == GROUPS * GROUP, books.accounts.why()
    assert parts.limits.slot_held_during_tool_wait_s == 0
    assert engine.first is not None
    return engine.last - engine.first


async def bare(engine: Watched, requests: Sequence[Request]) -> float:
    """The same requests, as many at once as the engine serves."""
    slots = asyncio.Semaphore(SLOTS)
    engine.clear()

    async def one(request: Request) -> None:
        async with slots:
            await engine.generate(request)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(request))
    return time.perf_counter() - began


async def test_the_loop_beside_bare_requests(model: Path, tmp_path: Path, rows: Any) -> None:
    async with served(model) as (engine, tokenizer):
        ours: list[float] = []
        theirs: list[float] = []
        requests: list[Request] = []
        for number in range(4):  # the first one warms the prefix cache for both
            took = await looped(
                tmp_path / f"run-{number}",
                engine,
                tokenizer,
                size=32,
                turns=1,
                change=lambda parts: replace(parts, policy=Talking(tokenizer, acts=False)),
            )
            tokens, requests = engine.tokens, list(engine.asked)
            beside = await bare(engine, requests)
            assert engine.tokens == tokens
            if number:
                ours.append(tokens / took)
                theirs.append(tokens / beside)
        ratio = median(mine / other for mine, other in zip(ours, theirs, strict=True))
        found = f"{ratio:.1%} of bare: {median(ours):.0f} tokens/s, bare {median(theirs):.0f}"
        rows.value(
            f"the loop on vLLM without tool calls, {GROUPS * GROUP} trajectories of {ANSWER} tokens",
            found,
            bar="at least 95% of bare `generate` calls",
            met=ratio >= 0.95,
            n=len(ours),
        )

        took = await looped(
            tmp_path / "waits",
            engine,
            tokenizer,
            size=GROUPS * GROUP,
            turns=4,
            change=lambda parts: replace(
                parts,
                policy=Talking(tokenizer, acts=True),
                tooling=Tooling((Wait(),), limits=parts.limits, clock=parts.clock),
            ),
        )
        share = engine.idle_s / took
        rows.value(
            f"the engine's idle share with a tool wait of 1 s after each answer, {GROUPS * GROUP} trajectories of 4 turns",
            f"{share:.1%} of {took:.1f} s",
            bar="under 10%",
            met=share < 0.10,
            n=1,
        )
        assert len(engine.asked) == GROUPS * GROUP * 4
