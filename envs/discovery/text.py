"""Tables of `environment.toml` as text with remarks, for an author who goes on from there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from textwrap import wrap
from typing import Any

from envs.discovery.unstable import Proposal, Unstable
from envs.toml_text import key, value
from sandbox.model import ProbeSpec

WIDTH = 120
ONCE = "one reading alone had it: where it is called otherwise each time, put a star for what changes"
READY = "a port accepts before the server behind it answers: each start waits for this, too (in an inline table: ready = {...})"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What a kind of probe is there for.
WHY: Mapping[str, str] = {
    "postgres": "everything that a server keeps: rows, definitions, sequences, roles, rights, settings, sessions, files",
    "repo": "the working tree, references, objects, hooks, configuration and what git would do by them",
    "files": "names, types, modes, owners, attributes and contents",
    "browser": "cookies, storages, workers, tabs, downloads, permissions and what else a profile and a context keep",
    "container": "changed files, volumes, settings, mounts, restarts, and what `inside` commands tell of its memory",
    "process": "processes, listeners, sockets and mounts of the whole instance",
    "shared-tree": "what lies in a shared tree beside the namespaces' own directories",
    "sql": "the result of a query of yours",
    "command": "the output of a command of yours",
    "http": "the answer of a service of yours",
}


class Origin(StrEnum):
    """Where a probe comes from, as its author is told."""

    DEFAULT = "comes by itself; written down, this takes its place"
    SERVER = "for the server that runs in it, in the place of the one that comes by itself"
    AUTHOR = "yours already"


def described(name: str, tables: Mapping[str, Any], remarks: Sequence[str]) -> str:
    """A whole description."""
    head = [
        *_comment(f"Drafted by `autoclave env new {name} --from`. Every key: docs/environments.md. Next: autoclave env check ."),
        *(line for remark in remarks for line in _comment(remark)),
        f"name = {value(name)}",
        'version = "0.1.0"',
        "",
        "[reset]",
        'method = "restore"',
    ]
    body = [f"\n[resources.{resource}]\n{_keys(table)}" for resource, table in tables.get("resources", {}).items()]
    body += [f"\n[[probes]]\n{_keys(table)}" for table in tables.get("probes", [])]
    return "\n".join([*head, *body]) + "\n"


def proposed(
    probes: Iterable[tuple[ProbeSpec, Origin, int]],
    found: Sequence[Proposal],
    *,
    seen: str,
    remarks: Sequence[str] = (),
    ready: Mapping[str, tuple[str, ...]] | None = None,
    left: Sequence[Unstable],
    builds: int,
) -> str:
    """Probes (with where each comes from, and how many fields it reads), when containers are ready, and volatile fields, each with
    its reason."""
    lines = [*_comment(f"Proposed from {seen}. Edit it and put it at the end of environment.toml.")]
    if builds:
        said = f"{builds} fields differ between two builds from the seed. No trouble: one is sealed, all others are its clones."
        lines += _comment(said)
    lines += [line for remark in remarks for line in _comment(remark)]
    for resource, argv in (ready or {}).items():
        lines += ["", *_comment(READY), f"[resources.{key(resource)}.ready]", f"command = {value(argv)}"]
    for probe, origin, fields in probes:
        lines += ["", *_comment(f"{WHY.get(probe.kind, 'a probe of a kind of your own')}: {fields} fields; {origin}")]
        keys = {"name": probe.name, "kind": probe.kind, **({"resource": probe.resource} if probe.resource else {})}
        text = ["[[probes]]", *_keys({**keys, "depth": probe.depth.value, **probe.options}).split("\n")]
        lines += [f"# {line}" if origin is Origin.AUTHOR else line for line in text]
    if not found:
        lines += ["", *_comment("No field was unstable.")]
    for each in found:
        several = len(each.covers) > 1 or each.also
        covers = [f"covers {len(each.covers)} fields that were unstable" if several else ""]
        covers += [f"and {each.also} that were not: narrow it if you can" if each.also else ""]
        covers += [ONCE if each.once else ""]
        lines += ["", *_comment(" ".join(filter(None, covers))), "[[volatile]]"]
        lines += [f"pattern = {value(each.pattern)}", f"reason = {value(each.reason)}"]
    lines += [line for u in left for line in _comment(f"not covered by any pattern: {u.name}")]
    return "\n".join(lines) + "\n"


def _keys(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{key(name)} = {value(item)}" for name, item in table.items())


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(_CONTROL.sub(" ", text), WIDTH - 2)]
