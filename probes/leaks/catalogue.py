"""The whole catalogue: our leaks and those that other packages offer, by kind of what they are planted in.

A package adds its own by an entry point of the group `autoclave.leaks`, which names a `Catalogue`, as each of ours does:

    [project.entry-points."autoclave.leaks"]
    acme-queues = "acme.leaks:CATALOGUE"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.canonical import digest_of
from probes.leaks.leak import Leak
from sandbox import plugins
from sandbox.errors import EnvironmentInvalid
from sandbox.model import ResetMethod
from sandbox.plugins import Group

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Leaks of one kind: that of the resource which they are planted in, or `process`, `network`: what every instance has."""

    kind: str
    leaks: tuple[Leak, ...]


def catalogue() -> Mapping[str, Sequence[Leak]]:
    """Return every leak that is offered, by kind. Raises EnvironmentInvalid naming each package and leak that is wrong."""
    found: dict[str, dict[str, Leak]] = {}
    origins: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for name in plugins.offered(Group.LEAKS):
        part = plugins.load(Group.LEAKS, name)
        if not isinstance(part, Catalogue):
            problems.append(f"{name}: is a {type(part).__name__}, must be a probes.leaks.Catalogue")
            continue
        of_kind = found.setdefault(part.kind, {})
        for leak in part.leaks:
            problems += [f"{name}: {fault}" for fault in faults(leak)]
            if leak.name in of_kind:
                problems.append(f"{name}: {part.kind}/{leak.name} is also in {origins[part.kind, leak.name]}; call it otherwise")
            origins.setdefault((part.kind, leak.name), name)
            of_kind.setdefault(leak.name, leak)
    if problems:
        raise EnvironmentInvalid(
            f"the catalogue of leaks ({Group.LEAKS}) is wrong", problems=tuple(problems), fix="correct that package, or remove it"
        )
    return {kind: tuple(leaks.values()) for kind, leaks in found.items()}


def digest() -> str:
    """Digest the catalogue: a score of other leaks says nothing of these."""
    return digest_of(f"{kind}/{leak!r}" for kind, leaks in sorted(catalogue().items()) for leak in leaks)


def faults(leak: Leak) -> list[str]:
    """Say what a leak lacks."""
    found = []
    if not _NAME.fullmatch(leak.name):
        found.append(f"leak {leak.name!r}: a name is lower case words with - between them")
    if not leak.what:
        found.append(f"leak {leak.name}: `what` does not say what it leaves")
    if (leak.seen is None) != bool(leak.blind):
        found.append(f"leak {leak.name}: `blind` says why no probe sees it, and goes with `seen` = None")
    if leak.repaired_by is ResetMethod.HOOK:
        found.append(f"leak {leak.name}: `repaired_by` is clean, restore or rebuild: a hook promises nothing")
    return found
