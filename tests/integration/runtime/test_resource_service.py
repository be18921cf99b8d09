"""The `service` kind: a server of the author's own behind a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstanceLost, ResetFailed
from sandbox.ports import Instance, Runtime

pytestmark = [pytest.mark.namespaces]

SERVER = """
import http.server, pathlib, socketserver, sys
state = pathlib.Path("/srv/api/count")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/count":
            state.write_text(str(int(state.read_text()) + 1))
        self.send_response(200); self.end_headers(); self.wfile.write(state.read_bytes())
    def address_string(self): return "client"
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
Server(sys.argv[1], Handler).serve_forever()
"""


@pytest.fixture
def api(tmp_path: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "server.py").write_text(SERVER)
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "count").write_text("41")
    options = {
        "argv": ["/usr/bin/python3", "-I", "/app/server.py", "{socket}"],
        "app": str(tmp_path / "app"),
        "state": "/srv/api",
        "seed": str(tmp_path / "seed"),
        "http": "/health",
    }
    return {"api": ("service", options)}


async def get(address: str, path: str) -> bytes:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_unix_connection(address)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        data = await reader.read()
        writer.close()
    return data.partition(b"\r\n\r\n")[2]


async def test_a_service_is_reached_and_restored(
    make: Any, runtime: Runtime, begin: Callable[..., Awaitable[Instance]], api: Any
) -> None:
    world = make(api)
    golden = await runtime.build(world)
    try:
        instance = await begin(world, golden)
        assert await get(instance.endpoint("api"), "/count") == b"42"
        assert await get(instance.subject().endpoint("api"), "/") == b"42"
        connect = "import socket, os; socket.socket(socket.AF_UNIX).connect(os.environ['API_SOCKET'])"
        assert (await instance.run(["python3", "-c", connect])).exit_code == 0
        assert (await instance.run(["cat", "/srv/api/count"])).exit_code != 0
        assert instance.subject().tree("api").read("count") == b"42"
        with pytest.raises(ResetFailed, match="cannot be cleaned in place"):
            await instance.reset_in_place(2, hook=None)
        await instance.restore(golden, 3)
        assert await get(instance.endpoint("api"), "/count") == b"42"
        await instance.close()
    finally:
        for sealed in golden.dirs:
            await runtime.storage.remove(sealed)


async def test_a_service_that_ends_at_once_says_what_it_said(make: Any, runtime: Runtime) -> None:
    world = make({"api": ("service", {"argv": ["/bin/sh", "-c", "echo no such thing >&2; exit 1"]})})
    with pytest.raises(InstanceLost, match="no such thing"):
        await runtime.build(world)


async def test_a_service_talks_to_the_servers_that_it_uses(
    make: Any, runtime: Runtime, begin: Callable[..., Awaitable[Instance]], api: Any, tmp_path: Path
) -> None:
    front = """
import http.server, socket, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with socket.socket(socket.AF_UNIX) as back:
            back.connect("/run/api/service.sock")
            back.sendall(b"GET /count HTTP/1.0\\r\\n\\r\\n")
            body = back.makefile("rb").read().partition(b"\\r\\n\\r\\n")[2]
        self.send_response(200); self.end_headers(); self.wfile.write(b"api says " + body)
    def address_string(self): return "client"
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
Server(sys.argv[1], Handler).serve_forever()
"""
    argv = ["/usr/bin/python3", "-I", "-c", front, "{socket}"]
    world = make({**api, "front": ("service", {"argv": argv, "uses": ["api"]})})
    golden = await runtime.build(world)
    try:
        instance = await begin(world, golden)
        assert await get(instance.endpoint("front"), "/") == b"api says 42"
        await instance.restore(golden, 2)
        assert await get(instance.endpoint("front"), "/") == b"api says 42"
        await instance.close()
    finally:
        for sealed in golden.dirs:
            await runtime.storage.remove(sealed)
