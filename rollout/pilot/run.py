"""Puts a pilot together: the parts of a run, slowed where asked; and the loop again and again, one limit apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rollout.pilot.change import LIMITS, Bearable, Measured, keep_change, measured
from rollout.pilot.load import load
from rollout.pilot.real import Rollouts
from rollout.pilot.slowed import slow_tools, slowed
from rollout.run import prepare
from rollout.setup import Options, books_of, parts_of
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid


async def pilot_load(
    options: Options,
    *,
    pool: Any,
    environment: Any,
    home: Path,
    rates: Sequence[float],
    hold_s: float,
    slow: Mapping[str, float],
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the load pilot over an open pool; its trajectories lie in a run's folder."""
    clock = SystemClock()
    prepared = prepare(options, environment=environment, home=home, clock=clock)
    books = books_of(prepared.plan, environment, options, folder=prepared.folder, clock=clock)
    async with prepared.engine, books.journal:
        parts = parts_of(
            prepared.plan,
            options,
            pool=pool,
            environment=environment,
            engine=prepared.engine,
            tokenizer=prepared.tokenizer,
            clock=clock,
            change_tools=lambda tools: slow_tools(tools, slow, clock),
            line=1000,
        )
        found = await load(Rollouts(books, slowed(parts, slow)), rates=rates, hold_s=hold_s, clock=clock, say=say)
    return {"run": prepared.plan.run, "slow": dict(slow), **found, "journal": str(books.journal.path)}


def changes_of(given: Sequence[str]) -> list[dict[str, int]]:
    """Read `size=4` and the like."""
    found = []
    for each in given:
        name, _, number = each.partition("=")
        if name not in LIMITS or not number.isdigit() or int(number) < 1:
            raise EnvironmentInvalid(f"--change {each!r}", fix=f"write LIMIT=N with one of {', '.join(LIMITS)}")
        found.append({name: int(number)})
    return found


def apply(options: Options, limits: Mapping[str, int]) -> Options:
    return replace(options, **limits)  # type: ignore[arg-type]


async def pilot_loop(
    once: Callable[[dict[str, int]], Awaitable[dict[str, Any]]],
    *,
    options: Options,
    changes: Sequence[dict[str, int]],
    bearable: Bearable,
) -> dict[str, Any]:
    """Run the loop as given, then with each change on top of what was kept."""
    kept: dict[str, int] = {}
    before = await _measure(once, options, kept)
    runs, decisions = [before], []
    for change in changes:
        after = await _measure(once, options, kept | change)
        decision = keep_change(before[1], after[1], bearable)
        runs.append(after)
        decisions.append(decision)
        if decision["keep"]:
            kept, before = kept | change, after
    return {
        "runs": [{"run": name, **asdict(figures)} for name, figures in runs],
        "decisions": decisions,
        "limits": dict(before[1].limits),
    }


async def _measure(
    once: Callable[[dict[str, int]], Awaitable[dict[str, Any]]], options: Options, change: dict[str, int]
) -> tuple[str, Measured]:
    summary = await once(dict(change))
    limits = {name: int(getattr(options, name)) for name in LIMITS} | change
    return summary["run"], measured(summary, limits)
