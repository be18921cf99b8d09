"""Which leaks of the catalogue apply to an environment, and why the others do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.planting import names as lookup
from probes.leaks import Leak, Needs, ShellLeak, SqlLeak
from probes.leaks import browser as browser_catalogue
from probes.leaks import files as files_catalogue
from probes.leaks import postgres as postgres_catalogue
from probes.leaks import process as process_catalogue
from probes.leaks import repo as repo_catalogue
from probes.leaks.browser import BrowserLeak
from sandbox.aio import in_thread
from sandbox.model import NOTHING, DestructiveAction, ResourceSpec
from sandbox.ports import Environment, Instance

CATALOGUE: Mapping[str, Sequence[Leak]] = {
    "postgres": postgres_catalogue.LEAKS,
    "repo": repo_catalogue.LEAKS,
    "files": files_catalogue.LEAKS,
    "browser": browser_catalogue.LEAKS,
    "process": process_catalogue.LEAKS,
}
_BRACES = re.compile(r"\{([a-z]+)\}")
_DOLLARS = re.compile(r"\$(FILE|FOLDER)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A leak, or a destructive action of the author's, with all that planting it here needs."""

    name: str  # resource/leak, or the action's own name
    kind: str
    what: str
    leak: Leak | None = None
    action: DestructiveAction | None = None
    resource: str = ""
    names: Mapping[str, str] = NOTHING

    @property
    def shows(self) -> str:
        """The field that must differ, as a shell-style pattern: what else an agent has to do to plant it changes others."""
        wanted = self.leak.shows if isinstance(self.leak, BrowserLeak) else ""
        for name, text in self.names.items():
            wanted = wanted.replace(f"{{{name}}}", text)
        return wanted or "*"


async def candidates(environment: Environment, instance: Instance) -> tuple[list[Candidate], dict[str, str]]:
    """Return what can be planted in this environment and, by name, why the rest of its kinds' catalogue cannot."""
    found: list[Candidate] = []
    missing: dict[str, str] = {}
    place = ""
    for resource in environment.spec.resources:
        known = await _names(resource, instance)
        if known is None:
            continue
        if resource.kind in ("repo", "files"):
            known |= {"PLACE": str(resource.options.get("target", ""))}
            place = place or known["PLACE"]
        _sort(resource.kind, resource.name, known, found, missing)
    _sort("process", "", {"PLACE": place or environment.spec.workdir, "OUTSIDE": lookup.OUTSIDE}, found, missing)
    return found, missing


def own(actions: Iterable[DestructiveAction]) -> list[Candidate]:
    """Those that the environment's author wrote down."""
    return [Candidate(name=a.name, kind="own", what="of the environment's own", action=a) for a in actions]


async def _names(resource: ResourceSpec, instance: Instance) -> lookup.Names | None:
    if resource.kind == "postgres":
        role = str(resource.options.get("role", "agent"))
        return await lookup.of_database(instance.subject().endpoint(resource.name), role=role)
    if resource.kind in ("repo", "files"):
        return await in_thread(lookup.of_tree, instance.subject().tree(resource.name))
    return lookup.of_browser(resource) if resource.kind == "browser" else None


def _sort(kind: str, resource: str, known: lookup.Names, found: list[Candidate], missing: dict[str, str]) -> None:
    for leak in CATALOGUE[kind]:
        name = f"{resource or kind}/{leak.name}"
        wanted = _wanted(leak) - {*known, "window"}
        library = leak.needs_library if isinstance(leak, SqlLeak) else ""
        if leak.needs is Needs.ROOT:
            missing[name] = "nobody is root of the machine in a sandbox"
        elif library and library not in known.get("libraries", ""):
            missing[name] = f"the server does not load {library}"
        elif wanted:
            missing[name] = f"it has no {', no '.join(sorted(w.lower() for w in wanted))} to plant it in"
        else:
            found.append(Candidate(name=name, kind=kind, what=leak.what, leak=leak, resource=resource, names=known))


def _wanted(leak: Leak) -> set[str]:
    if isinstance(leak, SqlLeak):
        return set(_BRACES.findall(" ".join((*leak.sql, *leak.then, leak.database))))
    if isinstance(leak, BrowserLeak):
        return set(_BRACES.findall(" ".join((leak.visit, leak.script, *_texts([params for _, params in leak.calls])))))
    assert isinstance(leak, ShellLeak)
    return set(_DOLLARS.findall(leak.shell))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for item in inner for text in _texts(item)]
