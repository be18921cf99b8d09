"""The audit: every reference is done in a clean world of its own and judged by the task's own check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rollout.engines.scripted import ScriptedEngine
from rollout.journal import Contents, read
from rollout.meters.cost import USED
from rollout.references.reference import References, replay
from rollout.run import play, prepare
from rollout.setup import Options
from sandbox.model import TaskSpec
from sandbox.ports import Clock


class Finding(StrEnum):
    """What became of a task's reference. `undecided`: the machine failed, or the world was contaminated by it."""

    RIGHT = "right"
    WRONG = "wrong"
    UNAVAILABLE = "unavailable"
    UNDECIDED = "undecided"


async def audit(
    references: References, tasks: Sequence[TaskSpec], options: Options, *, pool: Any, environment: Any, home: Path, clock: Clock
) -> dict[str, Any]:
    """Do every reference once, and return the audit. `options` say how many at once; its records lie in a run's folder."""
    there = tuple(task.id for task in tasks if references.get(task.id))
    done, run = Contents(), None
    if there:
        chosen = replace(
            options,
            engine="scripted",
            tasks=there,
            trajectories=len(there),
            group_size=1,
            batch_groups=1,
            even=True,
            keep_flat=True,
            turns=max(len(references[name]) for name in there) + 1,
        )
        prepared = prepare(chosen, environment=environment, home=home, clock=clock)
        engine = ScriptedEngine(replay(references), clock=clock, slots=options.slots)
        summary = await play(replace(prepared, engine=engine), pool=pool, environment=environment)
        done, run = read(Path(summary["journal"])), summary["run"]
    return {"run": run, **findings(references, tasks, done)}


def findings(references: References, tasks: Sequence[TaskSpec], done: Contents) -> dict[str, Any]:
    """Return what became of each task's reference, and how that is spread over families and difficulties: where references lack,
    credit that they guide is not given alike."""
    rows = [_row(task, bool(references.get(task.id)), done) for task in tasks]
    return {
        "tasks": len(rows),
        "counts": _counts(rows),
        "by_family": {name: _counts([r for r in rows if r["family"] == name]) for name in sorted({r["family"] for r in rows})},
        "by_difficulty": {
            name: _counts([r for r in rows if r["difficulty"] == name]) for name in dict.fromkeys(r["difficulty"] for r in rows)
        },
        "to_look_at": [row for row in rows if row["finding"] != Finding.RIGHT],
    }


def _row(task: TaskSpec, there: bool, done: Contents) -> dict[str, Any]:
    finding, why = Finding.UNAVAILABLE, "there is none"
    own = [r for r in done.trajectories.values() if r.task == task.id]
    if there:
        sound = [r for r in own if (o := done.outcomes.get(r.id)) is not None and o.state in USED]
        if not sound:
            last = done.outcomes.get(own[-1].id) if own else None
            finding, why = Finding.UNDECIDED, last.reason if last else "it was not run"
        elif all(r.success for r in sound):
            finding, why = Finding.RIGHT, ""
        else:
            errors = [a.error for r in sound for a in r.actions if a.error]
            finding, why = Finding.WRONG, "; ".join(filter(None, (sound[-1].score_detail, *errors)))[:300]
    return {"task": task.id, "family": task.family, "difficulty": task.difficulty, "finding": finding.value, "why": why}


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found = Counter(row["finding"] for row in rows)
    return {finding.value: found[finding.value] for finding in Finding}
