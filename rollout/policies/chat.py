"""A chat model as a policy: prompt and results in its own chat format, tool calls read out of its text.

What the model generated stays as it was, token by token. Only what we write is tokenised: the prompt once, then each piece that
follows an answer. That piece is the template's own text between the answer's content and the next opening, found by rendering
the template around a placeholder, so that every model's format is kept without re-tokenising a turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rollout.policies.calls import parse
from rollout.policies.policy import Answer, ToolSpec
from rollout.policies.tokens import Message, Tokenizer
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec

_ANSWER = "autoclave-placeholder-answer"
STYLES = {
    "json": 'To act, write <tool_call>{"name": "TOOL", "arguments": {...}}</tool_call>.',
    "xml": "To act, write <tool_call><function=TOOL><parameter=NAME>VALUE</parameter></function></tool_call>.",
}


class ChatPolicy:
    """`style` is what the prompt asks for; both styles are read. `role` is the role under which results are given back."""

    def __init__(
        self, tokenizer: Tokenizer, *, style: str = "json", role: str = "user", system: str = "", longest: int = 4000
    ) -> None:
        if style not in STYLES:
            raise EnvironmentInvalid(f"tool call style {style!r} is unknown", fix=f"use {' or '.join(STYLES)}")
        self._tokenizer = tokenizer
        self._style = style
        self._role = role
        self._system = system
        self._longest = longest  # characters of one result

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._tokenizer.stop_ids

    def first(self, task: TaskSpec, tools: Sequence[ToolSpec]) -> tuple[int, ...]:
        text = self._tokenizer.render(
            [{"role": "system", "content": self._introduction(tools)}, {"role": "user", "content": task.prompt}], opening=True
        )
        return self._tokenizer.encode(text)

    def read(self, ids: Sequence[int], tools: Sequence[ToolSpec]) -> Answer:
        own = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        return parse(self._tokenizer.decode(own), tools)

    def observe(self, answer: Sequence[int], results: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        told = "\n".join(f"<tool_response name={name}>\n{self._plain(self._cut(text))}\n</tool_response>" for name, text in results)
        text = self._between({"role": self._role, "content": told})
        ids = self._tokenizer.encode(text)
        if answer and ids and answer[-1] == ids[0] and answer[-1] in self.stop_ids:
            return ids[1:]  # the model closed its answer itself
        return ids

    def _between(self, message: Message) -> str:
        """Return the template's text from the end of an answer's content up to where the next answer begins."""
        asked: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        whole = self._tokenizer.render([*asked, message], opening=True)
        at = whole.find(_ANSWER)
        if at < 0:
            raise EnvironmentInvalid("this chat template drops an earlier answer's content", fix="give ChatPolicy another template")
        return whole[at + len(_ANSWER) :]

    def _introduction(self, tools: Sequence[ToolSpec]) -> str:
        listed = "\n".join(
            json.dumps({"name": t.name, "description": t.description, "parameters": dict(t.parameters)}, ensure_ascii=False)
            for t in tools
        )
        parts = [self._system or "You solve a task in an environment by calling tools."]
        if tools:
            parts += [f"Tools:\n{listed}", STYLES[self._style]]
        parts.append("When the task is done, answer in plain text without a call.")
        return "\n\n".join(parts)

    def _plain(self, text: str) -> str:
        """What an environment says is text: a mark of the chat's format in it must not end a turn, or begin one."""
        for mark in self._tokenizer.marks:
            text = text.replace(mark, f"{mark[0]}\N{ZERO WIDTH SPACE}{mark[1:]}")
        return text

    def _cut(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        half = self._longest // 2
        return f"{text[:half]}\n... {len(text) - self._longest} characters left out ...\n{text[-half:]}"
