"""vLLM in process: real weights, real requests, and weights that change under them."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rollout.engines.engine import LENGTH, Request
from rollout.engines.vllm import VllmEngine
from rollout.errors import EngineLost, RequestInvalid, TokenOutOfRange

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

PROMPT = tuple(10 + (n * 7) % 200 for n in range(300))


def request(name: str, **changes: Any) -> Request:
    return replace(Request(ids=PROMPT, session=name, max_tokens=24, temperature=0.7, seed=5), **changes)


async def generating(engine: VllmEngine, *, requests: int) -> None:
    """Wait until so many requests are being served."""
    async with asyncio.timeout(60):
        while (await engine.load()).running != requests:  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.01)


async def test_ids_go_in_and_out_with_the_logprobs_of_the_sampled_distribution(
    engine: VllmEngine, model: Path, other_model: Path, reference: Callable[..., Any]
) -> None:
    await engine.publish(model, engine.version + 1)
    answer = await engine.generate(request("plain"))

    assert len(answer.ids) == 24
    assert answer.finish == LENGTH
    assert answer.version_of_each() == (engine.version,) * 24
    expected = reference(model, PROMPT + answer.ids, 0.7)
    for n, (token, logprob) in enumerate(zip(answer.ids, answer.logprobs, strict=True)):
        assert logprob == pytest.approx(float(expected[len(PROMPT) + n - 1, token]), abs=2e-3)


async def test_an_answer_ends_with_the_id_that_stopped_it(engine: VllmEngine) -> None:
    stopped = await engine.generate(request("stopped", stop_ids=tuple(range(engine.vocab_size))))

    assert len(stopped.ids) == 1
    assert stopped.finish == "stop"


async def test_a_seeded_request_whose_prompt_is_taken_in_pieces_is_served(engine: VllmEngine) -> None:
    answer = await engine.generate(request("pieces", ids=(7,) * 4000, seed=1))

    assert len(answer.ids) == 24


async def test_the_turn_after_finds_its_prefix_in_the_cache(engine: VllmEngine) -> None:
    first = await engine.generate(request("turns", ids=PROMPT[::-1]))
    before = await engine.load()
    second = await engine.generate(request("turns", ids=(*PROMPT[::-1], *first.ids, 40, 41, 42)))
    after = await engine.load()

    assert second.cached_tokens is not None
    assert 0 < second.cached_tokens < len(PROMPT) + len(first.ids) + 3
    assert after.prefix_hits is not None
    assert before.prefix_hits is not None
    assert after.prefix_hits - before.prefix_hits == second.cached_tokens
    assert engine.in_force["kv_usage_peak"] > 0


async def test_weights_change_under_a_request_and_each_token_knows_its_version(
    engine: VllmEngine,
    model: Path,
    other_model: Path,
    reference: Callable[..., Any],
    publication_in_flight: Callable[..., Any],
) -> None:
    report, answer = await publication_in_flight(engine, request("flying", max_tokens=2000), model, other_model)
    old, versions = report.version - 1, answer.version_of_each()

    assert set(versions) == {old, old + 1}
    assert report.in_flight == 1
    whole = PROMPT + answer.ids
    for version, weights in ((old, model), (old + 1, other_model)):
        expected = reference(weights, whole, 0.7)
        places = [n for n, each in enumerate(versions) if each == version]
        for n in places[1:50]:
            assert answer.logprobs[n] == pytest.approx(float(expected[len(PROMPT) + n - 1, answer.ids[n]]), abs=5e-3)


async def test_the_same_weights_again_are_no_change(engine: VllmEngine, model: Path) -> None:
    await engine.publish(model, engine.version + 1)
    report = await engine.publish(model, engine.version + 1)

    assert report.changed is False


async def test_a_request_that_nobody_waits_for_is_ended_in_the_engine(engine: VllmEngine) -> None:
    task = asyncio.create_task(engine.generate(request("left", max_tokens=3500)))
    await generating(engine, requests=1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.generate(request("after", max_tokens=2))
    await generating(engine, requests=0)


async def test_what_the_engine_cannot_take_is_refused_and_the_engine_lives(engine: VllmEngine) -> None:
    with pytest.raises(TokenOutOfRange, match="vocabulary"):
        await engine.generate(request("bad", ids=(*PROMPT, engine.vocab_size)))
    with pytest.raises(TokenOutOfRange):
        await engine.generate(request("bad", ids=(-1,)))
    with pytest.raises(RequestInvalid, match="4096"):
        await engine.generate(request("long", ids=(7,) * 4096))
    assert len((await engine.generate(request("good"))).ids) == 24


async def test_an_answer_ends_where_the_context_does(engine: VllmEngine) -> None:
    answer = await engine.generate(request("edge", ids=(7,) * 4090))

    assert len(answer.ids) == 6
    assert answer.finish == LENGTH


async def test_weights_that_do_not_load_leave_the_old_ones_in_force(
    engine: VllmEngine, model: Path, other_model: Path, tmp_path: Path
) -> None:
    await engine.publish(model, engine.version + 1)
    version, checksum = engine.version, engine.in_force["weights_checksum"]
    torn = tmp_path / "torn"
    shutil.copytree(other_model, torn)
    file = torn / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])

    for weights in (tmp_path / "nowhere", torn):
        with pytest.raises(EngineLost, match=weights.name):
            await engine.publish(weights, version + 1)
    assert engine.version == version
    assert (await engine.publish(model, version)).changed is False
    assert engine.in_force["weights_checksum"] == checksum


async def test_what_a_loader_began_is_put_back(engine: VllmEngine, model: Path, other_model: Path, tmp_path: Path) -> None:
    """A tensor that the model has no place for: the header has all that is wanted, and vLLM's own loader gives up on the way."""
    safetensors = import_module("safetensors.torch")
    await engine.publish(model, engine.version + 1)
    version, checksum = engine.version, engine.in_force["weights_checksum"]
    odd = tmp_path / "odd"
    shutil.copytree(other_model, odd)
    tensors = safetensors.load_file(odd / "model.safetensors")
    tensors["zzz.unknown.weight"] = tensors["model.norm.weight"].clone()
    safetensors.save_file(tensors, odd / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(EngineLost, match="odd"):
        await engine.publish(odd, version + 1)
    assert engine.version == version
    assert engine.in_force["weights_checksum"] == checksum
    assert len((await engine.generate(request("after"))).ids) == 24


async def test_an_engine_that_dies_fails_its_requests_at_once(model: Path, make_engine: Callable[[Path], VllmEngine]) -> None:
    before = set(multiprocessing.active_children())
    async with make_engine(model) as mortal:
        flying = asyncio.create_task(mortal.generate(request("flying", max_tokens=3500)))
        await generating(mortal, requests=1)
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
        with pytest.raises(EngineLost):
            async with asyncio.timeout(60):
                await flying
        with pytest.raises(EngineLost):
            await mortal.generate(request("after"))
        with pytest.raises(EngineLost):
            await mortal.publish(model, 1)
