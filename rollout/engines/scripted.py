"""An engine without a model: a script says what is answered, how long it takes and what fails. For tests and demos."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rollout.admission.line import Line
from rollout.engines.engine import LENGTH, STOP, Completion, EngineLoad, PublishReport, Request, VersionSpan, check_ids
from rollout.errors import EngineLost
from rollout.policies.tokens import ByteTokenizer
from sandbox.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the script answers. `wait_s` passes before the answer; an `error` is raised in its place."""

    text: str
    wait_s: float = 0.0
    error: Exception | None = None


Script = Callable[[Request, str], Reply]


class ScriptedEngine:
    """Answers by `script(request, prompt text)`, one byte a token. Deterministic: the same request, the same answer.

    `slots` requests are served at once, higher priority first; `token_s` passes for each token. `die()` ends it, as an engine
    that crashed: every request from then on, and those in flight, raise EngineLost.
    """

    name = "scripted"

    def __init__(self, script: Script, *, clock: Clock, slots: int = 8, token_s: float = 0.0) -> None:
        self._script = script
        self._clock = clock
        self._tokenizer = ByteTokenizer()
        self._line = Line("scripted engine", limit=slots, waiting=100_000)
        self._token_s = token_s
        self._failures: deque[Exception] = deque()
        self._dead: asyncio.Event = asyncio.Event()
        self.version = 0
        self.context: int | None = None
        self.requests = 0

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {"engine": self.name, "model": "none: answers come from a script"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def die(self) -> None:
        self._dead.set()

    def fail_publishing(self, error: Exception) -> None:
        """Let the next publication fail."""
        self._failures.append(error)

    async def generate(self, request: Request) -> Completion:
        check_ids(request.ids, self.vocab_size)
        began = self._clock.monotonic()
        await self._line.acquire(request.priority)
        try:
            self._alive()
            self.requests += 1
            served = self._clock.monotonic()
            reply = self._script(request, self._tokenizer.decode(request.ids))
            ids, finish = self._tokens(reply.text, request)
            first = self.version
            await self._pass(reply.wait_s + self._token_s * len(ids))
            if reply.error is not None:
                raise reply.error
            return Completion(
                ids=ids,
                logprobs=tuple(_logprob(request, n) for n in range(len(ids))),
                versions=self._spans(first, len(ids)),
                finish=finish,
                queue_s=served - began,
                service_s=self._clock.monotonic() - served,
            )
        finally:
            self._line.release()

    async def publish(self, weights: Path | None, version: int) -> PublishReport:
        self._alive()
        if self._failures:
            raise self._failures.popleft()
        self.version = version
        return PublishReport(version=version, seconds=0.0, in_flight=self._line.held, changed=None)

    async def load(self) -> EngineLoad:
        return EngineLoad(running=self._line.held, waiting=self._line.waiting)

    def _tokens(self, text: str, request: Request) -> tuple[tuple[int, ...], str]:
        ids = (*self._tokenizer.encode(text), self._tokenizer.stop_ids[0])
        return (ids, STOP) if len(ids) <= request.max_tokens else (ids[: request.max_tokens], LENGTH)

    def _spans(self, first: int, count: int) -> tuple[VersionSpan, ...]:
        """A version that came in the middle made the second half."""
        if self.version == first or count < 2:
            return (VersionSpan(version=first, start=0, end=count),)
        half = count // 2
        return (VersionSpan(version=first, start=0, end=half), VersionSpan(version=self.version, start=half, end=count))

    def _alive(self) -> None:
        if self._dead.is_set():
            raise EngineLost("the scripted engine died")

    async def _pass(self, seconds: float) -> None:
        """Let the time of the answer pass, or end at once when the engine dies."""
        if seconds <= 0:
            await asyncio.sleep(0)
            self._alive()
            return
        sleep, death = asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._dead.wait())
        try:
            await asyncio.wait({sleep, death}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            death.cancel()
        self._alive()


def _logprob(request: Request, position: int) -> float:
    """A plausible number that depends on the request only."""
    digest = hashlib.blake2b(f"{request.session}/{request.labels.get('turn')}/{position}".encode(), digest_size=2).digest()
    return -(1 + int.from_bytes(digest, "big")) / 65536


def create(machinery: Any) -> tuple[ScriptedEngine, ByteTokenizer]:
    """Make the engine of `--engine scripted`: the scripted agents of the shipped environments."""
    from rollout.engines.scripts import play

    options = machinery.options
    script = play(machinery.environment, seed=options.seed)
    return ScriptedEngine(script, clock=machinery.clock, slots=options.slots), ByteTokenizer()
