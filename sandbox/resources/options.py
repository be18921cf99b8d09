"""Reads a resource's options: strictly, with every problem named at once."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResourceSpec


class Options(BaseModel):
    """Base of every kind's options: an unknown key, or a value of another type, is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


ModelT = TypeVar("ModelT", bound=Options)


def read(spec: ResourceSpec, model: type[ModelT]) -> ModelT:
    """Return the options of a resource; raise EnvironmentInvalid."""
    return read_mapping(spec.options, model, f"resources.{spec.name}", f"the options of resource {spec.name!r} (kind {spec.kind})")


def read_start(spec: ResourceSpec, options: Mapping[str, Any], model: type[ModelT]) -> ModelT:
    """Return the options of a task's own start state; raise EnvironmentInvalid."""
    return read_mapping(options, model, f"start.{spec.name}", f"the start state of resource {spec.name!r} (kind {spec.kind})")


def read_mapping(options: Mapping[str, Any], model: type[ModelT], key: str, what: str) -> ModelT:
    """Validate against a model; `key` begins each problem, `what` the message."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = tuple(f"{_at(key, e['loc'])}: {_said(e['type'], e['msg'], e['loc'], model)}" for e in error.errors())
    raise EnvironmentInvalid(f"{what} are wrong", problems=problems)


def _at(key: str, location: Iterable[int | str]) -> str:
    return ".".join((key, *map(str, location)))


def _said(kind: str, message: str, location: tuple[int | str, ...], model: type[Options]) -> str:
    if kind != "extra_forbidden" or not location:
        return message.removeprefix("Value error, ")
    names = sorted(model.model_fields)
    near = difflib.get_close_matches(str(location[-1]), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return f"there is no such option ({hint})"


def digest(*parts: object, files: Iterable[Path] = ()) -> str:
    """Digest values (as canonical JSON) and the contents of files and directories under their names. Blocking."""
    hasher = hashlib.blake2b(digest_size=16)
    hasher.update(json.dumps(parts, sort_keys=True, default=str).encode())
    for file in files:
        below = sorted(p for p in file.rglob("*") if _counts(p, file)) if file.is_dir() else [file]
        for path in below:
            name = path.relative_to(file) if file.is_dir() else path.name
            content = hashlib.blake2b(path.read_bytes(), digest_size=16).digest()
            hasher.update(f"{name}\0{path.stat().st_mode & 0o777:o}\0".encode("utf-8", "surrogateescape") + content)
    return hasher.hexdigest()


def _counts(path: Path, top: Path) -> bool:
    """False for links, and for what running Python writes beside a program."""
    return path.is_file() and not path.is_symlink() and "__pycache__" not in path.relative_to(top).parts
