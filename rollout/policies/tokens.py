"""Tokenizers as the chat policy uses them: a byte-level one that needs nothing, and the model's own through transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable

Message = Mapping[str, Any]


class Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...
    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an answer."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts of its special tokens: `encode` takes them for these wherever they stand."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise text that we wrote, special tokens included, without adding any."""

    def decode(self, ids: Sequence[int]) -> str: ...
    def render(self, messages: Sequence[Message], *, opening: bool) -> str:
        """Return the model's own chat format; with `opening`, up to where the next answer begins."""


class ByteTokenizer:
    """One id a byte, and the marks of the chat format after them."""

    MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")

    def __init__(self) -> None:
        self._ids = {mark: 256 + n for n, mark in enumerate(self.MARKS)}
        self._split = re.compile("(" + "|".join(map(re.escape, self.MARKS)) + ")")

    @property
    def vocab_size(self) -> int:
        return 256 + len(self.MARKS)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (self._ids["<|im_end|>"], self._ids["<|endoftext|>"])

    @property
    def marks(self) -> tuple[str, ...]:
        return self.MARKS

    def encode(self, text: str) -> tuple[int, ...]:
        out: list[int] = []
        for piece in self._split.split(text):
            if piece in self._ids:
                out.append(self._ids[piece])
            else:
                out += piece.encode()
        return tuple(out)

    def decode(self, ids: Sequence[int]) -> str:
        out = bytearray()
        for token in ids:
            out += bytes([token]) if token < 256 else self.MARKS[token - 256].encode()
        return out.decode("utf-8", "replace")

    def render(self, messages: Sequence[Message], *, opening: bool) -> str:
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return text + ("<|im_start|>assistant\n" if opening else "")


class ModelTokenizer:
    """A model directory's tokenizer and chat template."""

    def __init__(self, directory: Path) -> None:
        try:
            transformers = import_module("transformers")
        except ImportError as error:
            raise RuntimeUnavailable("transformers is not installed", fix="pip install 'autoclave[rollout]'") from error
        fix = "give --model a directory with the tokenizer and chat template of its model"
        if not directory.is_dir():  # transformers would look for a model of that name elsewhere
            raise EnvironmentInvalid(f"{directory} is no directory", fix=fix)
        try:
            self._inner: Any = transformers.AutoTokenizer.from_pretrained(str(directory))
        except Exception as error:  # whatever a missing or broken file makes transformers raise
            raise EnvironmentInvalid(f"{directory} holds no tokenizer that can be read: {_first(error)}", fix=fix) from error
        if not self._inner.chat_template:
            raise EnvironmentInvalid(f"{directory} has no chat template", fix="use a model that was made for chat")
        added = self._inner.added_tokens_decoder.values()
        self.marks: tuple[str, ...] = tuple(str(token.content) for token in added if token.special)

    @property
    def vocab_size(self) -> int:
        return len(self._inner)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        end = self._inner.eos_token_id
        return () if end is None else (int(end),)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._inner.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def render(self, messages: Sequence[Message], *, opening: bool) -> str:
        return str(self._inner.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=opening))


def _first(error: Exception) -> str:
    """The first line of a message that may have many."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
