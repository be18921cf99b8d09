"""A study as its author writes it: a TOML file. What changes from the base is a factor; one at a time, unless it is `combined`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResetMethod

Denominator = Literal["held-out tasks solved", "informative groups"]
LEAST_TASKS, LEAST_SEEDS, LEAST_CONFIGURATIONS = 200, 3, 2


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Factors(_Strict):
    """What a configuration may set. `check_every` is the cadence of deep checks, `max_gap` the depth of asynchrony."""

    group_size: int = Field(default=2, ge=1)
    max_gap: int = Field(default=1, ge=0)
    reset: ResetMethod = ResetMethod.RESTORE
    check_every: int = Field(default=20, ge=1)
    select: bool = False
    batch_groups: int = Field(default=2, ge=1)
    completeness: float = Field(default=1.0, gt=0, le=1)
    mode: Literal["gated", "optimistic"] = "gated"
    size: int = Field(default=4, ge=1)
    slots: int = Field(default=8, ge=1)
    turns: int = Field(default=12, ge=1)
    answer_tokens: int = Field(default=0, ge=0)
    total_tokens: int = Field(default=0, ge=0)
    engine: Literal["scripted", "http", "vllm"] = "scripted"
    model: str = ""
    url: str = ""
    learner: Literal["none", "stepping", "grpo"] = "stepping"
    learning_rate: float = Field(default=1e-5, gt=0)


class Configuration(_Strict):
    """One row of the table: its name and what differs from the base."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    change: dict[str, Any] = Field(default_factory=dict)
    combined: bool = False


class StudyPlan(_Strict):
    """`target` is the success rate on the held-out set that a configuration must reach before its cost counts. A run takes
    `tasks_per_run` of the training tasks, another stretch of one fixed shuffle for each seed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    owner: str = ""
    environment: str = "shop"
    denominator: Denominator | None = None
    target: float | None = Field(default=None, ge=0, le=1)
    seeds: tuple[int, ...] = (0, 1, 2)
    tasks_per_run: int = Field(default=70, ge=1)
    held_out_tasks: int = Field(default=0, ge=0)  # evaluated after each run, drawn uniformly; 0: all
    base: Factors = Factors()
    configurations: tuple[Configuration, ...] = ()

    @field_validator("configurations")
    @classmethod
    def _known(cls, given: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
        for each in given:
            if unknown := sorted(set(each.change) - set(Factors.model_fields)):
                raise ValueError(f"configuration {each.name}: there is no factor {', '.join(unknown)}")
        if len({each.name for each in given}) != len(given):
            raise ValueError("two configurations have one name")
        return given

    @model_validator(mode="after")
    def _possible(self) -> StudyPlan:
        for each in self.configurations:
            try:
                self.factors(each)
            except ValidationError as error:
                problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
                raise ValueError(f"configuration {each.name}: {problems}") from error
        return self

    def factors(self, configuration: Configuration) -> Factors:
        """The base with the configuration's changes."""
        return Factors.model_validate(self.base.model_dump() | configuration.change)

    def changed(self, configuration: Configuration) -> tuple[str, ...]:
        """The factors in which it differs from the base."""
        own, base = self.factors(configuration).model_dump(), self.base.model_dump()
        return tuple(name for name in own if own[name] != base[name])

    def planned(self, configuration: Configuration) -> dict[str, Any]:
        """What a run of a configuration depends on; a run that was planned otherwise is no result of this plan."""
        own = {"environment": self.environment, "tasks_per_run": self.tasks_per_run, "held_out_tasks": self.held_out_tasks}
        return own | self.factors(configuration).model_dump(mode="json")


def read(path: Path) -> StudyPlan:
    """Read a study's file; raise EnvironmentInvalid with every problem."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise EnvironmentInvalid(
            f"the study {path} cannot be read: {error}", fix="write a TOML file like docs/studies/shop.toml"
        ) from error
    try:
        return StudyPlan.model_validate(data)
    except ValidationError as error:
        problems = tuple(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise EnvironmentInvalid(f"the study {path} is not one: {'; '.join(problems)}", problems=problems) from error
