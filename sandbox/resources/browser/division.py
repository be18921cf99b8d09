"""Contexts of one browser as the parts of several namespaces: made anew for each, filtered by the relay, thrown away."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from sandbox.aio import in_thread
from sandbox.errors import InstanceLost, ResetFailed
from sandbox.model import Isolation, ResourceSpec
from sandbox.ports import LiveResource, Part
from sandbox.resources.browser import seeding, walls
from sandbox.resources.browser.access import SOCKET, address, connected
from sandbox.resources.browser.cdp import Refused
from sandbox.resources.browser.options import BrowserOptions

_PART_S = 120.0  # a context, a tab in it, and a look at the clipboard


class Division(ABC):
    """Implements `Divisible` for a browser."""

    @property
    @abstractmethod
    def spec(self) -> ResourceSpec: ...

    @property
    @abstractmethod
    def options(self) -> BrowserOptions: ...

    @property
    def isolations(self) -> Collection[Isolation]:
        return (Isolation.CONTEXT,)

    async def make_part(self, live: LiveResource, part: Part) -> None:
        """A context that nobody had, with the cookies and the storage that the options give to golden."""
        await self._tell(live, part, "Relay.makePart", secret=part.secret)
        if self.options.cookies or self.options.storage:
            async with connected(live) as browser:
                context = (await browser.call("Relay.parts"))["parts"][part.name]
                await seeding.fill(browser, self.options, context=context, ends=await seeding.ends(browser))

    async def fence_part(self, live: LiveResource, part: Part) -> None:
        await self._tell(live, part, "Relay.fencePart")

    async def disconnect_part(self, live: LiveResource, part: Part) -> None:
        await self._tell(live, part, "Relay.disconnectPart")

    async def drop_part(self, live: LiveResource, part: Part) -> None:
        await self._tell(live, part, "Relay.dropPart")

    async def _tell(self, live: LiveResource, part: Part, what: str, **more: str) -> None:
        try:
            async with connected(live) as browser:
                await browser.call(what, {"name": part.name, **more}, timeout=_PART_S)
        except (Refused, InstanceLost) as error:
            raise ResetFailed(f"resource {self.spec.name}, context of {part.namespace}: {error.message}") from error

    async def part_bytes(self, live: LiveResource, part: Part) -> int:
        """What it downloaded; the rest is in memory, which is bounded as a whole."""
        tree = live.state["downloads"].tree()

        def total() -> int:
            return sum(entry.size for entry in tree.walk(part.name)) if tree.entry(part.name) else 0

        return await in_thread(total)

    def part_env(self, part: Part) -> Mapping[str, str]:
        """Commands do not reach a shared browser: what they could be told would be a secret of the session's."""
        return {f"{self.spec.name.upper().replace('-', '_')}_CDP": ""}

    def part_endpoint(self, socket_dir: str, secret_file: str, part: Part) -> str:
        return f"{address(f'{socket_dir}/{SOCKET}')}part/{part.name}#{secret_file}"

    def part_secret(self, part: Part) -> str:
        return part.secret

    def trusted_part_endpoint(self, live: LiveResource, part: Part) -> str:
        """That of the whole: which contexts are whose is asked of the relay."""
        return self.trusted_endpoint(live)

    @abstractmethod
    def trusted_endpoint(self, live: LiveResource) -> str: ...

    async def try_walls(self, live: LiveResource, writer: Part, reader: Part) -> Sequence[str]:
        mark = f"mark-{secrets.token_hex(8)}"
        path = f"{live.socket_dir}/{SOCKET}"
        try:
            return await walls.seen(path, writer, reader, mark)
        except Refused as error:
            raise InstanceLost(f"the walls of resource {self.spec.name} could not be tried: {error.message}") from error
