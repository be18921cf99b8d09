"""What environments do in a browser that several namespaces share: in the context of one of them, and as its holder."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs import browser, scoring
from sandbox.model import BrowserAction, Isolation, NamespaceId, TaskSpec
from sandbox.ports import Part, Sharing

ORIGIN = "http://world.test"


class Browser:
    """Answers as the relay of a shared browser does; local storage is another in each context."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._context: str | None = None

    @contextlib.asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[str]:
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield str(path)
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = json.loads((await reader.readuntil(b"\0"))[:-1])
                self.asked.append((asked["method"], asked.get("params", {})))
                events = {"Page.navigate": "Fetch.requestPaused", "Fetch.fulfillRequest": "Page.loadEventFired"}
                for message in (
                    {"id": asked["id"], "result": self._answer(asked["method"], asked.get("params", {}))},
                    *([{"method": events[asked["method"]], "params": {"requestId": "r"}}] if asked["method"] in events else []),
                ):
                    if "method" in message:
                        message["sessionId"] = "s"
                    writer.write(json.dumps(message).encode() + b"\0")
                await writer.drain()
        writer.close()

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "Target.createTarget":
            self._context = params.get("browserContextId")
        kept = {"local_storage": {"done": "true"} if self._context == "mine" else {}}
        answers: dict[str, dict[str, Any]] = {
            "Relay.parts": {"parts": {"ns_1": "mine", "ns_2": "theirs"}},
            "Target.createTarget": {"targetId": "t"},
            "Target.attachToTarget": {"sessionId": "s"},
            "Target.getTargets": {"targetInfos": [{"targetId": "t", "type": "page"}]},
            "Runtime.evaluate": {"result": {"value": json.dumps(kept)}},
        }
        return answers.get(method, {})


# What else a namespace of a shared instance tells a probe, and no success check in a browser asks.
_ELSE = dict.fromkeys(
    ("environment", "in_place", "proof", "in_force", "tree", "processes", "listeners", "mounts", "trusted_run"), str
)


@pytest.mark.parametrize(("part", "reward"), [("ns_1", 1.0), ("ns_2", 0.0), ("ns_3", None)])
async def test_a_success_check_reads_the_context_of_whose_session_it_is(tmp_path: Path, part: str, reward: float | None) -> None:
    claim = {"name": "done", "path": ["local_storage", "done"], "document": True}
    success = {"kind": "browser", "resource": "web", "origin": ORIGIN, "claims": [claim]}
    task = TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="p", success=success)
    own = Part(isolation=Isolation.CONTEXT, namespace=NamespaceId("n"), name=part, secret="s3")
    server = Browser()
    async with server.serving(tmp_path / "cdp") as path:
        subject = SimpleNamespace(**_ELSE, namespace="n", sharing=Sharing(own=own, names={part}), endpoint=lambda resource: path)
        assert (await scoring.score(subject, task)).reward == reward
    made = [params.get("browserContextId") for method, params in server.asked if method == "Target.createTarget"]
    assert None not in made, "a page in the default context is a field of the whole browser"


async def test_what_is_done_to_a_shared_browser_is_done_as_the_holder_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3")
    server = Browser()
    async with server.serving(tmp_path / "cdp") as path:
        for address in (f"ws+unix://{path}:/part/ns_1#{tmp_path}/secret", f"ws+unix://{path}:/"):
            await browser.act(address, BrowserAction(calls=(("Storage.clearCookies", {}),)), limit_s=20)
    assert server.asked == [
        ("Relay.enter", {"name": "ns_1", "secret": "s3"}),
        ("Storage.clearCookies", {}),
        ("Storage.clearCookies", {}),
    ]
