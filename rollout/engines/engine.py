"""What a rollout needs of a model engine: token ids in, token ids out, and which policy version made each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rollout.errors import TokenOutOfRange
from sandbox.model import NOTHING

STOP, LENGTH, ABORT = "stop", "length", "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn. `ids` is everything so far, token by token. Higher `priority` first. `labels` (task, member, turn) are for logs and
    for scripted engines: a model never sees them."""

    ids: tuple[int, ...]
    session: str
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None
    priority: int = 0
    labels: Mapping[str, str] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Tokens `start` to `end` of a completion came from policy `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What was generated. `logprobs` are those of the sampled distribution (after temperature), one a token. Seconds."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[VersionSpan, ...]
    finish: str = STOP
    cached_tokens: int | None = None
    queue_s: float = 0.0
    service_s: float = 0.0

    def version_of_each(self) -> tuple[int, ...]:
        """Return one version a token; raise ValueError when the spans do not cover the tokens exactly."""
        out: list[int] = []
        for span in self.versions:
            if span.start != len(out) or span.end < span.start:
                raise ValueError(f"version spans leave a gap at token {len(out)}: {self.versions}")
            out += [span.version] * (span.end - span.start)
        if len(out) != len(self.ids) or len(self.logprobs) != len(self.ids):
            raise ValueError(f"{len(self.ids)} tokens, {len(out)} versions, {len(self.logprobs)} logprobs")
        return tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """The engine now; None where it does not say."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None  # 0 to 1
    prefix_queries: int | None = None  # tokens since the start
    prefix_hits: int | None = None
    preemptions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """New weights in force. `changed` is None where the engine cannot show its checksums."""

    version: int
    seconds: float
    in_flight: int | None = None  # requests that went on across the change
    changed: bool | None = None


class Engine(Protocol):
    """Hold it with `async with`. `generate` is one request: cancelled, it is aborted in the engine. Deadlines are the caller's."""

    @property
    def name(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def version(self) -> int:
        """The policy version that generates now."""

    @property
    def context(self) -> int | None:
        """Tokens that a request may have with its answer; None where it does not say."""

    @property
    def in_force(self) -> Mapping[str, Any]:
        """What really runs: engine, model, device, versions."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def generate(self, request: Request) -> Completion:
        """Raise EngineLost when the engine cannot answer, TokenOutOfRange before a bad id goes in."""

    async def publish(self, weights: Path | None, version: int) -> PublishReport:
        """Bring new weights in while requests are in flight; raise EngineLost when they do not load (the old ones stay)."""

    async def load(self) -> EngineLoad: ...


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Raise TokenOutOfRange for an id outside the vocabulary: an engine that is given one may die with all its requests."""
    if not ids:
        raise TokenOutOfRange("a request without tokens", fix="a policy's `first` returns the prompt")
    low, high = min(ids), max(ids)
    if low < 0 or high >= vocab_size:
        raise TokenOutOfRange(
            f"token id {low if low < 0 else high} is outside the vocabulary of {vocab_size}",
            fix="give the policy the tokenizer of the model that the engine serves",
        )
