"""Writes a random chat model with a byte-level tokenizer, for tests and benchmarks that need an engine (`runpy.run_path`).

Some 300,000 weights unless told otherwise: enough for an engine to serve, and too few to know anything.
"""

from __future__ import annotations

import json
import string
from importlib import import_module
from pathlib import Path
from typing import Any

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 4096


def build(directory: Path, *, seed: int = 1, hidden: int = 128, layers: int = 2) -> None:
    """Write configuration, weights of 32 bits, tokenizer and chat template."""
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
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=CONTEXT,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )
    model = transformers.Qwen2ForCausalLM(config)
    with torch.no_grad():
        _never(model, tokenizer.eos_token_id)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    assert json.loads((directory / "config.json").read_text())["dtype"] == "float32"


def _never(model: Any, token: int) -> None:
    """Make a token one that is never sampled: an engine ends an answer at the end-of-text token of its own accord, which random
    weights would say once in some 260 tokens. The first number of every place's state stays what the embedding gave it, and this
    token's logit is that number times one far below 0."""
    model.model.embed_tokens.weight[:, 0] = 0.1
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = 0
        layer.mlp.down_proj.weight[0] = 0
    model.lm_head.weight[:, 0] = 0
    model.lm_head.weight[token, 0] = -1000
