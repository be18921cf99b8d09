"""A whole rollout over a pool in memory: scripted answers, a clock that tests move, leaks and faults that they plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout.admission.limits import JUDGE, MODEL, SESSION, STORAGE, Dependency, Limits
from rollout.admission.planner import Planner
from rollout.batches import Batch, SyncRule
from rollout.books import Books, Plan
from rollout.engines.engine import Request
from rollout.engines.scripted import Reply, Script, ScriptedEngine
from rollout.engines.scripts import call
from rollout.groups import GroupRule
from rollout.journal import Contents, Journal, read
from rollout.loop import RolloutLoop
from rollout.meter import Meter
from rollout.meters.events import Events
from rollout.policies.chat import ChatPolicy
from rollout.policies.policy import ToolSpec
from rollout.policies.tokens import ByteTokenizer
from rollout.record import Trajectory
from rollout.running.board import Board
from rollout.running.runner import Bounds, Parts
from rollout.running.tooling import Tooling, dependency
from rollout.selection.selector import Selector
from rollout.tools.tool import Observation, text_schema
from rollout.watchdog import Patience
from sandbox.ledger import open_ledger
from sandbox.model import Clearance, ResetMethod, TaskSpec, TrajectoryId
from sandbox.pool import Pool, PoolLimits
from sandbox.testing import FakeClock, MemoryEnvironment, MemoryRuntime, memory_environment

FOREVER = 1e9
SOLVE = call("do", command="set orders paid")
FAIL = call("do", command="set orders open")
LEAK = call("do", command="set sticky left")


class Do:
    """Runs a command of the memory instance; `command` is split at spaces."""

    limit_s = 10.0
    spec = ToolSpec(name="do", description="act", parameters=text_schema(command="set PATH TEXT, get PATH, rm PATH, die"))

    def __init__(self) -> None:
        self.wait: Callable[[Any], Awaitable[None]] | None = None

    async def act(self, session: Any, arguments: Mapping[str, Any]) -> Observation:
        if self.wait is not None:
            await self.wait(session)
        result = await session.run(arguments["command"].split(" "))
        return Observation(text=result.text or f"exit {result.exit_code}", ok=result.exit_code == 0)


def task(number: int, *, family: str = "f") -> TaskSpec:
    return TaskSpec(
        id=f"task-{number}",
        family=family,
        difficulty="easy",
        split="train",
        prompt=f"pay order {number}",
        success={"orders": "paid"},
    )


Answers = Callable[[str, int, int], Sequence[str]]  # task, member, attempt -> answers by turn


def by_answers(answers: Answers, *, wait_s: float = 0.0) -> Callable[[Request, str], Reply]:
    def script(request: Request, _: str) -> Reply:
        labels = request.labels
        said = answers(labels["task"], int(labels["member"]), int(labels["attempt"]))
        return Reply(text=said[min(int(labels["turn"]), len(said) - 1)], wait_s=wait_s)

    return script


def half(task: str, member: int, attempt: int) -> Sequence[str]:
    """Every second member solves its task."""
    return (SOLVE, "done") if member % 2 == 0 else (FAIL, "done")


class Rollout:
    """One run: change `plan`, `answers`, `engine`, `tool`, `leaks` before `open`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        self.leaks: dict[ResetMethod, Sequence[str]] = {}
        self.runtime = MemoryRuntime(leaks=self.leaks)
        self.tasks = [task(n) for n in range(4)]
        self.environment: MemoryEnvironment = memory_environment(tasks=self.tasks)
        self.size = 4
        self.tool_limit = 4
        self.slots = 4
        self.tool = Do()
        self.answers: Answers = half
        self.wait_s = 0.0
        self.script: Callable[[Script], Script] = lambda script: script
        self.plan = Plan(
            run="run",
            environment="memory",
            groups=4,
            group_rule=GroupRule(size=2),
            sync=SyncRule(groups=2),
            patience=Patience(say_s=FOREVER, stop_s=FOREVER),
            clear_s=FOREVER,
            publish_s=FOREVER,
            low=4,
            high=8,
            holding=8,
        )
        self.parts_change: dict[str, Any] = {}
        self.bounds = Bounds(
            trajectory_s=FOREVER, generate_s=FOREVER, score_s=FOREVER, session_wait_s=FOREVER, release_s=FOREVER
        )  # time flies in these tests, and the ledger's disk is a real one: only what a test sets may run out
        self.meters: Events | None = None
        self.selector: Selector | None = None
        self.engine: ScriptedEngine
        self.loop: RolloutLoop
        self.books: Books
        self.pool: Pool
        self.limits = PoolLimits(resets=4, drain_grace_s=0.05)
        self.clearances: Mapping[TrajectoryId, Clearance] = {}

    def change(self, **fields: Any) -> None:
        self.plan = replace(self.plan, **fields)

    @asynccontextmanager
    async def open(self, recalls: list[Any] | None = None) -> AsyncIterator[RolloutLoop]:
        """Hold pool, engine, journal and loop; at the end settle, and keep every trajectory's clearance."""
        script = self.script(by_answers(self.answers, wait_s=self.wait_s))
        self.engine = ScriptedEngine(script, clock=self.clock, slots=self.slots)
        line = 64
        limits = Limits(
            [
                Dependency(name=MODEL, owner="tests", limit=self.slots, waiting=line, wait_s=FOREVER),
                Dependency(name=SESSION, owner="tests", limit=self.size, waiting=line, wait_s=FOREVER),
                Dependency(name=JUDGE, owner="tests", limit=self.size, waiting=line, wait_s=FOREVER),
                Dependency(name=STORAGE, owner="tests", limit=1, waiting=line, wait_s=FOREVER),
                Dependency(name=dependency("do"), owner="tests", limit=self.tool_limit, waiting=line, wait_s=FOREVER, safe=1),
            ],
            clock=self.clock,
        )
        self.books = Books(
            plan=self.plan,
            planner=Planner(self.tasks, log=self.home / "decisions.jsonl"),
            journal=Journal(self.home / "trajectories.jsonl", self.clock),
            meter=Meter(self.clock),
            selector=self.selector,
            events=self.meters or Events(self.clock, on=False),
        )
        async with open_ledger(self.home / "ledger.sqlite", durability="normal", clock=self.clock) as ledger:
            self.pool = Pool(
                [self.environment], ledger=ledger, runtime=self.runtime, clock=self.clock, size=self.size, limits=self.limits
            )
            async with self.pool, self.books.journal:
                parts = Parts(
                    pool=self.pool,
                    engine=self.engine,
                    policy=ChatPolicy(ByteTokenizer()),
                    tooling=Tooling([self.tool], limits=limits, clock=self.clock),
                    limits=limits,
                    board=Board(self.clock),
                    clock=self.clock,
                    bounds=self.bounds,
                )
                self.loop = RolloutLoop(self.books, replace(parts, **self.parts_change))
                async with self.loop:
                    yield self.loop
                await self.loop.settle()
                if recalls is not None:
                    recalls.append(await self.pool.recall())
                self.clearances = await self.pool.clearance([t for t, r in self.books.records.items() if r.lease])

    async def run(
        self, *, publish: bool = False, each: Callable[[], Awaitable[None]] | None = None, at_end: list[Any] | None = None
    ) -> list[Batch]:
        """Take every batch; time passes as it is needed. `at_end` is given the recall of everything."""
        async with self.ticking():
            taken = []
            async with self.open(at_end) as loop:
                async for batch in loop.batches():
                    taken.append(batch)
                    if each is not None:
                        await each()
                    if publish:
                        await loop.publish(None)
            return taken

    @asynccontextmanager
    async def ticking(self, step_s: float = 0.5) -> AsyncIterator[None]:
        """Let time pass while the block runs."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.001)
                await self.clock.advance(step_s)

        task = asyncio.create_task(tick())
        try:
            yield
        finally:
            task.cancel()

    def slow(self, trajectory: str) -> asyncio.Event:
        """Let a trajectory's tool wait until the returned event is set."""
        release = asyncio.Event()

        async def wait(session: Any) -> None:
            if session.trajectory_id == trajectory:
                await release.wait()

        self.tool.wait = wait
        return release

    def journal(self) -> Contents:
        return read(self.home / "trajectories.jsonl")


@pytest.fixture
def bare() -> Callable[..., Trajectory]:
    """Makes a trajectory of what every one has; `task` is its group's name unless it is given."""

    def make(name: str, *, group: str, task: str = "", **more: Any) -> Trajectory:
        return Trajectory(
            id=name, run="run", group=group, member=0, attempt=0, environment="e", task=task or group, family="f", **more
        )

    return make


@pytest.fixture
def rolled(tmp_path: Path) -> Rollout:
    return Rollout(tmp_path)


@pytest.fixture
def make_rolled() -> Callable[[Path], Rollout]:
    """For tests that need one for each example."""
    return Rollout
