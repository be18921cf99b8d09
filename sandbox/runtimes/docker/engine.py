"""The Docker engine behind an asynchronous face: bounded worker threads with one client each, a deadline on every call.

The docker package is imported with the first call. A call whose caller is cancelled goes on to its end or to its deadline, so that
whoever cleans up afterwards finds the engine at rest. Everything asked here may safely be asked twice, and is, once, where a
connection turned out to be dead (an engine that was restarted leaves such).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import platform
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sandbox.aio import run_shielded
from sandbox.breaker import Breaker
from sandbox.clock import SystemClock
from sandbox.errors import AutoclaveError, LimitReached, RuntimeUnavailable
from sandbox.ports import Clock
from sandbox.runtimes.docker import troubles
from sandbox.runtimes.docker.address import Address

log = logging.getLogger(__name__)
T = TypeVar("T")
CALL_S = 60.0
_GRACE_S = 5.0  # beyond a socket's own deadline, for an answer that trickles


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """How much is asked of an engine at once. Times in seconds."""

    calls: int = 8
    creations: int = 4
    create_s: float = 120.0
    failures: int = 5  # of creations in a row, before the breaker opens
    pause_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine says of itself."""

    version: str
    api: str
    storage_driver: str
    data_root: str
    hostname: str
    cgroup: str  # "1" or "2"
    kernel: str
    runtimes: tuple[str, ...]
    security: tuple[str, ...]


class Engine:
    """One engine, used by one manager. Made without a connection; `close` ends those there are."""

    def __init__(self, address: Address, *, home: str, limits: EngineLimits | None = None, clock: Clock | None = None) -> None:
        self.address = address
        self.home = home  # the identity of our home, in the labels of everything that we make
        self.limits = limits or EngineLimits()
        self.breaker = Breaker(clock=clock or SystemClock(), threshold=self.limits.failures, pause_s=self.limits.pause_s)
        self.held: set[str] = set()  # tags and owners of what lives in this process: no sweep touches them
        # What may still be there: containers whose creation came to no known end, and whose removal failed, or a volume's. It is
        # tried again by `leftovers.settle`.
        self.doubtful: set[str] = set()
        self.doubtful_volumes: set[str] = set()
        self._threads = concurrent.futures.ThreadPoolExecutor(self.limits.calls, thread_name_prefix="autoclave-docker")
        self._own = threading.local()
        self._clients: set[Any] = set()
        self._version: str | None = None
        self._places = asyncio.Semaphore(self.limits.calls)
        self.alone = asyncio.Lock()  # for what must be asked and done in one
        self._creations = asyncio.Semaphore(self.limits.creations)
        self._facts: EngineFacts | None = None
        self._closed = False

    @property
    def beside(self) -> bool:
        """True where the manager is root on the engine's own machine, so that it sees the processes and mounts of containers. A
        socket may lead to another machine: `facts` finds out."""
        here = self._facts is None or (self._facts.hostname == platform.node() and self._facts.kernel == platform.release())
        return self.address.is_socket and os.geteuid() == 0 and here

    async def call(self, function: Callable[[Any], T], *, doing: str, limit_s: float = CALL_S) -> T:
        """Run `function(client)` in a worker thread; `client` is a `docker.APIClient`. `doing` begins the message of an error."""
        return await run_shielded(self._call(function, doing, limit_s))

    async def _call(self, function: Callable[[Any], T], doing: str, limit_s: float) -> T:
        if self._closed:
            raise RuntimeUnavailable(f"{doing}: this connection to the Docker engine is closed")
        loop = asyncio.get_running_loop()
        give_up = loop.time() + limit_s + _GRACE_S
        try:
            async with asyncio.timeout_at(give_up):
                await self._places.acquire()
        except TimeoutError:
            raise LimitReached(f"{doing}: {self.limits.calls} calls to the Docker engine are under way, and none ended") from None
        future = loop.run_in_executor(self._threads, self._work, function, doing, limit_s)
        future.add_done_callback(self._done)
        await asyncio.wait({future}, timeout=max(0.0, give_up - loop.time()))
        if not future.done():
            raise troubles.AnswerLost(f"{doing}: the Docker engine at {self.address.url} did not finish within {limit_s:g} s")
        return future.result()

    def _done(self, future: asyncio.Future[Any]) -> None:
        """A thread's place is free when the thread is, not when its caller gives up."""
        self._places.release()
        if not future.cancelled():
            future.exception()

    def _work(self, function: Callable[[Any], T], doing: str, limit_s: float) -> T:
        try:
            return self._try(function, doing, limit_s)
        except troubles.AnswerLost as error:
            if "did not answer in time" in error.message:
                raise
            self._drop()
            return self._try(function, doing, limit_s)

    def _try(self, function: Callable[[Any], T], doing: str, limit_s: float) -> T:
        try:
            _knock(self.address, limit_s)
            client = self._client(limit_s)
            client.timeout = limit_s
            return function(client)
        except ImportError as error:
            raise RuntimeUnavailable(
                f"the docker runtime needs a package that is not there ({error})", fix=troubles.INSTALL
            ) from None
        except AutoclaveError:
            raise
        except Exception as error:
            known = troubles.translate(error, doing, self.address.url)
            if known is None:
                raise
            raise known from error

    def _client(self, limit_s: float) -> Any:
        found = getattr(self._own, "client", None)
        if found is None:
            found = self._own.client = _connect(self.address, self._version, limit_s)
            self._version = found.api_version
            self._clients.add(found)
        return found

    def _drop(self) -> None:
        client, self._own.client = getattr(self._own, "client", None), None
        if client is not None:
            self._clients.discard(client)
            client.close()

    @asynccontextmanager
    async def creating(self, doing: str) -> AsyncIterator[None]:
        """Hold one of the places for creations, behind the breaker: what fails for the engine's sake counts, an author's fault does
        not."""
        if not self.breaker.can_try():
            raise RuntimeUnavailable(
                f"{doing}: creation failed {self.limits.failures} times in a row, the last time because: {self.breaker.reason}",
                fix=f"mend that; the next try may be made in {self.breaker.retry_after_s:.0f} s",
            )
        try:
            async with asyncio.timeout(self.limits.create_s):
                await self._creations.acquire()
        except TimeoutError:
            raise LimitReached(
                f"{doing}: {self.limits.creations} creations are under way at the Docker engine, and none ended in time"
            ) from None
        self.breaker.begin()
        try:
            yield
        except (troubles.ImageMissing, troubles.Refused):
            self.breaker.skipped()
            raise
        except (RuntimeUnavailable, LimitReached) as error:
            self.breaker.failed(error.message)
            raise
        except BaseException:
            self.breaker.skipped()
            raise
        else:
            self.breaker.succeeded()
        finally:
            self._creations.release()

    async def facts(self) -> EngineFacts:
        """Ask the engine what it is, once."""
        if self._facts is None:
            found = await self.call(lambda client: client.info(), doing="asking the Docker engine what it is")
            self._facts = _facts(found, self._version or "")
        return self._facts

    async def close(self) -> None:
        """End the connections. Idempotent. A call that is still under way ends by its own deadline."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        clients, self._clients = self._clients, set()
        for client in clients:
            client.close()


def _knock(address: Address, limit_s: float) -> None:
    """Raise OSError where nobody listens. The docker package would leave its socket open then."""
    if address.is_socket:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(limit_s)
            probe.connect(address.path)


def _connect(address: Address, version: str | None, limit_s: float) -> Any:
    import docker

    tls: Any = False
    if address.certificates is not None:
        place = address.certificates
        files = (str(place / "cert.pem"), str(place / "key.pem"))
        tls = docker.tls.TLSConfig(client_cert=files, ca_cert=str(place / "ca.pem"), verify=address.verify)
    client = docker.APIClient(base_url=address.url, version=version, timeout=limit_s, tls=tls)
    # It would wait without end for the next piece of an archive, and its thread with it.
    client._disable_socket_timeout = lambda _socket: None
    return client


def _facts(found: Mapping[str, Any], api: str) -> EngineFacts:
    return EngineFacts(
        version=str(found.get("ServerVersion", "")),
        api=api,
        storage_driver=str(found.get("Driver", "")),
        data_root=str(found.get("DockerRootDir", "")),
        hostname=str(found.get("Name", "")),
        cgroup=str(found.get("CgroupVersion", "1")),
        kernel=str(found.get("KernelVersion", "")),
        runtimes=tuple(sorted(found.get("Runtimes") or {})),
        security=tuple(found.get("SecurityOptions") or ()),
    )
