"""One HTTP exchange over asyncio streams: enough for an engine's JSON interface. Cancelled, it hangs up: the server aborts."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any, cast
from urllib.parse import urlsplit

from rollout.errors import EngineLost
from sandbox.errors import EnvironmentInvalid

LARGEST = 64_000_000  # bytes of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Raise EngineLost when the body is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise EngineLost(f"the server answered {self.status} with something that is not JSON: {self.said()}") from error

    def said(self) -> str:
        return self.body[:300].decode("utf-8", "replace").strip()


class _Held:
    """Lets `http.client` read an answer that is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._data)


class Wire:
    """One connection an exchange. `base` is like http://127.0.0.1:8000; `key` is sent as a bearer token and never logged."""

    def __init__(self, base: str, *, key: str = "") -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EnvironmentInvalid(f"{base!r} is no address of an engine", fix="give one like http://127.0.0.1:8000")
        self.base = base.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._key = key

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, limit_s: float | None = None) -> Answer:
        """Raise EngineLost when nobody answers, within `limit_s` seconds where it is given; else the caller has a deadline."""
        data = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {self._path}{path} HTTP/1.1", f"Host: {self._host}:{self._port}", "Connection: close", "Accept: */*"]
        head += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
        if self._key:
            head.append(f"Authorization: Bearer {self._key}")
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
                try:
                    writer.write("\r\n".join([*head, "", ""]).encode() + data)
                    await writer.drain()
                    return _parsed(await _all(reader), method)
                finally:
                    writer.close()
        except TimeoutError as error:
            within = "" if limit_s is None else f" within {limit_s:g} s"
            raise EngineLost(f"no answer from {self.base}{path}{within}") from error
        except (OSError, HTTPException) as error:
            raise EngineLost(f"no answer from {self.base}{path}: {type(error).__name__} {error}".rstrip()) from error


async def _all(reader: asyncio.StreamReader) -> bytes:
    out = bytearray()
    while chunk := await reader.read(65_536):
        out += chunk
        if len(out) > LARGEST:
            raise EngineLost(f"an answer of more than {LARGEST} bytes")
    return bytes(out)


def _parsed(data: bytes, method: str) -> Answer:
    response = HTTPResponse(cast("Any", _Held(data)), method=method)
    response.begin()
    return Answer(status=response.status, body=response.read())
