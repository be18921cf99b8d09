"""The arithmetic of GRPO on torch tensors, one entry a trained token. Nothing here knows of models or files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """How far the ratio of new to old probability counts: from 1 - `low` to 1 + `high`."""

    low: float = 0.2
    high: float = 0.2


def policy_loss(new: Any, old: Any, advantage: float, clip: Clip) -> Any:
    """Return each token's loss. `old` are the engine's logprobs: the probabilities with which the tokens were really sampled."""
    ratio = (new - old).exp()
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    return -(ratio * advantage).minimum(bounded * advantage)


def clipped(new: Any, old: Any, advantage: float, clip: Clip) -> Any:
    """Return 1 for each token whose gradient the clip takes away."""
    ratio = (new - old).exp()
    return (ratio > 1 + clip.high) if advantage > 0 else (ratio < 1 - clip.low)


def kl(new: Any, reference: Any) -> Any:
    """Return each token's estimate of the divergence from the reference: never negative, 0 where both agree."""
    difference = reference - new
    return difference.exp() - difference - 1


def logprobs_at(logits: Any, tokens: Any, temperature: float) -> Any:
    """Return the logprob of each of `tokens` under its row of `logits`, after temperature, as the engine sampled them."""
    return (logits.float() / temperature).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
