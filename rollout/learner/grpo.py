"""The reference learner: GRPO in torch, to be read in one sitting. A user's own trainer stays the normal case.

For each trained token, with the group-relative advantage A that the batch brings (relative to the mean of cleared members only):

    ratio = p_new / p_engine            p_engine: what the engine really sampled with, token by token
    loss  = -min(ratio A, clip(ratio) A) + kl_weight * KL(new || reference)

summed over all tokens whose mask is 1, each trajectory times its weight, divided by their number: one optimiser step a batch and
epoch. Trajectories are gone through one by one (no padding) and their gradients accumulate. Samples beyond the version gap are
left alone. Weights are kept in 32 bits; on a GPU the model computes in bfloat16.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rollout.batches import Batch, Sample
from rollout.engines.weights import dtype_of
from rollout.errors import NotLearnable
from rollout.learner.learner import Update
from rollout.learner.loss import Clip, clipped, kl, logprobs_at, policy_loss
from sandbox.aio import in_thread
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoRule:
    """`temperature` is the engine's. `kl_weight` 0 holds no reference model. The last `keep` checkpoints stay on disk."""

    learning_rate: float = 1e-5
    temperature: float = 1.0
    clip: Clip = field(default_factory=Clip)
    kl_weight: float = 0.0
    epochs: int = 1
    max_grad_norm: float = 1.0
    keep: int = 4


class Grpo:
    """Learns from batches; `model` is the directory that the engine began with, checkpoints go below `folder`."""

    name = "grpo"

    def __init__(self, model: Path, *, folder: Path, rule: GrpoRule | None = None) -> None:
        self._torch, self._transformers = _imported("torch"), _imported("transformers")
        self._base = model
        self._folder = folder
        self.rule = rule or GrpoRule()
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self._model: Any = None
        self._reference: Any = None
        self._optimizer: Any = None
        self._saved: list[Path] = []

    async def update(self, batch: Batch) -> Update:
        """Make one update; nothing is published where nothing can be learned (no trained token, or all advantages 0)."""
        return await in_thread(self._update, batch)

    async def ready(self) -> None:
        """Load weights and optimizer now, and not with the first update."""
        await in_thread(self._load)

    def close(self) -> None:
        """Give the device back."""
        self._model = self._reference = self._optimizer = None
        if self._device == "cuda":
            self._torch.cuda.empty_cache()

    def memory_mb(self) -> dict[str, float | None]:
        """What it holds at its peak, MiB: weights in 32 bits, the optimizer's two moments, on a GPU activations and gradients."""
        if self._model is None:
            return {}
        own = sum(p.numel() * p.element_size() for p in self._model.parameters())
        kept = 0 if self._reference is None else sum(p.numel() * p.element_size() for p in self._reference.parameters())
        moments = sum(
            held.numel() * held.element_size()
            for state in self._optimizer.state.values()
            for held in state.values()
            if self._torch.is_tensor(held)
        )
        peak = self._torch.cuda.max_memory_allocated() if self._device == "cuda" else None
        rest = None if peak is None else round(max(0, peak - own - kept - moments) / 2**20, 1)
        return {"weights": round((own + kept) / 2**20, 1), "optimizer": round(moments / 2**20, 1), "activations": rest}

    def _update(self, batch: Batch) -> Update:
        samples = [sample for sample in batch.samples if _trained(sample)]
        metrics = {"samples": float(len(samples)), "tokens": float(sum(len(_trained(s)) for s in samples))}
        if not samples or (not self.rule.kl_weight and not any(sample.advantage for sample in samples)):
            return Update(publish=False, off_policy=False, metrics={**metrics, "learned": 0.0})
        self._load()
        for _ in range(self.rule.epochs):
            metrics.update(self._step(batch.id, samples))
        draft, path = self._save(batch.id), self._folder / batch.id
        metrics |= {"learned": 1.0}
        keep = partial(self._keep, draft, path)
        return Update(publish=True, weights=path, checkpoint=str(path), off_policy=False, recorded=keep, metrics=metrics)

    def _step(self, batch: str, samples: Sequence[Sample]) -> dict[str, float]:
        """One optimiser step over all samples; the loss of each is divided by the tokens of all, so that lengths count equally.
        NotLearnable, naming the trajectories, where a loss or the gradient is not finite: no step is made then."""
        count = sum(len(_trained(sample)) for sample in samples)
        sums: dict[str, float] = dict.fromkeys(("loss", "kl", "clipped", "engine_gap"), 0.0)
        self._optimizer.zero_grad()
        broken: list[str] = []
        for sample in samples:
            tokens, places, old = self._tensors(sample)
            new = self._logprobs(self._model, tokens, places)
            loss = sample.weight * policy_loss(new, old, sample.advantage, self.rule.clip)
            if self._reference is not None:
                with self._torch.no_grad():
                    reference = self._logprobs(self._reference, tokens, places)
                divergence = kl(new, reference)
                loss = loss + self.rule.kl_weight * divergence
                sums["kl"] += divergence.sum().item()
            if not bool(self._torch.isfinite(loss).all()):
                broken.append(sample.trajectory.id)
                continue
            (loss.sum() / count).backward()
            sums["loss"] += loss.sum().item()
            sums["clipped"] += clipped(new, old, sample.advantage, self.rule.clip).sum().item()
            sums["engine_gap"] += (new - old).abs().sum().item()  # beyond what updates explain: the two compute differently
        norm = self._torch.nn.utils.clip_grad_norm_(self._model.parameters(), self.rule.max_grad_norm)
        if broken or not bool(self._torch.isfinite(norm)):
            raise self._not_learnable(batch, broken, norm.item())
        self._optimizer.step()
        return {**{name: value / count for name, value in sums.items()}, "grad_norm": norm.item()}

    def _not_learnable(self, batch: str, broken: Sequence[str], norm: float) -> NotLearnable:
        self._optimizer.zero_grad()
        if broken:
            more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
            what = f"the loss of {', '.join(broken[:3])}{more} is not finite"
            where = "look at their rewards and logprobs in the run's trajectories.jsonl; where these are finite, "
        else:
            what, where = f"every loss is finite, and the gradient is {norm}", ""
        return NotLearnable(
            f"no step was made of {batch}: {what}",
            fix=f"{where}the weights have grown out of bounds: begin again from an earlier checkpoint with a lower --learning-rate",
        )

    def _tensors(self, sample: Sample) -> tuple[Any, Any, Any]:
        """The tokens, the places of those that are trained, and the engine's logprobs of these."""
        trajectory, places = sample.trajectory, _trained(sample)
        tensor, device = self._torch.tensor, self._device
        old = [trajectory.logprobs[place] for place in places]
        return tensor(trajectory.tokens, device=device), tensor(places, device=device), tensor(old, device=device)

    def _logprobs(self, model: Any, tokens: Any, places: Any) -> Any:
        """A token's probability lies in the logits of the place before it; no other logits are computed."""
        with self._precision():
            logits = model(input_ids=tokens[None], logits_to_keep=places - 1, use_cache=False).logits[0]
        return logprobs_at(logits, tokens[places], self.rule.temperature)

    def _precision(self) -> AbstractContextManager[Any]:
        if self._device == "cpu":
            return nullcontext()
        context: AbstractContextManager[Any] = self._torch.autocast(self._device, dtype=self._torch.bfloat16)
        return context

    def _load(self) -> None:
        if self._model is not None:
            return
        self._model = self._read()
        self._optimizer = self._torch.optim.AdamW(self._model.parameters(), lr=self.rule.learning_rate, weight_decay=0.0)
        if self.rule.kl_weight:
            self._reference = self._read().requires_grad_(requires_grad=False)

    def _read(self) -> Any:
        """In evaluation mode: no dropout, so that the logprobs are those of the policy that acts."""
        read = self._transformers.AutoModelForCausalLM.from_pretrained
        return read(str(self._base), dtype=self._torch.float32).to(self._device).eval()

    def _save(self, name: str) -> Path:
        """Write a directory like the one that the run began with, in its dtype."""
        draft = self._folder / f".{name}"
        draft.mkdir(parents=True)
        dtype = getattr(self._torch, dtype_of(self._base) or "float32")
        state = {key: value.to(dtype) for key, value in self._model.state_dict().items()}
        self._model.save_pretrained(str(draft), state_dict=state)
        for file in _besides_weights(self._base):
            shutil.copy2(file, draft / file.name)
        return draft

    def _keep(self, draft: Path, path: Path) -> None:
        """Give the checkpoint its name: it is whole, and the ledger knows which update is in it."""
        draft.rename(path)
        self._saved.append(path)
        while len(self._saved) > self.rule.keep:
            shutil.rmtree(self._saved.pop(0))


def _trained(sample: Sample) -> list[int]:
    """The places where a loss is taken: mask 1, and something before them to predict from."""
    return [place for place, mask in enumerate(sample.trajectory.mask) if mask and place]


def _besides_weights(directory: Path) -> Iterator[Path]:
    """Configuration and tokenizer, so that a checkpoint is a model like the first one."""
    for file in sorted(directory.iterdir()):
        if file.is_file() and ".safetensors" not in file.name:
            yield file


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise RuntimeUnavailable(f"the learner grpo needs {name}", fix="pip install 'autoclave[rollout]'") from error


def create(machinery: Any) -> Grpo:
    """Make the learner of `--learner grpo`: it begins with the model that the engine serves."""
    options = machinery.options
    if not options.model or options.engine == "scripted":
        raise EnvironmentInvalid("grpo needs the weights that the engine serves", fix="use --engine vllm (or http) with --model")
    rule = GrpoRule(learning_rate=options.learning_rate, temperature=options.temperature, kl_weight=options.kl_weight)
    return Grpo(Path(options.model).absolute(), folder=machinery.folder / "checkpoints", rule=rule)
