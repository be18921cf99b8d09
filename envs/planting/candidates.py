"""Which leaks of the catalogue apply to an environment, and why the others do not."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.planting import names as lookup
from probes.leaks import Leak, Needs, ShellLeak, SqlLeak, catalogue
from probes.leaks.browser import WRITTEN_S, BrowserLeak
from sandbox.aio import in_thread
from sandbox.model import NOTHING, DestructiveAction, ResourceSpec
from sandbox.ports import Environment, Instance

EVERYWHERE = ("process", "network")  # kinds of what every instance has
_OF_ALL = ("PLACE", "OUTSIDE", "ROOT", "CONTAINER")
BRACES = re.compile(r"\{([a-z]+)\}")
_DOLLARS = re.compile(r"\$(FILE|FOLDER|VOLUME)\b")


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
        wanted = self.leak.shows if self.leak is not None else "*"
        for name, text in self.names.items():
            wanted = wanted.replace(f"{{{name}}}", glob.escape(text))
        return wanted

    @property
    def shown_within_s(self) -> float:
        """How long a browser or the like may take until what was planted can be seen."""
        if self.leak is not None:
            return self.leak.shown_within_s
        return WRITTEN_S if self.action is not None and self.action.browser is not None else 0.0


@dataclass(slots=True)
class _Sorted:
    """What was found so far."""

    leaks: Mapping[str, Sequence[Leak]]
    found: list[Candidate]
    missing: dict[str, str]

    def add(self, kind: str, resource: str, known: lookup.Names) -> None:
        for leak in self.leaks.get(kind, ()):
            name = f"{resource or kind}/{leak.name}"
            why = _unfit(leak, known)
            if why:
                self.missing[name] = why
            else:
                found = Candidate(name=name, kind=kind, what=leak.what, leak=leak, resource=resource, names=known)
                self.found.append(found)

    def nowhere(self, resource: ResourceSpec) -> None:
        """Nothing of its kind can be planted in it: that is told, and not passed over."""
        why = "it is not known where its files lie"
        self.missing |= {f"{resource.name}/{leak.name}": why for leak in self.leaks.get(resource.kind, ())}


async def candidates(environment: Environment, instance: Instance) -> tuple[list[Candidate], dict[str, str]]:
    """Return what can be planted in this environment and, by name, why the rest of its kinds' catalogue cannot."""
    out = _Sorted(catalogue(), [], {})
    agents: lookup.Names = {"PLACE": environment.spec.workdir, "OUTSIDE": lookup.OUTSIDE}
    trees: list[str] = []
    for resource in environment.spec.resources:
        known = await _names(resource, instance, of_files=any(isinstance(k, ShellLeak) for k in out.leaks.get(resource.kind, ())))
        if known is None:
            out.nowhere(resource)
            continue
        if environment.spec.isolation.shares:
            known = {**known, "SHARED": "yes"}
        out.add(resource.kind, resource.name, known)
        if resource.kind == "container":
            agents = known
        elif "PLACE" in known:
            trees.append(known["PLACE"])
    for owner, place in (await lookup.of_agent(environment.spec, instance)).items():
        out.add("files", owner, {"PLACE": place, "OUTSIDE": lookup.OUTSIDE})
    if trees:
        agents = {**agents, "PLACE": trees[0]}
    for kind in EVERYWHERE:
        out.add(kind, "", {name: text for name, text in agents.items() if name in _OF_ALL})
    return out.found, out.missing


def own(actions: Iterable[DestructiveAction]) -> list[Candidate]:
    """Those that the environment's author wrote down."""
    return [Candidate(name=a.name, kind="own", what=a.what or "of the environment's own", action=a) for a in actions]


async def _names(resource: ResourceSpec, instance: Instance, *, of_files: bool) -> lookup.Names | None:
    match resource.kind:
        case "postgres":
            return await lookup.of_database(instance.subject().endpoint(resource.name), instance.endpoint(resource.name))
        case "browser":
            return lookup.of_browser(resource)
        case "container":
            return await lookup.of_container(resource, instance)
    if not of_files:
        return None
    target = resource.options.get("target") or instance.endpoint(resource.name)  # of a directory that is its path
    if not isinstance(target, str) or not target.startswith("/"):
        return None
    return {**await in_thread(lookup.of_tree, instance.subject().tree(resource.name)), "PLACE": target}


def _unfit(leak: Leak, known: lookup.Names) -> str:
    """Say why a leak cannot be planted here, nothing where it can."""
    wanted = _wanted(leak) - {*known, "window"}
    library, extension = (leak.needs_library, leak.needs_extension) if isinstance(leak, SqlLeak) else ("", "")
    if leak.needs is Needs.ROOT and "ROOT" not in known:
        return "the agent is not root of this container" if "CONTAINER" in known else "nobody is root of the machine in a sandbox"
    if "SHARED" in known and (leak.needs is Needs.SUPERUSER or library):
        return "namespaces share the server, and no holder is its superuser"
    if library and library not in known.get("libraries", ""):
        return f"the server does not load {library}"
    if extension and extension not in known.get("extensions", "").split():
        return f"the server does not offer {extension}, or the database has it already"
    return f"it has no {', no '.join(sorted(w.lower() for w in wanted))} to plant it in" if wanted else ""


def _wanted(leak: Leak) -> set[str]:
    if isinstance(leak, SqlLeak):
        return set(BRACES.findall(" ".join((*leak.sql, *leak.then, leak.database))))
    if isinstance(leak, BrowserLeak):
        return set(BRACES.findall(" ".join((leak.visit, leak.script, *_texts([params for _, params in leak.calls])))))
    assert isinstance(leak, ShellLeak)
    return set(_DOLLARS.findall(leak.shell))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for item in inner for text in _texts(item)]
