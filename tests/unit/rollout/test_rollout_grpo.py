"""The reference learner's arithmetic against figures worked out by hand, and its updates on a model of a few weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rollout.batches import Batch, Sample
from rollout.engines.weights import fits, shapes_of
from rollout.errors import EngineLost, NotLearnable
from rollout.groups import advantages
from rollout.learner.grpo import Grpo, GrpoRule
from rollout.learner.learner import Update
from rollout.learner.loss import Clip, clipped, kl, logprobs_at, policy_loss
from rollout.record import CONTEXT, Trajectory

VOCAB = 12


@pytest.fixture
def torch(need: Callable[[str, str], None]) -> Any:
    lacking = [name for name in ("torch", "transformers") if find_spec(name) is None]
    need("torch", f"no {' and no '.join(lacking)} (pip install 'autoclave[rollout]')" if lacking else "")
    return import_module("torch")


@pytest.fixture
def model(torch: Any, tmp_path: Path) -> Path:
    transformers = import_module("transformers")
    torch.manual_seed(3)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        dtype="float32",
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def probabilities(torch: Any, model: Path, tokens: tuple[int, ...]) -> Any:
    """Logprobs of each place's own token, the first excepted."""
    held = import_module("transformers").AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = held(torch.tensor([tokens])).logits[0]
    return logprobs_at(logits[:-1], torch.tensor(tokens[1:]), 1.0)


async def updated(learner: Grpo, given: Batch) -> Update:
    """Make an update that the ledger then records."""
    update = await learner.update(given)
    if update.recorded is not None:
        update.recorded()
    return update


def sample(
    name: str, tokens: tuple[int, ...], mask: tuple[int, ...], logprobs: Any, advantage: float, weight: float = 1.0
) -> Sample:
    told = (0.0, *(float(value) for value in logprobs))
    trajectory = Trajectory(
        id=name,
        run="r",
        group="g",
        member=0,
        attempt=0,
        environment="e",
        task="t",
        family="f",
        tokens=tokens,
        mask=mask,
        logprobs=tuple(value if used else 0.0 for value, used in zip(told, mask, strict=True)),
        versions=tuple(0 if used else CONTEXT for used in mask),
    )
    return Sample(trajectory=trajectory, advantage=advantage, gap=0, weight=weight)


def batch(*samples: Sample, name: str = "b1") -> Batch:
    return Batch(id=name, version=0, samples=samples, groups=("g",))


def test_advantages_are_relative_to_the_group() -> None:
    assert advantages((1.0, 0.0, 0.0, 1.0)) == (0.5, -0.5, -0.5, 0.5)
    assert advantages((3.0, 1.0, 1.0, 1.0)) == (1.5, -0.5, -0.5, -0.5)
    assert advantages((1.0, 0.0), scale=True) == (1.0, -1.0)
    assert advantages((0.7, 0.7), scale=True) == (0.0, 0.0)


def test_the_ratio_is_clipped_where_more_would_go_further_the_same_way(torch: Any) -> None:
    old = torch.log(torch.tensor([0.5, 0.5, 0.5]))
    new = torch.log(torch.tensor([0.5, 0.75, 0.25]))  # ratios 1, 1.5, 0.5

    better = policy_loss(new, old, 2.0, Clip(low=0.2, high=0.3))
    worse = policy_loss(new, old, -2.0, Clip(low=0.2, high=0.3))

    assert better.tolist() == pytest.approx([-2.0, -2.6, -1.0])  # 1.5 counts as 1.3; 0.5 counts as it is
    assert worse.tolist() == pytest.approx([2.0, 3.0, 1.6])  # 1.5 counts as it is; 0.5 counts as 0.8
    assert clipped(new, old, 2.0, Clip(low=0.2, high=0.3)).tolist() == [False, True, False]
    assert clipped(new, old, -2.0, Clip(low=0.2, high=0.3)).tolist() == [False, False, True]


def test_what_is_clipped_has_no_gradient(torch: Any) -> None:
    new = torch.log(torch.tensor([0.6, 0.9])).requires_grad_()
    policy_loss(new, torch.log(torch.tensor([0.5, 0.5])), 1.0, Clip(low=0.2, high=0.5)).sum().backward()

    assert new.grad.tolist() == pytest.approx([-1.2, 0.0])  # -ratio * advantage; the ratio 1.8 is beyond 1.5


def test_the_divergence_is_nothing_between_equals_and_positive_else(torch: Any) -> None:
    same = torch.log(torch.tensor([0.2, 0.8]))
    assert kl(same, same).tolist() == [0.0, 0.0]
    found = kl(torch.log(torch.tensor([0.5])), torch.log(torch.tensor([0.25])))
    assert found.item() == pytest.approx(0.5 - math.log(0.5) - 1)


def test_logprobs_are_those_after_temperature(torch: Any) -> None:
    logits = torch.tensor([[0.0, math.log(4.0)]])
    assert logprobs_at(logits, torch.tensor([1]), 1.0).item() == pytest.approx(math.log(4 / 5))
    assert logprobs_at(logits, torch.tensor([1]), 0.5).item() == pytest.approx(math.log(16 / 17))


async def test_an_update_makes_the_better_likelier_and_leaves_a_model_that_can_be_loaded(
    torch: Any, model: Path, tmp_path: Path
) -> None:
    good, bad, mask = (1, 2, 3, 4), (1, 2, 5, 6), (0, 0, 1, 1)
    before = [probabilities(torch, model, each)[1:].sum() for each in (good, bad)]
    learner = Grpo(model, folder=tmp_path / "checkpoints", rule=GrpoRule(learning_rate=1e-3))

    update = await updated(
        learner,
        batch(
            sample("g", good, mask, probabilities(torch, model, good), 0.5),
            sample("b", bad, mask, probabilities(torch, model, bad), -0.5),
        ),
    )

    assert update.publish
    assert update.weights is not None
    after = [probabilities(torch, update.weights, each)[1:].sum() for each in (good, bad)]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert update.metrics["tokens"] == 4
    assert update.metrics["loss"] == pytest.approx(0.0, abs=1e-6)  # two tokens at -0.5 and two at 0.5, all ratios 1
    assert update.metrics["engine_gap"] == pytest.approx(0.0, abs=1e-5)
    fits(update.weights, shapes_of(model))
    assert json.loads((update.weights / "config.json").read_text()) == json.loads((model / "config.json").read_text())


async def test_only_masked_tokens_are_trained(torch: Any, model: Path, tmp_path: Path) -> None:
    """The tokens of the context have no say: with another one in the last place, which predicts nothing, the update is the same."""
    first, second = (1, 2, 3, 4, 7), (1, 2, 3, 4, 9)
    mask = (0, 0, 1, 1, 0)
    found = []
    for n, tokens in enumerate((first, second)):
        learner = Grpo(model, folder=tmp_path / str(n), rule=GrpoRule(learning_rate=1e-3))
        update = await updated(learner, batch(sample("s", tokens, mask, probabilities(torch, model, tokens), 1.0)))
        assert update.weights is not None
        assert update.metrics["tokens"] == 2
        found.append((update.weights / "model.safetensors").read_bytes())
    assert found[0] == found[1]


async def test_a_weight_counts_as_often_as_it_says(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens, mask = (1, 2, 3), (0, 1, 1)
    losses = []
    for n, weight in enumerate((1.0, 0.5)):
        learner = Grpo(model, folder=tmp_path / str(n))
        update = await learner.update(batch(sample("s", tokens, mask, probabilities(torch, model, tokens), 1.0, weight)))
        losses.append(update.metrics["loss"])
    assert losses == pytest.approx([-1.0, -0.5], abs=1e-5)


async def test_gradients_of_all_trajectories_make_one_step(torch: Any, model: Path, tmp_path: Path) -> None:
    """A trajectory and its opposite cancel: their gradients met before the step."""
    tokens, mask = (1, 2, 3), (0, 1, 1)
    told = probabilities(torch, model, tokens)
    learner = Grpo(model, folder=tmp_path / "checkpoints")
    update = await learner.update(batch(sample("a", tokens, mask, told, 1.0), sample("b", tokens, mask, told, -1.0)))
    assert update.metrics["grad_norm"] == pytest.approx(0.0, abs=1e-5)


async def test_a_reference_holds_the_policy_back(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens, mask = (1, 2, 3, 4), (0, 1, 1, 1)
    learner = Grpo(model, folder=tmp_path / "checkpoints", rule=GrpoRule(learning_rate=1e-2, kl_weight=0.1, epochs=3))
    update = await learner.update(batch(sample("s", tokens, mask, probabilities(torch, model, tokens), 1.0)))
    assert update.metrics["kl"] > 0


async def test_nothing_to_learn_is_no_update(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens = (1, 2, 3)
    told = probabilities(torch, model, tokens)
    learner = Grpo(model, folder=tmp_path / "checkpoints")

    assert not (await learner.update(batch(sample("flat", tokens, (0, 1, 1), told, 0.0)))).publish
    assert not (await learner.update(batch(sample("masked", tokens, (0, 0, 0), told, 1.0)))).publish
    assert not (tmp_path / "checkpoints").exists()


async def test_what_is_not_finite_is_named_and_makes_no_step(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens, mask = (1, 2, 3), (0, 1, 1)
    told = probabilities(torch, model, tokens)
    good = sample("good", tokens, mask, told, 1.0)
    learner = Grpo(model, folder=tmp_path / "checkpoints", rule=GrpoRule(learning_rate=1e-2))

    for advantage, logprobs in ((math.nan, told), (-1.0, (-1e5, -1e5))):  # no number; a ratio beyond all numbers
        bad = sample("bad-7", tokens, mask, logprobs, advantage)
        with pytest.raises(NotLearnable, match=r"no step was made of b9: the loss of bad-7 is not finite.*--learning-rate"):
            await learner.update(batch(good, bad, name="b9"))
    assert not (tmp_path / "checkpoints").exists()

    update = await learner.update(batch(good, sample("other", tokens, mask, told, -0.5)))  # from the weights as they were
    fresh = Grpo(model, folder=tmp_path / "fresh", rule=GrpoRule(learning_rate=1e-2))
    same = await fresh.update(batch(good, sample("other", tokens, mask, told, -0.5)))
    assert update.metrics == same.metrics


async def test_the_last_checkpoints_stay(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens, mask = (1, 2, 3), (0, 1, 1)
    learner = Grpo(model, folder=tmp_path / "checkpoints", rule=GrpoRule(keep=2))
    told = probabilities(torch, model, tokens)
    for n in range(3):
        await updated(learner, batch(sample("s", tokens, mask, told, 1.0), name=f"b{n}"))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["b1", "b2"]


async def test_a_checkpoint_has_its_name_when_its_update_is_recorded(torch: Any, model: Path, tmp_path: Path) -> None:
    tokens, mask = (1, 2, 3), (0, 1, 1)
    learner = Grpo(model, folder=tmp_path / "checkpoints")

    update = await learner.update(batch(sample("s", tokens, mask, probabilities(torch, model, tokens), 1.0), name="b0"))

    assert update.weights is not None
    assert not update.weights.exists()
    assert update.recorded is not None
    update.recorded()
    fits(update.weights, shapes_of(model))


def test_weights_that_do_not_fit_are_named(torch: Any, model: Path, tmp_path: Path) -> None:
    safetensors = import_module("safetensors.torch")
    wanted = shapes_of(model)
    held = safetensors.load_file(model / "model.safetensors")
    name = "model.norm.weight"
    for folder, changed, said in (
        ("less", {k: v for k, v in held.items() if k != name}, "lack 1 tensors, model.norm.weight"),
        ("other", {**held, name: torch.zeros(3)}, "has shape"),
    ):
        (tmp_path / folder).mkdir()
        safetensors.save_file(changed, tmp_path / folder / "model.safetensors")
        with pytest.raises(EngineLost, match=said):
            fits(tmp_path / folder, wanted)
    with pytest.raises(EngineLost, match="holds no safetensors"):
        fits(tmp_path, wanted)
