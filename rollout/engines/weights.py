"""What a directory of a model holds, by its headers: weights that do not fit are refused before anything is paused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollout.errors import EngineLost
from sandbox.errors import EnvironmentInvalid

LARGEST_HEADER = 100_000_000  # bytes
Shapes = Mapping[str, tuple[int, ...]]


def config_of(model: Path) -> Mapping[str, Any]:
    """Return config.json of the directory that `--model` names; raise EnvironmentInvalid where it is no model."""
    fix = "give --model a directory with config.json, safetensors and a tokenizer"
    try:
        config = json.loads((model / "config.json").read_text("utf-8"))
    except OSError as error:
        raise EnvironmentInvalid(f"{model} holds no model: config.json cannot be read ({error.strerror})", fix=fix) from error
    except ValueError as error:
        raise EnvironmentInvalid(f"{model / 'config.json'} is not JSON: {error}", fix=fix) from error
    if not isinstance(config, dict):
        raise EnvironmentInvalid(f"{model / 'config.json'} holds no table", fix=fix)
    return config


def dtype_of(model: Path) -> str:
    """Return the dtype that the model was saved in, empty where it does not say."""
    config = config_of(model)
    return str(config.get("dtype") or config.get("torch_dtype") or "")


def context_of(model: Path, asked: int) -> int:
    """Return as many tokens as a trajectory may have (`asked`; 0: 16,384), and no more than the model was made for."""
    most = int(config_of(model).get("max_position_embeddings") or 0)
    return min(asked or 16_384, most) if most else asked


def shapes_of(directory: Path) -> Shapes:
    """Return every tensor's shape by name; raise EngineLost when there are none to read."""
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        for path in sorted(directory.glob("*.safetensors")):
            header = _header(path)
            shapes.update((name, tuple(told["shape"])) for name, told in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineLost(f"the weights in {directory} cannot be read: {type(error).__name__} {error}") from error
    if not shapes:
        raise EngineLost(f"{directory} holds no safetensors", fix="save the model with `save_pretrained`")
    return shapes


def fits(directory: Path, wanted: Shapes) -> None:
    """Raise EngineLost unless every wanted tensor is there in its shape: a loader leaves out a missing one without an error."""
    found = shapes_of(directory)
    if missing := sorted(set(wanted) - set(found)):
        raise EngineLost(f"the weights in {directory} lack {len(missing)} tensors, {missing[0]} among them")
    if other := [name for name, shape in wanted.items() if found[name] != shape]:
        raise EngineLost(f"{other[0]} in {directory} has shape {found[other[0]]}, the engine's has {wanted[other[0]]}")


def _header(path: Path) -> dict[str, dict[str, list[int]]]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 0 < size <= LARGEST_HEADER:
            raise ValueError(f"{path.name} has no safetensors header")
        header = json.loads(file.read(size))
        ends = [told["data_offsets"][1] for name, told in header.items() if name != "__metadata__"]
    if path.stat().st_size != 8 + size + max(ends, default=0):
        raise ValueError(f"{path.name} is cut short")
    return dict(header)
