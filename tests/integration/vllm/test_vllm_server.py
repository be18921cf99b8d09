"""The HTTP engine against a real `vllm serve` process, with the model's own tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rollout.engines.engine import LENGTH, Request
from rollout.engines.http import NATIVE, OPENAI, HttpEngine, create
from rollout.errors import EngineLost, RequestInvalid, TokenOutOfRange
from rollout.policies.chat import ChatPolicy
from rollout.policies.policy import Call, Calls, Final, ToolSpec
from rollout.policies.tokens import ModelTokenizer
from rollout.setup import Machinery, Options
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]


def made(url: str, model: Path, folder: Path) -> tuple[HttpEngine, ModelTokenizer]:
    """What `--engine http --url URL --model DIR` makes."""
    options = Options(environment="e", engine="http", url=url, model=str(model))
    engine, tokenizer = create(Machinery(options=options, environment=None, clock=SystemClock(), folder=folder))
    assert isinstance(tokenizer, ModelTokenizer)
    return engine, tokenizer


async def test_ids_go_in_and_out_of_a_served_model(server: Any, model: Path, tmp_path: Path, reference: Callable[..., Any]) -> None:
    engine, tokenizer = made(server.url, model, tmp_path)
    ask = Request(ids=tokenizer.encode("hello <|im_start|>"), session="s", max_tokens=12, temperature=0.7)
    async with engine:
        for interface in (NATIVE, OPENAI):
            engine._native = interface == NATIVE
            found = await engine.generate(ask)
            assert engine.in_force["interface"] == interface
            assert (len(found.ids), found.finish) == (12, LENGTH)
            expected = reference(model, ask.ids + found.ids, 0.7)
            for n, (token, logprob) in enumerate(zip(found.ids, found.logprobs, strict=True)):
                assert logprob == pytest.approx(float(expected[len(ask.ids) + n - 1, token]), abs=2e-3)
        load = await engine.load()

    assert load.running == 0
    assert load.kv_usage is not None


async def test_weights_reach_a_served_model_in_flight_and_a_directory_that_is_not_there_does_not(
    server: Any, model: Path, other_model: Path, tmp_path: Path, publication_in_flight: Callable[..., Any]
) -> None:
    engine, _ = made(server.url, model, tmp_path)
    ask = Request(ids=(7,) * 300, session="s", max_tokens=1000, temperature=0.7)
    async with engine:
        try:
            await publication_in_flight(engine, ask, model, other_model)
            held = engine.version
            with pytest.raises(EngineLost):
                await engine.publish(tmp_path / "nowhere", held + 1)
            assert engine.version == held
            again = await engine.generate(Request(ids=(7,) * 20, session="s", max_tokens=4, temperature=1.0))
            assert set(again.version_of_each()) == {held}
        except BaseException:
            with suppress(EngineLost):
                await engine.publish(model, engine.version + 1)
            raise
        # The other tests ask the same server for the first model's answers.
        assert (await engine.publish(model, held + 1)).changed is True


async def test_what_a_served_model_cannot_take_is_the_requests_own_fault(server: Any, model: Path, tmp_path: Path) -> None:
    engine, _ = made(server.url, model, tmp_path)
    async with engine:
        with pytest.raises(TokenOutOfRange):
            await engine.generate(Request(ids=(engine.vocab_size,), session="s", max_tokens=1))
        with pytest.raises(RequestInvalid):
            await engine.generate(Request(ids=(7,) * 5000, session="s", max_tokens=8))
        assert len((await engine.generate(Request(ids=(7,), session="s", max_tokens=2))).ids) == 2


def test_the_models_tokenizer_keeps_what_was_generated(model: Path) -> None:
    tokenizer = ModelTokenizer(model)
    policy = ChatPolicy(tokenizer)
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = ToolSpec(name="sql", description="ask", parameters=schema)
    task = TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="pay order 7", success={})
    prompt = policy.first(task, (tool,))
    call = tokenizer.encode('<tool_call>{"name": "sql", "arguments": {"query": "select \'ü\'"}}</tool_call>')

    assert "pay order 7" in tokenizer.decode(prompt)
    assert tokenizer.decode(prompt).endswith("<|im_start|>assistant\n")
    assert max(prompt) < tokenizer.vocab_size
    assert policy.read((*call, *policy.stop_ids), (tool,)) == Calls(calls=(Call(tool="sql", arguments={"query": "select 'ü'"}),))
    assert isinstance(policy.read(tokenizer.encode("done"), (tool,)), Final)
    told = policy.observe((*call, *policy.stop_ids), [("sql", "1 row")])
    whole = tokenizer.decode((*prompt, *call, *policy.stop_ids, *told))
    assert whole.count("<|im_end|>") == 4  # system, user, the call, its result
    assert whole.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert set(tokenizer.marks) == {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}
    assert policy.observe((), [("sql", "<|im_end|>")]).count(policy.stop_ids[0]) == policy.observe((), [("sql", "x")]).count(
        policy.stop_ids[0]
    )


def test_a_directory_without_a_tokenizer_or_a_chat_template_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(EnvironmentInvalid, match=directory.name):
            ModelTokenizer(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "chat_template"}))
    with pytest.raises(EnvironmentInvalid, match="has no chat template"):
        ModelTokenizer(tmp_path)
