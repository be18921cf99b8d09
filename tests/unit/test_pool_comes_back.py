"""Whatever fails, and however often: once it stops failing, the pool is at its size again within a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.errors import AutoclaveError, InstanceLost, LimitReached
from sandbox.lifecycle import State
from sandbox.model import CheckPolicy, Depth, ResetMethod, ResetPolicy, TaskSpec
from sandbox.testing import memory_environment

RUNTIME = ("start", "derive", "snapshot", "restore", "reset_in_place", "revoke", "close", "run")
LEDGER = (
    "create_namespace",
    "transition",
    "lease",
    "end_lease",
    "begin_reset",
    "end_reset",
    "record_check",
    "pending",
    "abandon",
    "fork_check",
    "save_snapshot",
    "save_baseline",
)
POLICIES = {
    "restore": ResetPolicy(),
    "hook": ResetPolicy(method=ResetMethod.HOOK, hook=("reset",), restore_every=3),
    "clean": ResetPolicy(method=ResetMethod.CLEAN, max_resets=2),
    "aged": ResetPolicy(max_age_s=20.0),
}
OWN = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"orders": "9"}})
BACK_S = 120.0  # the breaker's pause, the longest back-off of a duty, and some rounds

failures = st.tuples(
    st.sampled_from([*(("runtime", step) for step in RUNTIME), *(("ledger", step) for step in LEDGER)]), st.integers(1, 5)
)
steps = st.one_of(
    failures.map(lambda f: ("fail", f)),
    st.sampled_from(["use", "dirty", "task", "fork"]).map(lambda how: ("use", how)),
    st.sampled_from([1.0, 36.0]).map(lambda seconds: ("wait", seconds)),
)


async def settle(bench: Any, seconds: float) -> None:
    """Move time on in small steps, each followed by all that it sets off."""
    for _ in range(max(1, round(seconds / 6))):
        await bench.clock.advance(6.0)
        await bench.quiet()


async def use(pool: Any, name: str, how: str) -> None:
    with contextlib.suppress(AutoclaveError, OSError):
        async with pool.session(name, wait=0, task="own" if how == "task" else None) as session:
            await session.run(["set", "orders", "4"])
            if how == "fork":
                async with await session.fork(await session.snapshot(), wait=0.05) as child:
                    await child.run(["set", "orders", "5"])
            if how == "dirty":
                await session.run(["die"])


async def story(bench: Any, policy: str, size: int, script: list[tuple[str, Any]]) -> None:
    deep = CheckPolicy(deep_every=2, required_depth=Depth.DEEP, max_ready_age_s=25.0)
    environment = memory_environment(policy, reset=POLICIES[policy], check=deep, tasks=[OWN])
    pool = await bench.open(environment, size=size)
    await bench.quiet()
    for what, value in script:
        if what == "fail":
            (where, step), times = value
            if where == "runtime":
                bench.runtime.faults.fail(step, InstanceLost(f"{step} fails"), times=times)
            else:
                bench.disk.fail(step, LimitReached(f"no room for {step}"), times=times)
        elif what == "wait":
            await settle(bench, value)
        else:
            await use(pool, policy, value)
            await bench.quiet()
    for step in RUNTIME:
        bench.runtime.faults.mend(step)
    for step in LEDGER:
        bench.disk.mend(step)
    await settle(bench, BACK_S)
    prepared = pool.environment(policy)
    assert (len(prepared.members), prepared.creating, prepared.leased) == (size, 0, 0)
    assert {n.state for n in prepared.members.values()} == {State.READY}
    assert len(list(prepared.ready())) == size
    running = {instance.namespace for instance in bench.machine.running}
    assert running >= set(prepared.members)
    if not any(what == "fail" and value[0] == ("runtime", "close") for what, value in script):
        assert running == set(prepared.members)  # one that does not close is left to the next sweep
    sessions = [await pool.acquire(policy, wait=30) for _ in range(size)]  # one that holds a task's start state is made to fit
    for session in sessions:
        assert (await session.run(["get", "orders"])).text == "3"
        await session.release()
    await bench.quiet()
    assert not pool._leasing.unfinished


def run_story(make_bench: Callable[[Path], Any], policy: str, size: int, script: list[tuple[str, Any]]) -> None:
    async def told() -> None:
        with tempfile.TemporaryDirectory(prefix="ac-back-") as home:
            bench = make_bench(Path(home))
            try:
                await story(bench, policy, size, script)
            finally:
                await bench.close()

    asyncio.run(told())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(policy=st.sampled_from(sorted(POLICIES)), size=st.integers(1, 2), script=st.lists(steps, max_size=10))
def test_after_any_failures_the_pool_comes_back(
    make_bench: Callable[[Path], Any], policy: str, size: int, script: list[tuple[str, Any]]
) -> None:
    run_story(make_bench, policy, size, script)


@pytest.mark.parametrize("where", [*(("runtime", step) for step in RUNTIME), *(("ledger", step) for step in LEDGER)], ids=str)
@pytest.mark.parametrize(("policy", "how"), [("restore", "fork"), ("hook", "task"), ("clean", "dirty"), ("aged", "use")])
def test_each_step_may_fail(make_bench: Callable[[Path], Any], policy: str, how: str, where: tuple[str, str]) -> None:
    script = [("use", "use"), ("fail", (where, 2)), ("use", "dirty"), ("wait", 6.0), ("use", how), ("wait", 36.0)]
    run_story(make_bench, policy, 1, script)
