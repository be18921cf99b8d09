"""Chooses the next task by its score, keeps every family above its floor, and writes down why."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rollout.admission.score import Seen, Weights, terms
from sandbox.errors import EnvironmentInvalid, RecordMissing
from sandbox.model import TaskSpec

FLOOR, SCORE = "floor", "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice: the task, the sum, each term, whether the score or a family's floor decided, and who came next."""

    number: int
    task: str
    family: str
    version: int
    score: float
    terms: Mapping[str, float]
    by: str
    runner_up: str = ""
    runner_up_score: float | None = None


class Planner:
    """Deterministic: equal scores go by the task's place. A family is admitted at least once in `floor` decisions (0: twice the
    number of families); a floor that can hold is at least that number. `even`: no task comes again before every one has come, as a
    workload that is to be covered needs it; a family's floor holds among those that are left."""

    def __init__(
        self,
        tasks: Sequence[TaskSpec],
        *,
        weights: Weights | None = None,
        floor: int = 0,
        even: bool = False,
        log: Path | None = None,
    ) -> None:
        if not tasks:
            raise EnvironmentInvalid("there is no task to roll out", fix="choose a split or tasks that the environment has")
        self._tasks = list(tasks)
        self._weights = weights or Weights()
        self._families: dict[str, Seen] = {task.family: Seen() for task in tasks}
        self._since: dict[str, int] = dict.fromkeys(self._families, 0)
        self._seen: dict[str, Seen] = {task.id: Seen() for task in tasks}
        self._every = Seen()
        if floor and floor < len(self._families):
            raise EnvironmentInvalid(f"a floor of {floor} decisions cannot serve {len(self._families)} families")
        self.floor = floor or 2 * len(self._families)
        self._even = even
        self._log = log
        self._number = 0

    def choose(self, *, version: int, among: Collection[str] | None = None) -> tuple[TaskSpec, Decision]:
        """Return the task to look at next, of those in `among` where it is given; nothing is counted until `admitted`. A family's
        floor holds only for what is offered."""
        due = self._due()
        offered = [(index, task) for index, task in enumerate(self._tasks) if among is None or task.id in among]
        if self._even:
            least = min(self._seen[task.id].admitted for _, task in offered)
            offered = [(index, task) for index, task in offered if self._seen[task.id].admitted == least]
        ranked = sorted(
            ((self.score(task, version=version), index, task) for index, task in offered),
            key=lambda entry: (-sum(entry[0].values()), entry[1]),
        )
        eligible = [entry for entry in ranked if entry[2].family == due] or ranked
        if due is not None and eligible[0][2].family != due:
            due = None
        parts, _, task = eligible[0]
        after = next((entry for entry in ranked if entry[2] is not task), None)
        return task, Decision(
            number=self._number + 1,
            task=task.id,
            family=task.family,
            version=version,
            score=round(sum(parts.values()), 6),
            terms={name: round(value, 6) for name, value in parts.items()},
            by=SCORE if due is None else FLOOR,
            runner_up="" if after is None else after[2].id,
            runner_up_score=None if after is None else round(sum(after[0].values()), 6),
        )

    def score(self, task: TaskSpec, *, version: int) -> dict[str, float]:
        """Return the weighted terms of one task now."""
        return terms(
            self._seen[task.id],
            self._families[task.family],
            self._every,
            family_name=task.family,
            version=version,
            weights=self._weights,
        )

    def admitted(self, task: TaskSpec, decision: Decision) -> None:
        """Count the choice, let the others age, and write the decision down."""
        self._number += 1
        for seen in (self._seen[task.id], self._families[task.family], self._every):
            seen.admitted += 1
            seen.last_version = decision.version
        for other, seen in self._seen.items():
            seen.passed_by = 0 if other == task.id else seen.passed_by + 1
        for family in self._since:
            self._since[family] = 0 if family == task.family else self._since[family] + 1
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(decision), separators=(",", ":")) + "\n")

    def observed(self, task: str, family: str, *, success: bool | None, env_s: float) -> None:
        """Take in how a trajectory went; `success` None where it was not scored."""
        for seen in (self._seen[task], self._families[family], self._every):
            seen.finished += 1
            seen.env_s += env_s
            if success is not None:
                seen.scored += 1
                seen.failed += not success
                seen.last_failed = not success

    def _due(self) -> str | None:
        """Return the family that must come now so that every one keeps its floor, None where the score may decide.

        With F families, serving the oldest of those that waited `floor - F` decisions or longer leaves time for all of them.
        """
        waited = max(self._since.values())
        if waited < self.floor - len(self._since):
            return None
        return max(self._since, key=lambda family: self._since[family])


def decisions(path: Path, task: str) -> list[Decision]:
    """Return every decision about a task that was written down; raise RecordMissing where there is none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise RecordMissing(f"{path} is not there", fix="`autoclave rollout run` writes it") from None
    found = [Decision(**row) for row in map(json.loads, lines) if row["task"] == task]
    if not found:
        raise RecordMissing(f"this run admitted no task {task}", fix=f"the decisions are in {path}")
    return found
