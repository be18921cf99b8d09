"""A `vllm serve` process, or any server with OpenAI-compatible completions that gives token ids back.

vLLM's own token interface (`/inference/v1/generate`) is used where the server has it: ids in, ids, logprobs and version spans out.
Otherwise `/v1/completions` with `return_token_ids`. A server that gives no ids is refused: what it generated would have to be
tokenised again. Start it with `--logprobs-mode processed_logprobs`, else its logprobs are those before temperature.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rollout.engines.engine import ABORT, LENGTH, STOP, Completion, EngineLoad, PublishReport, Request, VersionSpan, check_ids
from rollout.engines.wire import Answer, Wire
from rollout.errors import EngineLost, RequestInvalid
from rollout.policies.tokens import ModelTokenizer, Tokenizer
from sandbox.aio import run_shielded
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock

KEY = "AUTOCLAVE_ENGINE_KEY"
ASK_S, PUBLISH_S = 60.0, 600.0  # of a question about the server itself; of each step of a publication
NATIVE, OPENAI = "/inference/v1/generate", "/v1/completions"
_FINISH = {"stop": STOP, "length": LENGTH, "abort": ABORT, None: ABORT}
_ABSENT = (403, 404, 405)  # a vLLM without --enable-scale-out forbids its token interface
_DEV = "start the server with VLLM_SERVER_DEV_MODE=1, bound to loopback"
_METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:num_preemptions_total": "preemptions",
}


class HttpEngine:
    """`vocab_size` is the model's, as its tokenizer has it. With `priorities` the server must run priority scheduling."""

    name = "http"

    def __init__(
        self, url: str, *, vocab_size: int, clock: Clock, model: str = "", key: str = "", priorities: bool = False
    ) -> None:
        self._clock = clock
        self._wire = Wire(url, key=key)
        self._model = model
        self._priorities = priorities
        self._native = True
        self._served = False  # by the token interface, so that it is there
        self._weights = ""  # where the server has those in force from, as it names the place
        self._broken = ""
        self._known: dict[str, int] = {}  # the server's own names of versions
        self.vocab_size = vocab_size
        self.version = 0
        self.context: int | None = None

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {
            "engine": self.name,
            "server": self._wire.base,
            "model": self._model,
            "interface": NATIVE if self._native else OPENAI,
            "logprobs": "as the server gives them",
            "seeds": "of the server",  # a vLLM 0.32 on a CPU dies of a seeded request whose prompt it takes in pieces
            "context": self.context,
            "weights": self._weights,
        }

    async def __aenter__(self) -> Self:
        """Find the served model; raise EngineLost when the server does not answer."""
        answer = _good(await self._wire.ask("GET", "/v1/models", limit_s=ASK_S), "/v1/models")
        served = {model["id"]: model for model in answer.json().get("data", [])}
        if self._model and self._model not in served:
            raise EnvironmentInvalid(f"{self._wire.base} does not serve {self._model!r}", fix=f"it serves: {', '.join(served)}")
        self._model = self._model or next(iter(served), "")
        told = served.get(self._model, {})
        self.context, self._weights = told.get("max_model_len"), told.get("root") or ""
        info = await self._wire.ask("GET", "/weight_info", limit_s=ASK_S)
        if info.status == 200:
            self._known[str(info.json().get("weight_version"))] = self.version
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    async def generate(self, request: Request) -> Completion:
        check_ids(request.ids, self.vocab_size)
        if self._broken:
            raise EngineLost(self._broken)
        began, first = self._clock.monotonic(), self.version
        answer, native = await self._answer(request)
        choice = _good(answer, NATIVE if native else OPENAI).json()["choices"][0]
        ids = tuple(choice.get("token_ids") or ())
        logprobs = _native_logprobs(choice) if native else _openai_logprobs(choice)
        if not ids or len(logprobs) != len(ids):
            raise EngineLost(
                f"{self._wire.base} gave {len(ids)} token ids and {len(logprobs)} logprobs",
                fix="use a vllm serve that knows `return_token_ids`; what a model generated is never tokenised again",
            )
        return Completion(
            ids=ids,
            logprobs=logprobs,
            versions=self._spans(choice.get("weight_versions"), len(ids), first),
            finish=_FINISH.get(choice.get("finish_reason"), STOP),
            service_s=self._clock.monotonic() - began,
        )

    async def _answer(self, request: Request) -> tuple[Answer, bool]:
        """Ask the token interface where there is one; True where it was that which answered."""
        if self._native:
            answer = await self._wire.ask("POST", NATIVE, self._native_body(request))
            if self._served or answer.status not in _ABSENT:
                self._served = self._served or answer.status < 300
                return answer, True
            self._native = False
        return await self._wire.ask("POST", OPENAI, self._openai_body(request)), False

    async def publish(self, weights: Path | None, version: int) -> PublishReport:
        """Pause with requests kept, load, name the version, go on. The server must see the same path.

        EngineLost where they do not load: the old ones are put back then. Where the server's checksums do not show that, no request
        is made of it any more.
        """
        if weights is None:
            raise EngineLost("no weights were given to load")
        if self._broken:
            raise EngineLost(self._broken)
        return await run_shielded(self._publish(str(weights), version))  # never left half done

    async def _publish(self, weights: str, version: int) -> PublishReport:
        began, before = self._clock.monotonic(), await self._checksums()
        try:
            await self._tell("/pause?mode=keep", limit_s=PUBLISH_S)
        except EngineLost:
            with suppress(EngineLost):  # it may have paused all the same
                await self._tell("/resume")
            raise
        try:
            try:
                await self._reload(weights)
                await self._tell("/update_weight_version", {"new_version": str(version)})
            except EngineLost:
                await self._put_back(weights, before)
                raise
            self._known[str(version)] = self.version = version
            self._weights = weights
        finally:
            await self._tell("/resume")
        after = await self._checksums()
        changed = None if before is None or after is None else before != after
        return PublishReport(version=version, seconds=self._clock.monotonic() - began, changed=changed)

    async def load(self) -> EngineLoad:
        answer = await self._wire.ask("GET", "/metrics", limit_s=ASK_S)
        return _load(answer.body.decode("utf-8", "replace")) if answer.status == 200 else EngineLoad()

    async def _put_back(self, failed: str, before: Any) -> None:
        """A loader that gave up on the way leaves layers without weights: bring the old ones in again, and have it shown."""
        with suppress(EngineLost):
            if self._weights:
                await self._reload(self._weights)
        if before is None or await self._checksums() != before:
            self._broken = f"weights from {failed} did not load, and {self._wire.base} does not show that the old ones are in force"

    async def _reload(self, weights: str) -> None:
        asked = {"method": "reload_weights", "kwargs": {"weights_path": weights}}
        await self._tell("/collective_rpc", asked, limit_s=PUBLISH_S)

    async def _tell(self, path: str, body: Mapping[str, Any] | None = None, *, limit_s: float | None = None) -> None:
        answer = await self._wire.ask("POST", path, body, limit_s=limit_s or ASK_S)
        if answer.status >= 300:
            raise EngineLost(f"{path} answered {answer.status}: {answer.said()}", fix=_DEV if answer.status in (404, 405) else "")

    async def _checksums(self) -> Any:
        """None where the server does not say."""
        try:
            answer = await self._wire.ask("POST", "/weight_checker", {"action": "checksum"}, limit_s=PUBLISH_S)
            return answer.json().get("checksums") if answer.status == 200 else None
        except EngineLost:
            return None

    def _native_body(self, request: Request) -> dict[str, Any]:
        params = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_token_ids": list(request.stop_ids),
            "logprobs": 0,
            "detokenize": False,
        }
        return {
            "model": self._model,
            "token_ids": list(request.ids),
            "sampling_params": params,
            "priority": self._priority(request),
        }

    def _openai_body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": list(request.ids),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_token_ids": list(request.stop_ids),
            "logprobs": 1,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "priority": self._priority(request),
        }

    def _priority(self, request: Request) -> int:
        """vLLM serves the lower number first."""
        return -request.priority if self._priorities else 0

    def _spans(self, given: Any, count: int, first: int) -> tuple[VersionSpan, ...]:
        """The server's spans where it gives them; else the older of the versions before and after, which never flatters the gap."""
        if given:
            return tuple(VersionSpan(version=self._named(s["version"]), start=s["start"], end=s["end"]) for s in given)
        return (VersionSpan(version=first, start=0, end=count),)

    def _named(self, name: str) -> int:
        if not self._known:  # without its development interface a server does not say beforehand what its weights are called
            self._known[name] = self.version
        if name not in self._known:
            raise EngineLost(f"the server generated with weights {name!r}, which were not published by this run")
        return self._known[name]


def _good(answer: Answer, path: str) -> Answer:
    if answer.status < 300:
        return answer
    if answer.status in (400, 413, 422):
        raise RequestInvalid(f"{path} refused the request: {answer.said()}")
    raise EngineLost(f"{path} answered {answer.status}: {answer.said()}")


def _native_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(float(entry["logprob"]) for entry in (choice.get("logprobs") or {}).get("content") or ())


def _openai_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in (choice.get("logprobs") or {}).get("token_logprobs") or () if value is not None)


def _load(metrics: str) -> EngineLoad:
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _METRICS:
            found[_METRICS[name]] = found.get(_METRICS[name], 0.0) + float(line.rpartition(" ")[2])
    whole = {name: int(value) for name, value in found.items() if name != "kv_usage"}
    return EngineLoad(kv_usage=found.get("kv_usage"), **whole)


def create(machinery: Any) -> tuple[HttpEngine, Tokenizer]:
    """Make the engine of `--engine http`: `--url` is the server's, `--model` the directory of its tokenizer."""
    options = machinery.options
    if not options.url or not options.model:
        raise EnvironmentInvalid(
            "the http engine needs a server and the directory of its model's tokenizer", fix="give --url and --model"
        )
    tokenizer = ModelTokenizer(Path(options.model))
    engine = HttpEngine(options.url, vocab_size=tokenizer.vocab_size, clock=machinery.clock, key=os.environ.get(KEY, ""))
    return engine, tokenizer
