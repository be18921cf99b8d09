"""One client of the service: its calls, its sessions, and what happens to them when it goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from sandbox.client import wire
from sandbox.errors import AutoclaveError, EnvironmentInvalid, LimitReached, StaleGeneration
from sandbox.pool import Pool, Session

log = logging.getLogger(__name__)
CALLS = 256  # of one client at once; more wait in its socket
ACTIONS = frozenset(
    {"run", "given", "read_file", "write_file", "browse", "snapshot", "fork", "score", "heartbeat", "memory_peak", "release"}
)
QUESTIONS = frozenset(
    {
        "clearance",
        "cleared",
        "ship",
        "record_update",
        "record_checkpoint",
        "recall",
        "release",
        "discard",
        "resume",
        "status",
        "why",
        "record_audit",
        "audit_namespaces",
        "verify_seals",
    }
)


class Peer:
    """Answers one connection until it ends or stays silent for `silence_s`; its sessions then end as lost."""

    def __init__(
        self,
        pool: Pool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        silence_s: float,
        drain: Callable[[float | None], Awaitable[None]],
        roll: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._pool = pool
        self._reader = reader
        self._writer = writer
        self._silence_s = silence_s
        self._drain = drain
        self._roll = roll
        self._sessions: dict[str, Session] = {}
        self._addresses: dict[str, Collection[str]] = {}  # the resources whose addresses each holder has
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._granted: dict[int, Session] = {}  # by the number of the call that was answered with it
        self._places = asyncio.Semaphore(CALLS)

    async def serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as calls:
                await self._listen(calls)
                for call in self._calls.values():
                    call.cancel()
        finally:
            self._writer.close()
            for session in list(self._sessions.values()):
                if session.outcome != "released":  # who releases says what it used; who only leaves may have used every address
                    for resource in self._addresses.get(session.lease.id, ()):
                        await session.given(resource)
                await self._give_up(session)

    async def _listen(self, calls: asyncio.TaskGroup) -> None:
        while True:
            try:
                async with asyncio.timeout(self._silence_s):
                    frame = await wire.read_frame(self._reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            except TimeoutError:
                log.warning("client is silent", extra={"event": "service.silent", "sessions": len(self._sessions)})
                return
            except (LimitReached, ValueError):
                log.warning("client sent a bad frame", extra={"event": "service.bad_frame"})
                return
            if "cancel" in frame:
                if (call := self._calls.get(frame["cancel"])) is not None:
                    call.cancel()
                if (session := self._granted.pop(frame["cancel"], None)) is not None:  # the answer crossed the cancellation
                    calls.create_task(self._give_up(session))
            elif "method" in frame:
                await self._places.acquire()
                self._calls[frame["id"]] = calls.create_task(self._answer(frame))

    async def _answer(self, frame: Mapping[str, Any]) -> None:
        number = frame["id"]
        try:
            try:
                params = {name: wire.decode(value) for name, value in frame["params"].items()}
                answer = wire.pack({"id": number, "result": wire.encode(await self._do(number, frame["method"], params))})
            except Exception as error:
                if not isinstance(error, AutoclaveError):
                    log.warning("call failed", exc_info=True, extra={"event": "service.call_failed", "method": frame["method"]})
                answer = wire.pack({"id": number, "error": wire.encode_error(error)})
            self._writer.write(answer)
            await self._writer.drain()
        except ConnectionError:
            log.debug("client left before its answer", extra={"event": "service.left"})
        finally:
            self._calls.pop(number, None)
            self._places.release()

    async def _give_up(self, session: Session) -> None:
        """End a session that its holder does not want or cannot reach any more."""
        try:
            await session.release(outcome="lost")
        except AutoclaveError:
            log.exception("session not ended", extra={"event": "service.end_failed", "namespace": session.lease.namespace})
        self._forget(session)

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session.lease.id, None)
        self._addresses.pop(session.lease.id, None)
        self._granted = {number: held for number, held in self._granted.items() if held is not session}

    async def _do(self, number: int, method: str, params: dict[str, Any]) -> Any:
        if method == "acquire":
            return self._hold(number, await self._pool.acquire(**params))
        if method == "drain":
            return await self._drain(params["grace_s"])
        if method == "roll":
            return await self._roll(params["environment"])
        if method in QUESTIONS:
            return await getattr(self._pool, method)(**params)
        _, _, action = method.partition("session.")
        if action not in ACTIONS:
            raise EnvironmentInvalid(f"the pool knows no call {method!r}", fix="use the same version on both sides")
        session = self._sessions.get(params.pop("session"))
        if session is None:
            raise StaleGeneration("this connection holds no such session", fix="ask the pool for a new session")
        if action == "fork":
            return self._hold(number, await session.fork(**params))
        answer = await getattr(session, action)(**params)
        if action == "release":
            self._forget(session)
        return answer

    def _hold(self, number: int, session: Session) -> Mapping[str, Any]:
        """Keep the session for this connection and say what its holder needs to know."""
        self._sessions[session.lease.id] = self._granted[number] = session
        endpoints: dict[str, str] = {}
        for resource in session.namespace.environment.spec.resources:
            try:
                endpoints[resource.name] = session.address(resource.name)
            except (AutoclaveError, KeyError, LookupError):  # a resource without an address
                continue
        self._addresses[session.lease.id] = endpoints.keys()
        return {
            "lease": session.lease,
            "environment": session.environment,
            "in_force": session.in_force,
            "endpoints": endpoints,
        }
