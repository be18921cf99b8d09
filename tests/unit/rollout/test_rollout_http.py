"""The HTTP engine against a small real server that speaks as `vllm serve` does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout.engines.engine import LENGTH, STOP, Request, VersionSpan
from rollout.engines.http import HttpEngine
from rollout.errors import EngineLost, RequestInvalid, TokenOutOfRange
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid

ASK = Request(ids=(1, 2, 3), session="s", max_tokens=4, stop_ids=(9,), seed=7, temperature=0.5)


class Server:
    """Answers over a socket; `native` and `dev` say which interfaces it has."""

    def __init__(self, *, native: bool = True, dev: bool = True, chunked: bool = False) -> None:
        self.native, self.dev, self.chunked = native, dev, chunked
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.version = "default"
        self.weights = "first"
        self.ids: list[int] | None = [4, 5, 9]
        self.status = 200
        self.holding = False
        self.reached = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.finish = "stop"
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.forbids: set[str] = set()
        self.root = ""
        self.spoils: set[str] = set()  # weights whose loader gives up on the way

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:])}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(data) if data else {}
        self.asked.append((path, body | {"_auth": headers.get("authorization")}))
        if self.holding and "generate" in path:
            self.reached.set()
            await reader.read(1)  # returns when the client hangs up
            self.hung_up.set()
            writer.close()
            return
        if path in self.hangs:
            await reader.read(1)
            writer.close()
            return
        status, answer = self._answer(method, path, body)
        text = json.dumps(answer) if not isinstance(answer, str) else answer
        self._write(writer, status, text.encode())
        await writer.drain()
        writer.close()

    def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        if self.chunked:
            half = len(body) // 2
            chunks = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in (body[:half], body[half:]) if p)
            writer.write(f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
        else:
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        base = path.partition("?")[0]
        if base in self.fails:
            return 500, "it broke"
        if base in self.forbids:
            return 403, {"error": "PermissionDeniedError"}
        if base == "/v1/models":
            return 200, {"data": [{"id": "small", "root": self.root, "max_model_len": 64}]}
        if base == "/metrics":
            return 200, '# HELP x\nvllm:num_requests_running{engine="0"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        if base == "/inference/v1/generate" and self.native:
            spans = [{"version": "default", "start": 0, "end": 1}, {"version": self.version, "start": 1, "end": 3}]
            content = [{"token_id": i, "logprob": -i / 10} for i in self.ids or ()]
            choice = {"index": 0, "token_ids": self.ids, "finish_reason": self.finish, "logprobs": {"content": content}}
            return self.status, {"choices": [choice | {"weight_versions": spans}]}
        if base == "/v1/completions":
            logprobs = {"token_logprobs": [-0.4, -0.5, -0.9]}
            return self.status, {"choices": [{"finish_reason": self.finish, "token_ids": self.ids, "logprobs": logprobs}]}
        return self._dev(base, body) if self.dev else (404, {"detail": "Not Found"})

    def _dev(self, base: str, body: dict[str, Any]) -> tuple[int, Any]:
        if base == "/weight_info":
            return 200, {"weight_version": self.version}
        if base == "/weight_checker":
            return 200, {"checksums": {"layer": self.weights}}
        if base == "/collective_rpc":
            self.weights = body["kwargs"]["weights_path"]
            if self.weights in self.spoils:
                self.weights = "half of each"
                return 500, "a tensor is missing"
        if base == "/update_weight_version":
            self.version = body["new_version"]
        return (200, {}) if base in ("/pause", "/resume", "/collective_rpc", "/update_weight_version") else (404, {})


def engine(url: str, **options: Any) -> HttpEngine:
    return HttpEngine(url, vocab_size=10, clock=SystemClock(), **options)


@pytest.mark.parametrize("chunked", [False, True])
async def test_ids_go_in_and_ids_logprobs_and_versions_come_out(chunked: bool) -> None:
    server = Server(chunked=chunked)
    async with server.serving() as url, engine(url, key="secret") as http:
        found = await http.generate(ASK)

    assert (found.ids, found.logprobs, found.finish) == ((4, 5, 9), (-0.4, -0.5, -0.9), STOP)
    assert found.versions == (VersionSpan(version=0, start=0, end=1), VersionSpan(version=0, start=1, end=3))
    sent = server.asked[-1][1]
    assert sent["token_ids"] == [1, 2, 3]
    assert sent["sampling_params"]["temperature"] == 0.5
    assert sent["sampling_params"]["stop_token_ids"] == [9]
    assert "seed" not in sent["sampling_params"]  # on a CPU vLLM 0.32 may die of it
    assert sent["_auth"] == "Bearer secret"
    assert "secret" not in str(http.in_force)


async def test_a_server_without_the_token_interface_is_asked_for_completions() -> None:
    server = Server(native=False, dev=False)
    server.finish = "length"
    async with server.serving() as url, engine(url, model="small") as http:
        found = await http.generate(ASK)
        await http.generate(ASK)

    assert (found.ids, found.finish, found.versions) == ((4, 5, 9), LENGTH, (VersionSpan(version=0, start=0, end=3),))
    assert [path for path, _ in server.asked if "generate" in path] == ["/inference/v1/generate"]
    assert server.asked[-1][1]["prompt"] == [1, 2, 3]
    assert server.asked[-1][1]["return_token_ids"] is True


async def test_a_server_that_gives_no_ids_is_refused() -> None:
    server = Server(native=False)
    server.ids = None
    async with server.serving() as url, engine(url) as http:
        with pytest.raises(EngineLost, match="never tokenised again"):
            await http.generate(ASK)


async def test_weights_are_published_in_flight_and_shown_to_have_changed() -> None:
    server = Server()
    async with server.serving() as url, engine(url) as http:
        report = await http.publish(Path("/weights/2"), 1)
        found = await http.generate(ASK)

    assert (report.version, report.changed, http.version) == (1, True, 1)
    assert [path for path, _ in server.asked if "weight" not in path][1:4] == ["/pause?mode=keep", "/collective_rpc", "/resume"]
    assert [span.version for span in found.versions] == [0, 1]


async def test_weights_that_do_not_load_leave_the_old_version_and_a_server_that_goes_on() -> None:
    server = Server()
    server.fails = {"/collective_rpc"}
    async with server.serving() as url, engine(url) as http:
        with pytest.raises(EngineLost, match="it broke"):
            await http.publish(Path("/weights/2"), 1)
        assert (await http.generate(ASK)).ids == (4, 5, 9)

    assert http.version == 0
    assert [path for path, _ in server.asked][-2:] == ["/resume", "/inference/v1/generate"]


async def test_weights_that_load_in_part_are_replaced_by_the_old_ones_again() -> None:
    server = Server()
    server.root = server.weights = "/weights/1"
    server.spoils = {"/weights/2"}
    async with server.serving() as url, engine(url) as http:
        with pytest.raises(EngineLost, match="a tensor is missing"):
            await http.publish(Path("/weights/2"), 1)
        assert server.weights == "/weights/1"
        assert (await http.generate(ASK)).version_of_each() == (0, 0, 0)
        assert (await http.publish(Path("/weights/3"), 1)).changed is True

    assert http.version == 1
    assert http.in_force["weights"] == "/weights/3"


async def test_a_server_left_with_weights_that_nobody_can_name_is_asked_for_nothing_more() -> None:
    server = Server()
    server.spoils = {"/weights/2"}  # and it does not say where its first ones are
    async with server.serving() as url, engine(url) as http:
        with pytest.raises(EngineLost, match="a tensor is missing"):
            await http.publish(Path("/weights/2"), 1)
        asked = len(server.asked)
        with pytest.raises(EngineLost, match="does not show that the old ones are in force"):
            await http.generate(ASK)
        with pytest.raises(EngineLost, match="does not show"):
            await http.publish(Path("/weights/3"), 1)
        assert len(server.asked) == asked


@pytest.mark.parametrize("path", ["/pause?mode=keep", "/collective_rpc", "/resume"])
async def test_a_server_that_hangs_in_a_publication_costs_a_deadline(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.engines.http.ASK_S", 0.2)
    monkeypatch.setattr("rollout.engines.http.PUBLISH_S", 0.2)
    server = Server()
    async with server.serving() as url, engine(url) as http:
        server.hangs = {path}
        with pytest.raises(EngineLost, match=f"no answer from .*{path.partition('?')[0]}.* within 0.2 s"):
            await http.publish(Path("/weights/2"), 1)


async def test_a_server_whose_token_interface_is_switched_off_is_asked_for_completions() -> None:
    """As vLLM is without --enable-scale-out: it forbids that path, and serves the other."""
    server = Server()
    server.forbids = {"/inference/v1/generate"}
    async with server.serving() as url, engine(url) as http:
        assert (await http.generate(ASK)).ids == (4, 5, 9)
        assert http.in_force["interface"] == "/v1/completions"


async def test_a_server_that_does_not_say_what_its_weights_are_called_is_taken_at_its_first_answer() -> None:
    server = Server(dev=False)
    async with server.serving() as url, engine(url) as http:
        assert (await http.generate(ASK)).version_of_each() == (0, 0, 0)
        server.version = "of somebody else"
        with pytest.raises(EngineLost, match="were not published by this run"):
            await http.generate(ASK)
        assert http.context == 64


async def test_without_the_development_routes_publishing_says_what_to_do() -> None:
    async with Server(dev=False).serving() as url, engine(url) as http:
        with pytest.raises(EngineLost, match="VLLM_SERVER_DEV_MODE=1"):
            await http.publish(Path("/weights"), 1)


@pytest.mark.parametrize(("status", "error"), [(500, EngineLost), (503, EngineLost), (400, RequestInvalid), (422, RequestInvalid)])
async def test_what_the_server_says_is_infrastructure_or_data(status: int, error: type[Exception]) -> None:
    server = Server()
    server.status = status
    async with server.serving() as url, engine(url) as http:
        with pytest.raises(error, match="choices"):
            await http.generate(ASK)


async def test_ids_are_checked_before_they_go_in() -> None:
    server = Server()
    async with server.serving() as url, engine(url) as http:
        before = len(server.asked)
        for ids in ((1, 10), (-1,), ()):
            with pytest.raises(TokenOutOfRange):
                await http.generate(Request(ids=ids, session="s", max_tokens=1))
        assert len(server.asked) == before


async def test_nobody_there_and_a_wrong_model() -> None:
    async with Server().serving() as url:
        with pytest.raises(EnvironmentInvalid, match="it serves: small"):
            await engine(url, model="large").__aenter__()
    with pytest.raises(EngineLost, match="no answer from"):
        await engine(url).__aenter__()
    with pytest.raises(EnvironmentInvalid, match="is no address"):
        engine("localhost:8000")


async def test_a_cancelled_request_hangs_up() -> None:
    server = Server()
    async with server.serving() as url, engine(url) as http:
        server.holding = True
        asking = asyncio.create_task(http.generate(ASK))
        await server.reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.hung_up.wait()


async def test_the_load_comes_from_the_servers_metrics() -> None:
    async with Server().serving() as url, engine(url) as http:
        load = await http.load()

    assert (load.running, load.kv_usage, load.waiting) == (3, 0.25, None)
