"""Reading, writing and editing a file as the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.policies.policy import ToolSpec
from rollout.tools.tool import Acting, Observation, text_schema

LARGEST = 200_000  # bytes of a file that is read


class ReadFile:
    """Returns a file's text."""

    limit_s = 30.0
    spec = ToolSpec(name="read_file", description="Read a text file.", parameters=text_schema(path="absolute path"))

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        try:
            data = await session.read_file(arguments["path"], limit_bytes=LARGEST)
        except OSError as error:
            return Observation(text=f"cannot be read: {error}", ok=False)
        return Observation(text=data.decode("utf-8", "replace"))


class WriteFile:
    """Writes a whole file."""

    limit_s = 30.0
    spec = ToolSpec(
        name="write_file",
        description="Write a text file, replacing what was there.",
        parameters=text_schema(path="absolute path", text="the whole new content"),
    )

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        try:
            await session.write_file(arguments["path"], arguments["text"].encode())
        except OSError as error:
            return Observation(text=f"cannot be written: {error}", ok=False)
        return Observation(text="written")


class EditFile:
    """Replaces one piece of a file that occurs exactly once."""

    limit_s = 30.0
    spec = ToolSpec(
        name="edit_file",
        description="Replace a piece of a text file. The old text must occur exactly once.",
        parameters=text_schema(path="absolute path", old="the text to replace", new="what comes in its place"),
    )

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        path, old = arguments["path"], arguments["old"]
        try:
            text = (await session.read_file(path, limit_bytes=LARGEST)).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return Observation(text=f"cannot be edited: {error}", ok=False)
        found = text.count(old) if old else 0
        if found != 1:
            return Observation(text=f"the old text occurs {found} times, not once", ok=False)
        try:
            await session.write_file(path, text.replace(old, arguments["new"]).encode())
        except OSError as error:
            return Observation(text=f"cannot be written: {error}", ok=False)
        return Observation(text="edited")
