"""The browser's actions, over the session's Playwright page. A page that says no is the policy's own matter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rollout.errors import ToolFault
from rollout.policies.policy import ToolSpec
from rollout.tools.tool import Acting, Observation, text_schema

LONGEST = 8000  # characters of a page's text
WAIT_MS = 10_000.0
LARGEST = 2_000_000  # bytes of a file that is uploaded


class _Browser(ABC):
    """What the actions share: Playwright's own errors are told to the model, a lost browser is a fault."""

    limit_s = 45.0
    spec: ToolSpec

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        from playwright.async_api import Error

        page = await session.page()
        try:
            return await self.on(session, page, arguments)
        except Error as error:
            if page.is_closed() or "has been closed" in str(error):
                raise ToolFault(f"the browser is gone: {str(error).splitlines()[0]}") from error
            return Observation(text=str(error).splitlines()[0], ok=False)

    @abstractmethod
    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation: ...


async def _seen(page: Any) -> Observation:
    text = await page.locator("body").inner_text(timeout=WAIT_MS)
    return Observation(text=f"{page.url}\n{await page.title()}\n{text[:LONGEST]}")


class Goto(_Browser):
    """Opens an address."""

    spec = ToolSpec(name="goto", description="Open an address in the browser.", parameters=text_schema(url="http address"))

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        await page.goto(arguments["url"], timeout=WAIT_MS * 2)
        return await _seen(page)


class Look(_Browser):
    """Returns the page's address, title and text."""

    spec = ToolSpec(name="look", description="See the page's address, title and text.", parameters=text_schema())

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        return await _seen(page)


class Click(_Browser):
    """Clicks an element."""

    spec = ToolSpec(
        name="click", description="Click an element and see the page.", parameters=text_schema(selector="a CSS or text= selector")
    )

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        await page.locator(arguments["selector"]).first.click(timeout=WAIT_MS)
        return await _seen(page)


class Fill(_Browser):
    """Types into a field."""

    spec = ToolSpec(
        name="fill",
        description="Type into a field.",
        parameters=text_schema(selector="a CSS or label= selector", text="what to type"),
    )

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        await page.locator(arguments["selector"]).first.fill(arguments["text"], timeout=WAIT_MS)
        return Observation(text="filled")


class Select(_Browser):
    """Chooses from a list."""

    spec = ToolSpec(
        name="select",
        description="Choose an option of a list.",
        parameters=text_schema(selector="a CSS selector", option="the option's text or value"),
    )

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        chosen = await page.locator(arguments["selector"]).first.select_option(arguments["option"], timeout=WAIT_MS)
        return Observation(text=f"selected {', '.join(chosen)}")


class Upload(_Browser):
    """Gives a file of the agent's to a field, by content."""

    spec = ToolSpec(
        name="upload",
        description="Give a file from your directories to a file field.",
        parameters=text_schema(selector="a CSS selector", path="absolute path"),
    )

    async def on(self, session: Acting, page: Any, arguments: Mapping[str, Any]) -> Observation:
        path = arguments["path"]
        try:
            data = await session.read_file(path, limit_bytes=LARGEST)
        except OSError as error:
            return Observation(text=f"cannot be read: {error}", ok=False)
        file = {"name": path.rpartition("/")[2], "mimeType": "application/octet-stream", "buffer": data}
        await page.locator(arguments["selector"]).first.set_input_files(file, timeout=WAIT_MS)
        return Observation(text=f"{file['name']}, {len(data)} bytes")
