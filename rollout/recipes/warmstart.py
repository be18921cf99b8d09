"""Makes the recipe's model: a Llama of about half a million weights with a tokenizer of its own, fitted on scripted solutions.

What is the same in every conversation (the introduction, the frame of a call) is one token each, so that a trajectory has some 50
tokens and a CPU is enough. The rest is byte-level BPE, so any text can be written. The tokenizer does not depend on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rollout.policies.chat import ChatPolicy
from rollout.policies.policy import ToolSpec
from rollout.policies.tokens import ByteTokenizer, ModelTokenizer, Tokenizer
from rollout.recipes.solutions import DONE, NO_OUTPUT, answers, call
from sandbox.errors import RuntimeUnavailable
from sandbox.model import TaskSpec

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IGNORED = -100  # of a label, as torch's cross entropy wants it


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """How the model is made. `steps` decides how well it copies what a task names; about 30 % of its trajectories succeed."""

    steps: int = 200
    batch: int = 16
    learning_rate: float = 2e-3
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    context: int = 512


def make(folder: Path, tasks: Sequence[TaskSpec], tools: Sequence[ToolSpec], *, seed: int, rule: WarmStart) -> float:
    """Write the model's directory and return the last loss. `tasks` are those of training alone."""
    torch, transformers = _imported("torch"), _imported("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(tasks, tools)
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=rule.hidden,
        intermediate_size=2 * rule.hidden,
        num_hidden_layers=rule.layers,
        num_attention_heads=rule.heads,
        num_key_value_heads=rule.heads,
        max_position_embeddings=rule.context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        dtype="float32",
    )
    model = transformers.LlamaForCausalLM(config)
    loss = _fit(torch, model, ModelTokenizer(folder), tasks, tools, seed=seed, rule=rule)
    model.save_pretrained(str(folder))
    return loss


def _fit(
    torch: Any,
    model: Any,
    tokenizer: Tokenizer,
    tasks: Sequence[TaskSpec],
    tools: Sequence[ToolSpec],
    *,
    seed: int,
    rule: WarmStart,
) -> float:
    """Supervised steps with a rate that falls to 0; the loss is on the answers alone."""
    chance = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rule.learning_rate, total_steps=rule.steps, pct_start=0.1)
    scribe, loss = Scribe(tokenizer, tools), None
    model.train()
    for _ in range(rule.steps):
        pairs = [scribe.conversation(task, answers(task, chance)) for task in chance.choices(tasks, k=rule.batch)]
        longest = max(len(ids) for ids, _ in pairs)
        ids = torch.tensor([(*i, *[0] * (longest - len(i))) for i, _ in pairs])
        labels = torch.tensor([(*m, *[IGNORED] * (longest - len(m))) for _, m in pairs])
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return float("nan") if loss is None else float(loss.item())


class Scribe:
    """Writes scripted solutions as the tokens that a rollout would have. What repeats is tokenised once."""

    def __init__(self, tokenizer: Tokenizer, tools: Sequence[ToolSpec]) -> None:
        self._tokenizer = tokenizer
        self._policy = ChatPolicy(tokenizer)
        self._tools = tools
        self._prompts: dict[str, tuple[int, ...]] = {}
        self._answers: dict[str, tuple[int, ...]] = {}
        self._between = self._policy.observe(self._answer(DONE), [("shell", NO_OUTPUT)])

    def conversation(self, task: TaskSpec, said: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens, and the labels: IGNORED where no loss is taken."""
        if task.id not in self._prompts:
            self._prompts[task.id] = self._policy.first(task, self._tools)
        ids = list(self._prompts[task.id])
        labels = [IGNORED] * len(ids)
        for number, text in enumerate(said):
            if number:
                ids += self._between
                labels += [IGNORED] * len(self._between)
            ids += self._answer(text)
            labels += self._answer(text)
        return tuple(ids), tuple(labels)

    def _answer(self, text: str) -> tuple[int, ...]:
        if text not in self._answers:
            self._answers[text] = (*self._tokenizer.encode(text), *self._tokenizer.stop_ids)
        return self._answers[text]


def _tokenizer(tasks: Sequence[TaskSpec], tools: Sequence[ToolSpec]) -> Any:
    tokenizers, transformers = _imported("tokenizers"), _imported("transformers")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=512, special_tokens=list(MARKS), initial_alphabet=alphabet, show_progress=False
    )
    chance = random.Random(0)
    roles = [f"{role}\n" for role in ("system", "user", "assistant")] * len(tasks)
    texts = [*roles, *(text for task in tasks for text in (task.prompt, *answers(task, chance)))]
    inner.train_from_iterator(sorted(texts), trainer)
    opening, closing = call("|").split("|")
    told = f"<tool_response name=shell>\n{NO_OUTPUT}\n</tool_response>"
    fixed = [_introduction(tasks[0], tools), opening, closing, told, DONE]
    inner.add_tokens([tokenizers.AddedToken(text, normalized=False, special=False) for text in fixed])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _introduction(task: TaskSpec, tools: Sequence[ToolSpec]) -> str:
    """What the policy tells at the beginning, tools and all."""
    plain = ByteTokenizer()
    return plain.decode(ChatPolicy(plain).first(task, tools)).split("system\n", 1)[1].split("<|im_end|>", 1)[0]


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise RuntimeUnavailable(f"the recipe needs {name}", fix="pip install 'autoclave[rollout]'") from error
