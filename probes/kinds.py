"""Finding the kinds of probes (entry points, so that a user's own load as ours do) and reading their options."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from probes.canonical import bytes_digest, digest_of
from probes.probe import Probe
from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, ProbeSpec

GROUP = "autoclave.probes"
ProbeFactory = Callable[[ProbeSpec, EnvironmentSpec], Probe]
ModelT = TypeVar("ModelT", bound="Options")


class Options(BaseModel):
    """Base of every kind's options: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


def read_options(spec: ProbeSpec, model: type[ModelT], environment: EnvironmentSpec) -> ModelT:
    """Validate a probe's options; raise EnvironmentInvalid with every problem."""
    try:
        return model.model_validate(dict(spec.options))
    except ValidationError as error:
        problems = tuple(
            f"probe {spec.name}: {'.'.join(map(str, e['loc'])) or 'options'}: {e['msg']}{_suggestion(e['type'], e['loc'], model)}"
            for e in error.errors()
        )
    raise EnvironmentInvalid(
        f"environment {environment.name}{_where(environment)}: probe {spec.name} (kind {spec.kind}) is wrong", problems=problems
    )


def digest_of_kind(spec: ProbeSpec, options: Options) -> str:
    """Digest what shapes a probe's readings, the code that reads included: changed probes need a new baseline."""
    return digest_of(
        [
            *(spec.kind, spec.name, spec.resource or "", spec.depth, options.model_dump_json()),
            *(source_digest(package) for package in _packages(type(options).__module__)),
        ]
    )


def _packages(module: str) -> tuple[str, ...]:
    """The packages whose source a kind is made of: our own, and the one that a user's kind lives in."""
    ours, theirs = __name__.partition(".")[0], module.partition(".")[0]
    return (ours,) if theirs == ours else (ours, theirs)


@cache
def source_digest(package: str) -> str:
    """Digest the source of a package (or of a module that stands alone), by file name. One read for each process."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return ""
    origin = Path(found.origin)
    top = origin.parent if found.submodule_search_locations else None
    files = [(origin.name, origin)] if top is None else [(str(path.relative_to(top)), path) for path in top.rglob("*.py")]
    return digest_of(part for name, path in sorted(files) for part in (name, bytes_digest(path.read_bytes())))


def resource_of(spec: ProbeSpec, environment: EnvironmentSpec) -> str:
    """Return the resource that a probe reads; raise EnvironmentInvalid where none or an unknown one is named."""
    names = [r.name for r in environment.resources]
    if spec.resource in names:
        return str(spec.resource)
    said = f'there is no resource "{spec.resource}"' if spec.resource else "it names no resource"
    raise EnvironmentInvalid(
        f"environment {environment.name}{_where(environment)}: probe {spec.name} (kind {spec.kind}): {said}",
        fix=f"set `resource` to one of: {', '.join(names) or '(the environment has none)'}",
    )


def load_kind(kind: str) -> ProbeFactory:
    """Return the factory of a kind; raise EnvironmentInvalid naming the ones there are."""
    found = entry_points(group=GROUP, name=kind)
    if not found:
        names = sorted({e.name for e in entry_points(group=GROUP)})
        near = difflib.get_close_matches(kind, names, n=1)
        raise EnvironmentInvalid(
            f'there is no probe kind "{kind}"',
            fix=f"did you mean {near[0]}?" if near else f"known kinds: {', '.join(names)}",
        )
    factory: ProbeFactory = next(iter(found)).load()
    return factory


def known_kinds() -> frozenset[str]:
    return frozenset(e.name for e in entry_points(group=GROUP))


def _suggestion(error: str, location: tuple[int | str, ...], model: type[Options]) -> str:
    if error != "extra_forbidden" or not location:
        return ""
    near = difflib.get_close_matches(str(location[-1]), model.model_fields, n=1)
    return f" (did you mean {near[0]}?)" if near else f" (known: {', '.join(sorted(model.model_fields)) or 'none'})"


def _where(environment: EnvironmentSpec) -> str:
    return f" ({environment.source})" if environment.source else ""
