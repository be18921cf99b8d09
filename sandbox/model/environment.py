"""What an environment is: its parts, bounds and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.model.page import PageStep
from sandbox.model.terms import NOTHING, Depth, Isolation, ResetMethod, WindowPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one instance. Sizes in MiB, times in seconds."""

    memory_mb: int = 1024
    cpus: float = 1.0
    pids: int = 256
    disk_mb: int = 2048
    file_mb: int = 1024
    descriptors: int = 1024
    output_bytes: int = 1_000_000
    action_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPolicy:
    """How a namespace returns to golden. `hook` is the author's argv, run inside; `restore_every` 0 means never."""

    method: ResetMethod = ResetMethod.RESTORE
    hook: tuple[str, ...] = ()
    hook_limit_s: float = 120.0
    restore_every: int = 0
    max_resets: int = 0
    max_age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPolicy:
    """When and how deep to check. A deep check is due after `deep_every` resets or `deep_after_s` seconds from the oldest
    pending trajectory, whichever comes first; quick checks follow every reset. Where namespaces share an instance, the whole
    instance is read after `instance_every` leases on it or `instance_after_s` seconds from the first of them; those that still
    run then have `instance_drain_s` to end. Leasing stops when more than `quarantine_limit` (a share) of the last
    `quarantine_window` judged trajectories were quarantined; 1 never stops it."""

    deep_every: int = 20
    deep_after_s: float = 600.0
    required_depth: Depth = Depth.QUICK
    window: WindowPolicy = WindowPolicy.STRICT
    max_ready_age_s: float = 900.0
    probe_limit_s: float = 30.0
    instance_every: int = 100
    instance_after_s: float = 600.0
    instance_drain_s: float = 600.0
    quarantine_limit: float = 1.0
    quarantine_window: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec:
    """A typed part of an environment. `options` are the kind's own, validated by its factory; paths in them are absolute."""

    name: str
    kind: str
    options: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """A probe of an environment. `resource` is None for one that reads the instance as a whole."""

    name: str
    kind: str
    resource: str | None = None
    depth: Depth = Depth.QUICK
    options: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class VolatileField:
    """Fields (`probe/field`, shell-style pattern) that may differ between fresh instances, with the author's reason."""

    pattern: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedData:
    """A host directory that many namespaces see read-only at `mount`."""

    path: str
    mount: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task. `start` maps a resource's name to the options of its own start state (a sealed child snapshot) or is empty;
    `success` is the check's description, run by the environment's scorer; `split` is `train` or `held-out`."""

    id: str
    family: str
    difficulty: str
    split: str
    prompt: str
    start: Mapping[str, Any] = NOTHING
    success: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class DestructiveAction:
    """A deliberately destructive thing that `env check` does: argv run in a session, SQL sent to a resource as `role`, or something
    done in a browser. It is also a leak of the environment's own catalogue: `what` it leaves, the depth at which a check in place
    must have `seen` it (or why no probe can: `blind`), and the weakest reset of ours that must undo it."""

    name: str
    what: str = ""
    blind: str = ""
    seen: Depth = Depth.DEEP
    repaired_by: ResetMethod = ResetMethod.RESTORE
    resource: str | None = None
    argv: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()
    role: str = ""  # SQL role; empty is the agent's own
    browser: BrowserAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserAction:
    """What is done in a browser's first tab: it is led to `visit`, `script` (the body of an async function) runs there as after a
    click, then `calls` of the DevTools protocol are made. Or `steps` are taken there, as a session's holder takes them."""

    visit: str = ""
    script: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    steps: tuple[PageStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """The versioned description of one kind of world. `digest` covers everything that shapes state: this text, seeds, hooks."""

    name: str
    version: str
    digest: str
    description: str = ""
    root: str = "host"  # "host": its system directories read-only; "image": `image`, unpacked; else the path of an unpacked image
    image: str = ""  # the docker runtime's image; empty: our base image
    runtime: str = ""  # of the Docker engine, e.g. "runsc"; empty: its default
    workdir: str = "/workspace"
    env: Mapping[str, str] = NOTHING
    network: str = "none"
    isolation: Isolation = Isolation.INSTANCE
    namespaces_per_instance: int = 8  # means something where namespaces share one
    resources: tuple[ResourceSpec, ...] = ()
    limits: Limits = Limits()
    reset: ResetPolicy = ResetPolicy()
    check: CheckPolicy = CheckPolicy()
    probes: tuple[ProbeSpec, ...] = ()
    volatile: tuple[VolatileField, ...] = ()
    shared: tuple[SharedData, ...] = ()
    destructive: tuple[DestructiveAction, ...] = ()
    source: str = ""  # where it was read from, for messages

    def resource(self, name: str) -> ResourceSpec:
        """Return the resource of that name; raise KeyError."""
        return next(r for r in self.resources if r.name == name)
