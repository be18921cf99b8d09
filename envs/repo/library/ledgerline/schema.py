"""Checking nested data against a small schema; every fault is named by its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}


def check(value: Any, schema: Mapping[str, Any], path: str = "$") -> list[str]:
    """Return every fault, [] when the value fits."""
    if value is None:
        return [] if schema.get("optional") else [f"{path}: missing"]
    kind = schema["type"]
    if not _is_a(value, kind):
        return [f"{path}: expected {kind}, found {type(value).__name__}"]
    faults: list[str] = []
    if "choice" in schema and value not in schema["choice"]:
        faults.append(f"{path}: {value!r} is none of {schema['choice']!r}")
    if kind in ("integer", "number"):
        faults += _bounds(value, schema, path)
    elif kind == "string":
        faults += _text(value, schema, path)
    elif kind == "list":
        faults += _items(value, schema, path)
    elif kind == "object":
        faults += _fields(value, schema, path)
    return faults


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _bounds(value: float, schema: Mapping[str, Any], path: str) -> list[str]:
    faults = []
    if "minimum" in schema and value < schema["minimum"]:
        faults.append(f"{path}: {value} is below {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        faults.append(f"{path}: {value} is above {schema['maximum']}")
    return faults


def _text(value: str, schema: Mapping[str, Any], path: str) -> list[str]:
    faults = []
    if len(value) < schema.get("shortest", 0):
        faults.append(f"{path}: shorter than {schema['shortest']}")
    if "longest" in schema and len(value) > schema["longest"]:
        faults.append(f"{path}: longer than {schema['longest']}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        faults.append(f"{path}: does not match {schema['pattern']}")
    return faults


def _items(value: list[Any], schema: Mapping[str, Any], path: str) -> list[str]:
    faults = []
    if len(value) < schema.get("least", 0):
        faults.append(f"{path}: fewer than {schema['least']} items")
    if schema.get("unique") and any(item in value[:index] for index, item in enumerate(value)):
        faults.append(f"{path}: an item is there twice")
    if "items" in schema:
        for index, item in enumerate(value):
            faults += check(item, schema["items"], f"{path}[{index}]")
    return faults


def _fields(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> list[str]:
    fields: Mapping[str, Any] = schema.get("fields", {})
    faults = []
    for name, inner in fields.items():
        faults += check(value.get(name), inner, f"{path}.{name}")
    if not schema.get("open"):
        faults += [f"{path}.{name}: unknown" for name in value if name not in fields]
    return faults


def defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a copy with defaults filled in at every level."""
    if value is None:
        value = schema.get("default")
    if isinstance(value, dict):
        out = dict(value)
        for name, inner in schema.get("fields", {}).items():
            filled = defaults(out.get(name), inner)
            if filled is not None or name in out:
                out[name] = filled
        return out
    if isinstance(value, list) and "items" in schema:
        return [defaults(item, schema["items"]) for item in value]
    return value
