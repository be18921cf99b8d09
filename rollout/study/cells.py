"""What one configuration came to under one seed, written down so that a study can go on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandbox.errors import RecordMissing

PLAN, MACHINE, CELLS = "plan.json", "environment.json", "cells"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Figures of one training run and the evaluation after it; `run` and `evaluation` name the runs whose records they are from.

    `planned` is what the plan said of this cell when it was run, `machine` what it was run on. `evaluated_on` are the held-out
    tasks that were to be judged; those in `unjudged` came to no verdict, and count as not solved.
    """

    configuration: str
    seed: int
    run: str
    evaluation: str
    trained_on: tuple[str, ...]  # tasks, selection's scouts included
    evaluated_on: tuple[str, ...]
    wall_s: float
    gpu_hours: float | None  # None: no GPU was held
    peak_memory_mb: float | None
    energy_kwh: float | None
    energy_how: str
    accepted: int
    informative_groups: int  # of those that an update took
    solved: int  # held-out tasks
    stale_share: float | None
    contaminated: int  # in both runs
    dominant: str | None
    device_peak_mb: float | None = None  # in use on the fullest GPU
    memory_of: tuple[str, ...] = ()  # the categories that `peak_memory_mb` is the sum of
    unjudged: tuple[str, ...] = ()
    stopped: str = ""  # why one of the two runs ended early
    planned: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    in_force: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quality(self) -> float:
        """The success rate on the held-out set."""
        return self.solved / len(self.evaluated_on) if self.evaluated_on else 0.0


def write(folder: Path, cell: Cell) -> None:
    (folder / CELLS).mkdir(parents=True, exist_ok=True)
    path = folder / CELLS / f"{cell.configuration}.{cell.seed}.json"
    path.write_text(json.dumps(asdict(cell), indent=1, default=str), encoding="utf-8")


def read(folder: Path) -> list[Cell]:
    """Every cell of a study; RecordMissing where it has none."""
    paths = sorted((folder / CELLS).glob("*.json"))
    if not paths:
        raise RecordMissing(f"no run of a study lies in {folder}", fix="`autoclave rollout study run FILE` makes them")
    found = []
    for path in paths:
        row = json.loads(path.read_text("utf-8"))
        tuples = {name: tuple(row.get(name, ())) for name in ("trained_on", "evaluated_on", "memory_of", "unjudged")}
        found.append(Cell(**{**row, **tuples}))
    return found
