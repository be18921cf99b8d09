"""The kind `http`: GET requests to a service, over a Unix socket or the loopback, from the host."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from probes.canonical import bytes_digest, name_of
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.clock import SystemClock
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec

BODY_LIMIT = 16_000_000
SHORT = 400


class HttpOptions(Options):
    """`paths` are asked for one after another; `headers` names the response headers that count."""

    paths: tuple[str, ...] = Field(default=("/",), min_length=1)
    headers: tuple[str, ...] = ("content-type",)
    send: dict[str, str] = Field(default_factory=dict, description="request headers")
    limit_s: float = Field(default=10.0, gt=0, description="for one whole answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProbe:
    """Reads what a service answers."""

    name: str
    resource: str
    depth: Depth
    options: HttpOptions
    digest: str

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return self.depth

    async def read(self, context: ProbeContext) -> Findings:
        endpoint = context.subject.endpoint(self.resource)
        limit = min(self.options.limit_s, context.limit_s)
        fields = {"paths": str(len(self.options.paths))}
        for path in self.options.paths:
            fields |= await read_in_thread(get, endpoint, path, self.options, limit)
        return Findings(fields=fields)


def get(endpoint: str, path: str, options: HttpOptions, limit_s: float) -> dict[str, str]:
    """Make one request and describe the answer. Redirects are answers, not followed."""
    address, prefix = _address(endpoint)
    connection = _Connection(address, limit_s)
    try:
        connection.request("GET", prefix + path, headers={"Host": "localhost", "Connection": "close", **options.send})
        response = connection.getresponse()
        body = response.read(BODY_LIMIT + 1)
    except TimeoutError:
        raise TimeoutError(f"GET {path}: no whole answer within {limit_s:g} s") from None
    finally:
        connection.close()
    if len(body) > BODY_LIMIT:
        raise ValueError(f"GET {path}: the answer has more than {BODY_LIMIT} bytes")
    name = f"GET {name_of(path)}"
    text = body.decode("utf-8", "backslashreplace")
    shown = text if len(text) <= SHORT else f"{len(body)} bytes, {bytes_digest(body)}"
    fields = {f"{name}/status": str(response.status), f"{name}/body": shown}
    for header in options.headers:
        values = response.headers.get_all(header)
        if values is not None:
            fields[f"{name}/{header.lower()}"] = "\n".join(values)
    return fields


class _Socket(socket.socket):
    """A socket whose every wait ends at one deadline: a server that sends a byte now and then gains no time by it."""

    def until(self, deadline: float) -> None:
        self._deadline = deadline
        self._hurry()

    def recv_into(self, *args: Any) -> int:
        self._hurry()
        return super().recv_into(*args)

    def _hurry(self) -> None:
        left = self._deadline - SystemClock().monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)


class _Connection(http.client.HTTPConnection):
    """A connection to a Unix socket or a port, of which all together may take `limit_s`."""

    def __init__(self, address: str | tuple[str, int], limit_s: float) -> None:
        super().__init__("localhost")
        self._address = address
        self._limit_s = limit_s

    def connect(self) -> None:
        family = (
            socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        )
        made = _Socket(family, socket.SOCK_STREAM)
        self.sock = made
        made.until(SystemClock().monotonic() + self._limit_s)
        made.connect(self._address)


def _address(endpoint: str) -> tuple[str | tuple[str, int], str]:
    """Understand `http+unix://%2Frun%2Fx.sock/prefix`, `unix:/run/x.sock`, a bare path, `127.0.0.1:8080` and `http://127.0.0.1:8080/prefix`."""
    if endpoint.startswith("/"):
        return endpoint, ""
    host, _, port = endpoint.rpartition(":")
    if port.isdigit() and host and "/" not in host:
        return (host, int(port)), ""
    parts = urlsplit(endpoint)
    if parts.scheme == "http+unix":
        return unquote(parts.netloc), parts.path.rstrip("/")
    if parts.scheme == "unix":
        return unquote(parts.path), ""
    if parts.scheme == "http" and parts.hostname is not None:
        return (parts.hostname, parts.port or 80), parts.path.rstrip("/")
    raise ValueError(f"an http probe cannot read the endpoint {endpoint!r}")


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> HttpProbe:
    """Make a probe of a service's answers."""
    options = read_options(spec, HttpOptions, environment)
    return HttpProbe(
        name=spec.name,
        resource=resource_of(spec, environment),
        depth=spec.depth,
        options=options,
        digest=digest_of_kind(spec, options),
    )
