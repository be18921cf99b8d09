"""Values as they travel: length-prefixed JSON frames, our values by name, bytes as base64, errors as their class and fields."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from sandbox import errors, model
from sandbox.errors import AutoclaveError, LimitReached

FRAME_BYTES = 64 * 1024 * 1024
KNOWN: Mapping[str, type] = {name: kind for name in model.__all__ if isinstance(kind := getattr(model, name), type)}
OURS: Mapping[str, type[AutoclaveError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, AutoclaveError)
}
PLAIN: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (FileNotFoundError, IsADirectoryError, PermissionError, OSError, ValueError, KeyError, TimeoutError)
}


def encode(value: Any) -> Any:
    """Return what JSON can hold; `$` names the kind of everything that JSON has no word for."""
    match value:
        case Enum():
            return {"$": type(value).__name__, "v": value.value}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"$": "bytes", "v": base64.b64encode(value).decode()}
        case datetime():
            return {"$": "time", "v": value.isoformat()}
        case tuple() | frozenset() | set():
            return {"$": "tuple", "v": [encode(item) for item in value]}
        case list():
            return [encode(item) for item in value]
        case Mapping():
            return {"$": "map", "v": [[encode(k), encode(v)] for k, v in value.items()]}
    name = type(value).__name__
    if dataclasses.is_dataclass(value) and KNOWN.get(name) is type(value):
        return {"$": name, "v": {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}}
    return encode(str(value))


def decode(value: Any) -> Any:
    """Return what `encode` was given; raise ValueError for a kind that is not ours."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind, held = value["$"], value["v"]
    match kind:
        case "bytes":
            return base64.b64decode(held)
        case "time":
            return datetime.fromisoformat(held)
        case "tuple":
            return tuple(decode(item) for item in held)
        case "map":
            return {decode(k): decode(v) for k, v in held}
    known = KNOWN.get(kind)
    if known is None:
        raise ValueError(f"unknown kind {kind!r} in a frame: client and pool are of different versions")
    return known(**{k: decode(v) for k, v in held.items()}) if isinstance(held, dict) else known(held)


def encode_error(error: BaseException) -> dict[str, Any]:
    """Keep the class and its fields; what is neither ours nor plain travels as an internal fault."""
    name = type(error).__name__
    if isinstance(error, AutoclaveError):
        return {"type": name, "fields": encode(vars(error))}
    if name in PLAIN:
        return {"type": name, "fields": encode({"args": [a for a in error.args if isinstance(a, str | int)]})}
    return {
        "type": "AutoclaveError",
        "fields": encode({"message": f"the pool failed: {name}: {error}", "fix": "look at the pool's log"}),
    }


def decode_error(held: Mapping[str, Any]) -> Exception:
    fields = decode(held["fields"])
    if (kind := OURS.get(held["type"])) is not None:
        error = kind.__new__(kind)
        Exception.__init__(error, fields.get("message", ""))
        vars(error).update(fields)
        return error
    return PLAIN.get(held["type"], RuntimeError)(*fields.get("args", ()))


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read one frame; raise asyncio.IncompleteReadError at the end of the stream, LimitReached for one that is too long."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > FRAME_BYTES:
        raise LimitReached(f"a frame of {length} bytes is over the limit of {FRAME_BYTES}", fix="move less at once")
    frame = json.loads(await reader.readexactly(length))
    if not isinstance(frame, dict):
        raise ValueError("a frame must be a JSON object")
    return frame


def pack(frame: Mapping[str, Any]) -> bytes:
    """Return the bytes of a frame; raise LimitReached for one that is too long."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    if len(body) > FRAME_BYTES:
        raise LimitReached(f"a frame of {len(body)} bytes is over the limit of {FRAME_BYTES}", fix="move less at once")
    return len(body).to_bytes(4, "big") + body
