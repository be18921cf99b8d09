"""The browser's actions. A page that says no is the policy's own matter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rollout.policies.policy import ToolSpec
from rollout.tools.tool import Acting, Observation, text_schema
from sandbox.model import PageAction, PageDo

LARGEST = 2_000_000  # bytes of a file that is uploaded


class _Browser(ABC):
    """What the actions share: the session does it, so that it is recorded like a command."""

    limit_s = 45.0
    spec: ToolSpec

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        done = await session.browse(self.action(arguments))
        return Observation(text=done.text, ok=done.ok)

    @abstractmethod
    def action(self, arguments: Mapping[str, Any]) -> PageAction: ...


class Goto(_Browser):
    """Opens an address."""

    spec = ToolSpec(name="goto", description="Open an address in the browser.", parameters=text_schema(url="http address"))

    def action(self, arguments: Mapping[str, Any]) -> PageAction:
        return PageAction(do=PageDo.GOTO, at=arguments["url"])


class Look(_Browser):
    """Returns the page's address, title and text."""

    spec = ToolSpec(name="look", description="See the page's address, title and text.", parameters=text_schema())

    def action(self, arguments: Mapping[str, Any]) -> PageAction:
        return PageAction(do=PageDo.LOOK)


class Click(_Browser):
    """Clicks an element."""

    spec = ToolSpec(
        name="click", description="Click an element and see the page.", parameters=text_schema(selector="a CSS or text= selector")
    )

    def action(self, arguments: Mapping[str, Any]) -> PageAction:
        return PageAction(do=PageDo.CLICK, at=arguments["selector"])


class Fill(_Browser):
    """Types into a field."""

    spec = ToolSpec(
        name="fill",
        description="Type into a field.",
        parameters=text_schema(selector="a CSS or label= selector", text="what to type"),
    )

    def action(self, arguments: Mapping[str, Any]) -> PageAction:
        return PageAction(do=PageDo.FILL, at=arguments["selector"], text=arguments["text"])


class Select(_Browser):
    """Chooses from a list."""

    spec = ToolSpec(
        name="select",
        description="Choose an option of a list.",
        parameters=text_schema(selector="a CSS selector", option="the option's text or value"),
    )

    def action(self, arguments: Mapping[str, Any]) -> PageAction:
        return PageAction(do=PageDo.SELECT, at=arguments["selector"], text=arguments["option"])


class Upload:
    """Gives a file of the agent's to a field, by content."""

    limit_s = 45.0
    spec = ToolSpec(
        name="upload",
        description="Give a file from your directories to a file field.",
        parameters=text_schema(selector="a CSS selector", path="absolute path"),
    )

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        path = arguments["path"]
        try:
            data = await session.read_file(path, limit_bytes=LARGEST)
        except OSError as error:
            return Observation(text=f"cannot be read: {error}", ok=False)
        done = await session.browse(PageAction(do=PageDo.UPLOAD, at=arguments["selector"], text=path.rpartition("/")[2], data=data))
        return Observation(text=done.text, ok=done.ok)
