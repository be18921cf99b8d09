"""One trajectory as it is kept: flat, frozen, aligned token by token. Every trainer's format is a projection of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rollout.terms import Failure, Termination
from sandbox.model import NOTHING

CONTEXT = -1  # the policy version of a token that no policy generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One tool call, or one attempt that could not be read as one (`malformed`). Seconds."""

    turn: int
    tool: str
    arguments: Mapping[str, Any] = NOTHING
    ok: bool = True
    malformed: bool = False
    timed_out: bool = False
    rate_limited: bool = False  # it, or a try before it, was refused for coming too often
    error: str = ""
    digest: str = ""  # of what was observed: two equal ones in a row show a loop
    queue_s: float = 0.0  # for the tool's place
    action_s: float = 0.0
    observation_s: float = 0.0  # turning what came back into tokens
    retries: int = 0
    at: float = 0.0  # when it got in line, from the trajectory's begin
    retried_at: tuple[float, ...] = ()  # when it was begun once more, after a fault of the tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the policy: `start` to `end` are its tokens' places in the flat record."""

    start: int
    end: int
    finish: str
    queue_s: float = 0.0  # for a model slot, and inside the engine where it says so
    service_s: float = 0.0
    cached_tokens: int | None = None
    at: float = 0.0  # when it got in line, from the trajectory's begin


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvTimings:
    """What the environment cost this trajectory, in seconds; None where nobody said."""

    creation_s: float | None = None  # from asking the pool to holding a verified session
    reset_s: float | None = None  # the reset that made its start state
    action_s: float = 0.0
    observation_s: float = 0.0
    teardown_s: float | None = None  # ending the session; the reset after it runs in the background


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """`tokens`, `mask`, `logprobs` and `versions` have one entry a token; `mask` is 1 where a loss may be taken.

    `scored` is what the task's own check gave; `reward` is what may be learned from: None after an infrastructure failure or
    contamination, never 0 for it.
    """

    id: str
    run: str
    group: str
    member: int
    attempt: int
    environment: str
    task: str
    family: str
    tokens: tuple[int, ...] = ()
    mask: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    shared_prefix: int = 0  # tokens that a fork has in common with its parent, which counts them
    shared_turns: int = 0  # and turns
    turns: tuple[Turn, ...] = ()
    actions: tuple[Action, ...] = ()
    timings: EnvTimings = EnvTimings()
    environment_digest: str = ""
    start_digest: str = ""
    namespace: str = ""
    lease: int = 0  # its number on the namespace
    generation: int = 0
    start_check: str = ""
    end_check: str = ""
    parent: str | None = None
    scored: float | None = None
    reward: float | None = None
    success: bool | None = None
    score_detail: str = ""
    score_s: float = 0.0
    score_queue_s: float = 0.0
    score_at: float | None = None  # when it got in line for the judge, from the begin
    judge_tokens: int | None = None  # of the prompt that the judge read; None for a judge without one
    judge_agrees: bool | None = None  # whether a second verdict was the same; None where none was asked for
    termination: Termination = Termination.FINAL
    failure: Failure = Failure.OK
    detail: str = ""
    clearance: str = "pending"
    clearance_reason: str = ""
    planted: str = ""  # what `--contaminate` made it leave behind
    retries: int = 0
    alternatives: int = 0
    started: str = ""
    began: float = 0.0  # on the clock of the run, so that trajectories can be laid beside each other
    teardown_at: float | None = None  # from the begin
    memory_peak_mb: float | None = None  # of its environment, before the score; None where nobody counts
    duration_s: float = 0.0
    session_queue_s: float = 0.0  # for a place among the sessions, before the pool was asked
    model_s: float = 0.0
    tool_wait_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(self.tokens), len(self.mask), len(self.logprobs), len(self.versions)}
        if len(lengths) > 1:
            raise ValueError(f"trajectory {self.id}: tokens, mask, logprobs and versions differ in length: {sorted(lengths)}")

    def without_tokens(self) -> Trajectory:
        """What a run keeps of it in memory: its tokens are in the journal."""
        return replace(self, tokens=(), mask=(), logprobs=(), versions=())

    @property
    def generated(self) -> int:
        """Tokens that its policy generated, those of a shared prefix not counted again."""
        return sum(turn.end - turn.start for turn in self.own_turns)

    @property
    def own_turns(self) -> tuple[Turn, ...]:
        """Its turns without those of a shared prefix."""
        return self.turns[self.shared_turns :]

    @property
    def own_actions(self) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if action.turn >= self.shared_turns)

    @property
    def oldest_version(self) -> int | None:
        """The oldest policy version among its own tokens; None where none was generated."""
        own = [v for v in self.versions[self.shared_prefix :] if v != CONTEXT] or [v for v in self.versions if v != CONTEXT]
        return min(own, default=None)

    @property
    def tools(self) -> frozenset[str]:
        return frozenset(action.tool for action in self.own_actions if not action.malformed)
