"""The cycle: from selecting the first task of a batch until the policy that learned from it can be had. Split into five stages,
with what was served, what was waited for, which resources were held, and the chain of spans that set its length.

The chain is found from its end: the publication and the update before it, the batch, the group that became final last, in it the
trajectory that ended last, and before that whatever let it begin: one that left a place, or the update before, where that came
last. What no span covers is said as `between_s`, and not spread.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean
from typing import Any

from rollout.meters.events import Event
from rollout.meters.spans import History, Span, SpanKind, Stage, spans
from rollout.record import Trajectory

EDGE_S = 1e-9
LONGEST = 400  # trajectories of one chain; what lies before them is counted as between


@dataclass(slots=True, kw_only=True)
class Cycle:
    """One batch's cycle. Seconds; `path` in order."""

    batch: str
    selected: float
    available: float
    ends_with: str  # published, updated, or shipped (nobody learned from it)
    path: list[Span] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.available - self.selected

    @property
    def between_s(self) -> float:
        return self.seconds - sum(span.seconds for span in self.path)


def cycles(records: Mapping[str, Trajectory], events: Sequence[Event]) -> list[Cycle]:
    """Return the cycle of every batch that shipped."""
    history = History.of(events)
    chains = _Chains(records, history)
    return [cycle for batch in history.batches if (cycle := _cycle(batch, history, chains)) is not None]


def _cycle(batch: Event, history: History, chains: _Chains) -> Cycle | None:
    chosen = [history.selected[g] for g in batch["groups"] if g in history.selected]
    if not chosen:
        return None
    update = history.updates.get(batch["batch"])
    published = history.publication_of(update) if update else None
    end, how = batch["at"], "shipped"
    if update is not None:
        end, how = (update["at"], "updated") if published is None else (published["at"], "published")
    cycle = Cycle(batch=batch["batch"], selected=min(chosen), available=end, ends_with=how)
    late = _after(batch, update, published)
    cycle.path = [*chains.before(batch, cycle.selected), *late]
    return cycle


def _after(batch: Event, update: Event | None, published: Event | None) -> list[Span]:
    """From the batch on."""

    def span(kind: SpanKind, stage: Stage, what: str, start: float, end: float) -> Span:
        return Span(kind=kind, stage=stage, what=what, start=start, seconds=max(0.0, end - start), trajectory="")

    found = [span(SpanKind.STORAGE, Stage.ADVANTAGE, "advantages, and the batch is recorded", batch["began"], batch["at"])]
    if update is not None:
        found += [
            span(SpanKind.QUEUE, Stage.OPTIMISATION, "the trainer takes the batch", batch["at"], update["began"]),
            span(SpanKind.HANDOFF, Stage.OPTIMISATION, "the update", update["began"], update["at"]),
        ]
        if published is not None:
            found += [
                span(SpanKind.QUEUE, Stage.OPTIMISATION, "the update is recorded", update["at"], published["began"]),
                span(SpanKind.HANDOFF, Stage.OPTIMISATION, "the publication", published["began"], published["at"]),
            ]
    return [each for each in found if each.seconds > 0]


class _Chains:
    """Finds what a batch waited for."""

    def __init__(self, records: Mapping[str, Trajectory], history: History) -> None:
        self._records = records
        self._history = history
        self._spans: dict[str, list[Span]] = {}
        self._left = sorted((stored["at"], t) for t, stored in history.stored.items() if t in records)

    def before(self, batch: Event, begin: float) -> list[Span]:
        """The chain from `begin` to where the batch was cut, in order."""
        final = max((self._history.final[g], g) for g in batch["groups"] if g in self._history.final)
        waits = Span(
            kind=SpanKind.QUEUE,
            stage=Stage.ADVANTAGE,
            what="the trainer, or the rest of the batch",
            start=final[0],
            seconds=max(0.0, batch["began"] - final[0]),
            trajectory="",
        )
        path = list(_clipped([waits], begin, batch["began"]))
        members = [r for r in self._records.values() if r.group == final[1] and self._history.decided.get(r.id, begin) <= final[0]]
        last = max(members, key=lambda r: self._history.decided.get(r.id, begin), default=None)
        until, seen = final[0], set[str]()
        while last is not None and last.id not in seen and len(seen) < LONGEST:
            seen.add(last.id)
            path += self._own(last, begin, until)
            until = min(until, last.began)
            if until <= begin:
                break
            if (learned := self._learned_before(last, until)) is not None:
                update, published = _learned(self._history, learned)
                path += _clipped(_after(learned, update, published), begin, until)
                path += self.before(learned, begin) if learned["began"] > begin else []
                break
            last = self._let_begin(last, until)
        return sorted(path, key=lambda span: (span.start, span.end))

    def _own(self, record: Trajectory, begin: float, until: float) -> list[Span]:
        """Its spans between the two moments, cut where they overlap, so that no second counts twice."""
        if record.id not in self._spans:
            self._spans[record.id] = spans(record, self._history)
        return list(_clipped((s for s in self._spans[record.id] if s.dependency not in ("trainer", "ledger")), begin, until))

    def _learned_before(self, record: Trajectory, at: float) -> Event | None:
        """The batch whose update let this one begin, by the gap that may be: where it was over later than anybody left a place. Who
        runs again or was forked did not wait for it."""
        if record.attempt or record.parent:
            return None
        over: list[tuple[float, Event]] = []
        for batch in self._history.batches:
            update, published = _learned(self._history, batch)
            if update is not None and (end := (published or update)["at"]) <= at + EDGE_S:
                over.append((end, batch))
        end, learned = max(over, key=lambda row: row[0], default=(-inf, None))
        left = max((moment for moment, _ in self._left if moment <= at + EDGE_S), default=-inf)
        return learned if end > left else None

    def _let_begin(self, record: Trajectory, at: float) -> Trajectory | None:
        """What ended last before this one could begin: its own former attempt, the parent that it forked from, or whoever left a
        place just then."""
        parent = self._records.get(record.parent or "")
        if parent is not None and parent.began < at:
            return parent
        former = [r for r in self._records.values() if (r.group, r.member) == (record.group, record.member) and r.began < at]
        if former:
            return max(former, key=lambda r: r.began)
        left = [t for moment, t in self._left if moment <= at + EDGE_S]
        return self._records[left[-1]] if left else None


def _clipped(found: Iterable[Span], begin: float, until: float) -> Iterator[Span]:
    """What of the spans lies between the two moments, cut where they overlap."""
    at = begin
    for span in found:
        start, end = max(span.start, at), min(span.end, until)
        if end - start > EDGE_S:
            yield replace(span, start=start, seconds=end - start)
            at = end


def stages(records: Mapping[str, Trajectory], events: Sequence[Event]) -> dict[str, Any]:
    """The whole run by stage: elapsed on the critical paths, served and waited for over all trajectories, and what was held.

    `resource_s` is place-seconds: model slots for generation, sessions for the environment, judges for the reward, the writer for
    the advantage, the trainer for optimisation. Shares of the path and of the service stand side by side: a stage that computes
    little can set the length.
    """
    history, found = History.of(events), cycles(records, events)
    served, waited = defaultdict[Stage, float](float), defaultdict[Stage, float](float)
    for record in records.values():
        for span in spans(record, history):
            if span.waits or span.dependency not in ("trainer", "ledger"):  # what these do is done once for a batch: below
                (waited if span.waits else served)[span.stage] += span.seconds
    for batch in history.batches:
        for span in _after(batch, *_learned(history, batch)):
            (waited if span.waits else served)[span.stage] += span.seconds
    on_path, path_waits = defaultdict[Stage, float](float), defaultdict[Stage, float](float)
    for cycle in found:
        for span in cycle.path:
            on_path[span.stage] += span.seconds
            path_waits[span.stage] += span.seconds if span.waits else 0
    held = dict(served)
    held[Stage.ENVIRONMENT] = sum(_session_s(r) for r in records.values())
    whole, work = sum(c.seconds for c in found), sum(served.values())
    return {
        "cycles": len(found),
        "seconds": _spread([c.seconds for c in found]),
        "ends_with": dict(Counter(c.ends_with for c in found)),
        "between_s": round(sum(c.between_s for c in found), 4),
        "between_share": round(sum(c.between_s for c in found) / whole, 4) if whole else None,
        "dominant": max(on_path, key=lambda s: on_path[s]).value if on_path else None,
        "stages": {
            stage.value: {
                "elapsed_s": round(on_path[stage], 4),
                "queue_on_path_s": round(path_waits[stage], 4),
                "share_of_path": round(on_path[stage] / whole, 4) if whole else None,
                "service_s": round(served[stage], 4),
                "queue_s": round(waited[stage], 4),
                "share_of_service": round(served[stage] / work, 4) if work else None,
                "resource_s": round(held.get(stage, 0.0), 4),
            }
            for stage in Stage
        },
        "longest_on_path": _longest(found),
    }


def _learned(history: History, batch: Event) -> tuple[Event | None, Event | None]:
    update = history.updates.get(batch["batch"])
    return update, history.publication_of(update) if update else None


def _session_s(record: Trajectory) -> float:
    """How long it held its namespace."""
    if not record.lease:
        return 0.0
    before = record.session_queue_s + (record.timings.creation_s or 0.0)
    end = record.duration_s if record.teardown_at is None else record.teardown_at + (record.timings.teardown_s or 0.0)
    return max(0.0, end - before)


def _longest(found: Sequence[Cycle], most: int = 8) -> list[dict[str, Any]]:
    """What took longest on the critical paths, by what it was."""
    sums = defaultdict[tuple[Stage, SpanKind, str], float](float)
    for cycle in found:
        for span in cycle.path:
            what = "the policy's tokens" if span.kind is SpanKind.MODEL else span.what
            sums[span.stage, span.kind, what] += span.seconds
    return [
        {"stage": stage.value, "kind": kind.value, "what": what, "seconds": round(seconds, 4)}
        for (stage, kind, what), seconds in sorted(sums.items(), key=lambda row: -row[1])[:most]
    ]


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"mean": None, "least": None, "most": None}
    return {"mean": round(fmean(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}
