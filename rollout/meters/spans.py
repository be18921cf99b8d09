"""One trajectory as spans of seven kinds, in the order in which they happened. Pure: records and events in, spans out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

from rollout.meters.events import Event
from rollout.record import CONTEXT, Action, Trajectory


class SpanKind(StrEnum):
    QUEUE = "queue"
    MODEL = "model_call"
    TOOL = "tool_call"  # and what else the environment does for it: ending the session
    RETRY = "retry"
    REWARD = "reward_calculation"
    STORAGE = "storage_write"
    HANDOFF = "policy_version_handoff"


class Stage(StrEnum):
    """The five stages of a cycle."""

    GENERATION = "generation"
    ENVIRONMENT = "environment"  # sessions, actions, ending, and the check that clears what it did
    REWARD = "reward"
    ADVANTAGE = "advantage"  # from the record to the batch: the journal, the wait for the batch, the advantages, shipping
    OPTIMISATION = "optimisation"  # the update and its publication


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`start` is on the run's clock, seconds. `dependency` names what it waits for or uses."""

    kind: SpanKind
    stage: Stage
    what: str
    start: float
    seconds: float
    trajectory: str
    dependency: str = ""

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def waits(self) -> bool:
        """True for a wait; what is measured in a span that does not wait is service."""
        return self.kind is SpanKind.QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The events of one run by what they are about, looked up once."""

    selected: Mapping[str, float]  # groups, when they were chosen
    final: Mapping[str, float]  # groups, when every member had ended
    stored: Mapping[str, Event]  # trajectories
    decided: Mapping[str, float]  # trajectories: cleared, or given up
    batches: Sequence[Event]
    updates: Mapping[str, Event]  # by batch
    published: Sequence[Event]

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        found: dict[str, list[Event]] = {}
        for event in events:
            found.setdefault(event["kind"], []).append(event)
        return cls(
            selected={e["group"]: e["at"] for e in found.get("select", ())},
            final={e["group"]: e["at"] for e in found.get("final", ())},
            stored={e["trajectory"]: e for e in found.get("stored", ())},
            decided={e["trajectory"]: e["at"] for e in found.get("member", ())},
            batches=found.get("batch", []),
            updates={e["batch"]: e for e in found.get("update", ())},
            published=found.get("published", []),
        )

    def publication_of(self, update: Event) -> Event | None:
        """The publication of what an update made; None where none followed."""
        if not update["publish"]:
            return None
        return next((p for p in self.published if p["began"] >= update["at"] - 1e-9), None)

    def batch_of(self, trajectory: str) -> Event | None:
        return next((b for b in self.batches if trajectory in b["trajectories"]), None)


def spans(record: Trajectory, history: History) -> list[Span]:
    """Every span of one trajectory, from its admission until the policy that learned from it could be had."""
    out: list[Span] = []
    began = record.began

    def add(kind: SpanKind, stage: Stage, what: str, start: float, seconds: float, dependency: str = "") -> None:
        if seconds > 0 or kind in (SpanKind.HANDOFF, SpanKind.RETRY):
            span = Span(
                kind=kind, stage=stage, what=what, start=start, seconds=seconds, trajectory=record.id, dependency=dependency
            )
            out.append(span)

    if record.attempt:
        add(SpanKind.RETRY, Stage.ENVIRONMENT, f"attempt {record.attempt + 1}, in a fresh lease", began, 0.0)
    add(SpanKind.QUEUE, Stage.ENVIRONMENT, "a place among the sessions", began, record.session_queue_s, "session")
    waited = record.timings.creation_s or 0.0
    add(SpanKind.QUEUE, Stage.ENVIRONMENT, "a verified namespace", began + record.session_queue_s, waited, "pool")
    version: int | None = None
    for turn in record.own_turns:
        start = began + turn.at
        add(SpanKind.QUEUE, Stage.GENERATION, "a model slot", start, turn.queue_s, "model")
        add(SpanKind.MODEL, Stage.GENERATION, f"{turn.end - turn.start} tokens", start + turn.queue_s, turn.service_s, "model")
        for made_by in (v for v in record.versions[turn.start : turn.end] if v != CONTEXT):
            if version is not None and made_by != version:
                add(SpanKind.HANDOFF, Stage.GENERATION, f"from policy {version} to {made_by}", start + turn.queue_s, 0.0, "model")
            version = made_by
    for action in record.own_actions:
        _act(add, began, action)
    if record.score_at is not None:
        start = began + record.score_at
        add(SpanKind.QUEUE, Stage.REWARD, "the judge", start, record.score_queue_s, "judge")
        add(SpanKind.REWARD, Stage.REWARD, "the score", start + record.score_queue_s, record.score_s, "judge")
    if record.teardown_at is not None:
        add(
            SpanKind.TOOL,
            Stage.ENVIRONMENT,
            "the session ends",
            began + record.teardown_at,
            record.timings.teardown_s or 0.0,
            "pool",
        )
    _afterwards(add, record, history)
    return sorted(out, key=lambda span: (span.start, span.end))


def union_s(stretches: Iterable[tuple[float, float]], *, since: float = -inf, until: float = inf) -> float:
    """Return the seconds between two moments in which at least one stretch (its begin, its seconds) lies."""
    total, end = 0.0, since
    for start, seconds in sorted(stretches):
        stop = min(start + seconds, until)
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _act(add: _Add, began: float, action: Action) -> None:
    start = began + action.at
    if action.malformed:
        add(SpanKind.TOOL, Stage.ENVIRONMENT, "an unreadable answer is told so", start, action.observation_s, "policy")
        return
    place = f"tool:{action.tool}"
    add(SpanKind.QUEUE, Stage.ENVIRONMENT, f"a place for {action.tool}", start, action.queue_s, place)
    add(SpanKind.TOOL, Stage.ENVIRONMENT, action.tool, start + action.queue_s, action.action_s + action.observation_s, place)
    for again in action.retried_at:
        add(SpanKind.RETRY, Stage.ENVIRONMENT, f"{action.tool} once more", began + again, 0.0, place)


def _afterwards(add: _Add, record: Trajectory, history: History) -> None:
    """What happens to it when its own work is over."""
    stored, decided = history.stored.get(record.id), history.decided.get(record.id)
    if stored is not None:
        add(SpanKind.QUEUE, Stage.ADVANTAGE, "the journal", stored["began"] - stored["queue_s"], stored["queue_s"], "storage")
        add(SpanKind.STORAGE, Stage.ADVANTAGE, "the record, fsynced", stored["began"], stored["at"] - stored["began"], "storage")
        if decided is not None:
            add(SpanKind.QUEUE, Stage.ENVIRONMENT, "the check after it", stored["at"], decided - stored["at"], "pool")
    batch = history.batch_of(record.id)
    if batch is None:
        return
    ready = max([history.final.get(record.group, batch["began"]), decided or 0.0])
    add(SpanKind.QUEUE, Stage.ADVANTAGE, "its batch", ready, batch["began"] - ready, "trainer")
    add(SpanKind.STORAGE, Stage.ADVANTAGE, "the batch is recorded", batch["began"], batch["at"] - batch["began"], "ledger")
    if (update := history.updates.get(batch["batch"])) is None:
        add(SpanKind.HANDOFF, Stage.OPTIMISATION, f"handed out at policy {batch['version']}", batch["at"], 0.0, "trainer")
        return
    published = history.publication_of(update)
    end = update["at"] if published is None else published["at"]
    to = f"to policy {published['version']}" if published else "without a new policy"
    add(
        SpanKind.HANDOFF,
        Stage.OPTIMISATION,
        f"from policy {batch['version']} {to}",
        update["began"],
        end - update["began"],
        "trainer",
    )


class _Add(Protocol):
    """The shape of `add` above."""

    def __call__(self, kind: SpanKind, stage: Stage, what: str, start: float, seconds: float, dependency: str = "") -> None: ...
