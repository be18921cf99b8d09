"""A trajectory while it runs: what was said so far, token by token, and how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rollout.admission.budgets import Budget, Spend
from rollout.engines.engine import Completion
from rollout.record import CONTEXT, Action, EnvTimings, Trajectory, Turn
from rollout.terms import FAILURE, Failure, Termination
from sandbox.model import Lease, Score, TaskSpec
from sandbox.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What one trajectory is to do. `priority` is its group's score; higher goes first."""

    id: str
    run: str
    group: str
    member: int
    attempt: int
    environment: str
    task: TaskSpec
    priority: int = 0
    seed: int | None = None
    purpose: str = "train"


@dataclass(slots=True, kw_only=True)
class Draft:
    """Filled by the runner; `freeze` makes the record."""

    ticket: Ticket
    clock: Clock
    budget: Budget
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    shared_prefix: int = 0
    shared_turns: int = 0
    session_queue_s: float = 0.0
    parent: str | None = None
    termination: Termination = Termination.FINAL
    failure: Failure = Failure.OK
    detail: str = ""
    scored: float | None = None
    success: bool | None = None
    score_detail: str = ""
    score_s: float = 0.0
    score_queue_s: float = 0.0
    score_at: float | None = None
    judge_tokens: int | None = None
    judge_agrees: bool | None = None
    teardown_at: float | None = None
    memory_peak_mb: float | None = None
    reward: float | None = None
    creation_s: float | None = None
    teardown_s: float | None = None
    tool_wait_s: float = 0.0
    planted: str = ""
    lease: Lease | None = None
    in_force: Mapping[str, Any] = field(default_factory=dict)
    began: float = 0.0
    started: str = ""

    def __post_init__(self) -> None:
        self.began, self.started = self.clock.monotonic(), self.clock.now().isoformat()

    @property
    def id(self) -> str:
        return self.ticket.id if self.lease is None else self.lease.trajectory

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self.clock.monotonic() - self.began

    @property
    def in_line_s(self) -> float:
        """Seconds of its own turns that it waited for a place: of the model, of a tool."""
        actions = (action.queue_s for action in self.actions if action.turn >= self.shared_turns)
        return sum(turn.queue_s for turn in self.turns[self.shared_turns :]) + sum(actions)

    def prompt(self, ids: Sequence[int]) -> None:
        """Add tokens that no policy generated."""
        self.tokens += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [CONTEXT] * len(ids)

    def answer(self, completion: Completion, versions: Sequence[int], *, queue_s: float, at: float = 0.0) -> None:
        """Add what was generated, as it was generated."""
        start = len(self.tokens)
        self.tokens += completion.ids
        self.mask += [1] * len(completion.ids)
        self.logprobs += completion.logprobs
        self.versions += versions
        self.turns.append(
            Turn(
                start=start,
                end=len(self.tokens),
                finish=completion.finish,
                queue_s=queue_s + completion.queue_s,
                service_s=completion.service_s,
                cached_tokens=completion.cached_tokens,
                at=at,
            )
        )

    def take_prefix(self, parent: Draft) -> None:
        """Begin where `parent` stands. What it generated is context here: the parent's record counts it, once."""
        self.tokens, self.logprobs, self.versions = list(parent.tokens), list(parent.logprobs), list(parent.versions)
        self.mask = [0] * len(parent.tokens)
        self.turns, self.actions = list(parent.turns), list(parent.actions)
        self.shared_prefix, self.shared_turns, self.parent = len(parent.tokens), len(parent.turns), parent.id

    def end(self, termination: Termination, detail: str = "", *, failure: Failure | None = None) -> None:
        self.termination, self.detail = termination, detail
        self.failure = FAILURE[termination] if failure is None else failure

    def judged(self, score: Score, reward: float | None, seconds: float) -> None:
        self.scored, self.success, self.score_detail = score.reward, score.success, score.detail
        self.reward, self.score_s = reward, seconds

    def freeze(self) -> Trajectory:
        ticket, lease = self.ticket, self.lease
        record = Trajectory(
            id=self.id,
            run=ticket.run,
            group=ticket.group,
            member=ticket.member,
            attempt=ticket.attempt,
            environment=ticket.environment,
            task=ticket.task.id,
            family=ticket.task.family,
            tokens=tuple(self.tokens),
            mask=tuple(self.mask),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            shared_prefix=self.shared_prefix,
            shared_turns=self.shared_turns,
            session_queue_s=self.session_queue_s,
            turns=tuple(self.turns),
            actions=tuple(self.actions),
            timings=self._timings(),
            parent=self.parent,
            scored=self.scored,
            reward=self.reward if self.failure.has_reward else None,
            success=self.success,
            score_detail=self.score_detail,
            score_s=self.score_s,
            score_queue_s=self.score_queue_s,
            score_at=self.score_at,
            judge_tokens=self.judge_tokens,
            judge_agrees=self.judge_agrees,
            termination=self.termination,
            failure=self.failure,
            detail=self.detail,
            planted=self.planted,
            retries=self.budget.spent[Spend.RETRY],
            alternatives=self.budget.spent[Spend.EXPLORE],
            extra={"purpose": ticket.purpose},
            started=self.started,
            began=self.began,
            teardown_at=self.teardown_at,
            memory_peak_mb=self.memory_peak_mb,
            duration_s=self.clock.monotonic() - self.began,
            model_s=sum(t.queue_s + t.service_s for t in self.turns[self.shared_turns :]),
            tool_wait_s=self.tool_wait_s,
        )
        if lease is None:
            return record
        return replace(
            record,
            environment_digest=lease.environment,
            start_digest=str(self.in_force.get("start_digest", "")),
            namespace=lease.namespace,
            lease=lease.sequence,
            generation=lease.generation,
            start_check=lease.start_check.check,
            parent=lease.parent or self.parent,
        )

    def _timings(self) -> EnvTimings:
        own = [action for action in self.actions if action.turn >= self.shared_turns]
        return EnvTimings(
            creation_s=self.creation_s,
            action_s=sum(a.action_s for a in own),
            observation_s=sum(a.observation_s for a in own),
            teardown_s=self.teardown_s,
        )
