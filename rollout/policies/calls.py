"""Reads tool calls out of a model's text, in the two styles in use.

JSON: `<tool_call>{"name": "sql", "arguments": {"query": "select 1"}}</tool_call>`.
XML:  `<function=sql><parameter=query>select 1</parameter></function>`, with or without `<tool_call>` around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rollout.policies.policy import Answer, Call, Calls, Final, Malformed, ToolSpec

MOST_CALLS = 8  # of one answer
_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>(.*?)</parameter>", re.DOTALL)
_OPENS = ("<tool_call>", "<function=", "</tool_call>", "</function>", "<parameter=")


class _Unreadable(Exception):
    """Why a call cannot be read; told to the model."""


def parse(text: str, tools: Sequence[ToolSpec]) -> Answer:
    """Return what an answer asks for. Anything that begins like a call and is none, or names an unknown tool, is Malformed."""
    known = {tool.name: tool for tool in tools}
    try:
        calls = [_checked(name, arguments, known) for name, arguments in _found(text)]
    except _Unreadable as error:
        return Malformed(why=str(error))
    if not calls:
        return Final(text=text.strip())
    if len(calls) > MOST_CALLS:
        return Malformed(why=f"{len(calls)} calls in one answer; at most {MOST_CALLS} are allowed")
    return Calls(calls=tuple(calls))


def _found(text: str) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for block in _BLOCK.findall(text):
        found += _functions(block) if "<function=" in block else [_json(block)]
    rest = _BLOCK.sub("", text)
    if "<function=" in rest:
        found += _functions(rest)
        rest = _FUNCTION.sub("", rest)
    if any(mark in rest for mark in _OPENS):
        raise _Unreadable("a tool call was opened and not closed")
    return found


def _json(block: str) -> tuple[str, dict[str, Any]]:
    try:
        call = json.loads(block, strict=False)
    except json.JSONDecodeError as error:
        raise _Unreadable(f"the call is not valid JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise _Unreadable('a call is {"name": ..., "arguments": {...}}')
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        raise _Unreadable("`arguments` must be an object")
    return call["name"], arguments


def _functions(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = _FUNCTION.findall(text)
    if not found:
        raise _Unreadable("`<function=...>` has no `</function>`")
    return [(name, {key: _trimmed(value) for key, value in _PARAMETER.findall(body)}) for name, body in found]


def _trimmed(value: str) -> str:
    """Take off the one line break on each side that the style writes."""
    return value.removeprefix("\n").removesuffix("\n")


def _checked(name: str, arguments: Mapping[str, Any], known: Mapping[str, ToolSpec]) -> Call:
    if name not in known:
        raise _Unreadable(f"there is no tool {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
    tool = known[name]
    if missing := [key for key in tool.required if key not in arguments]:
        raise _Unreadable(f"{name} needs {', '.join(missing)}")
    properties = tool.parameters.get("properties", {})
    if unknown := sorted(set(arguments) - set(properties)):
        raise _Unreadable(f"{name} has no parameter {', '.join(unknown)}; it has: {', '.join(properties) or 'none'}")
    for key, value in arguments.items():
        if properties[key].get("type") == "string" and not isinstance(value, str):
            raise _Unreadable(f"{name}: {key} must be a string")
    return Call(tool=name, arguments=dict(arguments))
