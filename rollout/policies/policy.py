"""What the loop needs of a policy's text side, and what it reads out of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.model import NOTHING, TaskSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model is told of it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = NOTHING

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(self.parameters.get("required", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call that the policy made."""

    tool: str
    arguments: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """An answer that acts; the calls run one after the other."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """An answer that wanted to act and cannot be read; `why` is told to the model."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """An answer without a call: the policy is done."""

    text: str = ""


Answer = Calls | Malformed | Final


class Policy(Protocol):
    """Maps a task, tool results and answers to and from token ids. It keeps nothing between calls."""

    @property
    def stop_ids(self) -> tuple[int, ...]: ...
    def first(self, task: TaskSpec, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        """Return the prompt, ready for the first answer."""

    def read(self, ids: Sequence[int], tools: Sequence[ToolSpec]) -> Answer:
        """Read an answer as it was generated."""

    def observe(self, answer: Sequence[int], results: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """Return what follows `answer`: its end where it was cut, the results (tool, text), and the opening of the next answer."""
