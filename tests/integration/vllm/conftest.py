"""One small model and one engine for all tests here: an engine takes up to a minute to start."""

from __future__ import annotations

import json
import string
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollout.engines.vllm import VllmEngine, VllmRule
from sandbox.clock import SystemClock

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 4096


def build(directory: Path, *, seed: int = 1) -> Path:
    """Write a random model of some 300,000 weights with a byte-level tokenizer."""
    torch, transformers, tokenizers = (import_module(name) for name in ("torch", "transformers", "tokenizers"))
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(alphabet) + len(MARKS), special_tokens=list(MARKS), initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([string.printable], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    assert json.loads((directory / "config.json").read_text())["dtype"] == "float32"
    return directory


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shapes, other weights."""
    return build(tmp_path_factory.mktemp("other"), seed=2)


@pytest.fixture(scope="session")
def make_engine() -> Callable[[Path], VllmEngine]:
    return lambda model: VllmEngine(model, clock=SystemClock(), rule=VllmRule(slots=4))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(model: Path, make_engine: Callable[[Path], VllmEngine]) -> AsyncIterator[VllmEngine]:
    async with make_engine(model) as held:
        yield held


@pytest.fixture(scope="session")
def reference() -> Callable[..., Any]:
    """`reference(model, ids, temperature)` gives transformers' log-probabilities of every next token."""

    def of(model: Path, ids: tuple[int, ...], temperature: float) -> Any:
        torch, transformers = import_module("torch"), import_module("transformers")
        held = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with torch.no_grad():
            return (held(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)

    return of
