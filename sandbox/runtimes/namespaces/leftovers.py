"""Finds and removes what a manager of this home left on the machine. Others' sandboxes carry other tags and are never touched."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from sandbox.runtimes import observe
from sandbox.runtimes.namespaces import limits, sandbox
from sandbox.settings import Settings

_DEATH_S = 10.0


def sweep(settings: Settings, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
    """Kill and remove whatever carries our tag and none of the tokens in `keep` (with `dry_run`: name it). Blocking."""
    return (*_processes(settings, keep, dry_run=dry_run), *_groups(settings, keep, dry_run=dry_run))


def _processes(settings: Settings, keep: frozenset[str], *, dry_run: bool) -> list[str]:
    """The process below a bubblewrap is its namespace's first, with which everything inside dies; it does not always die with
    bubblewrap itself, since a change of user ids takes that bond away."""
    label = sandbox.label(settings)
    found = [(pid, name) for pid in observe.strays(label) if not _kept(name := _name(pid, label), keep)]
    for pid, _ in () if dry_run else found:
        for each in (*observe.children(pid), pid):
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
    give_up = time.monotonic() + _DEATH_S
    while not dry_run and set(observe.strays(label)) & {pid for pid, _ in found} and time.monotonic() < give_up:
        time.sleep(0.002)
    return [f"process {pid} ({name})" for pid, name in found]


def _name(pid: int, label: str) -> str:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[2].decode(errors="replace").removeprefix(label) if len(words) > 2 else ""


def _kept(name: str, keep: frozenset[str]) -> bool:
    return any(token in name.split(".") for token in keep)


def _groups(settings: Settings, keep: frozenset[str], *, dry_run: bool) -> list[str]:
    gone = []
    for version, base in set(limits.detected(settings).bases.values()):
        for path in [p for p in base.iterdir() if p.is_dir()] if base.is_dir() else []:
            if not _kept(path.name, keep):
                if not dry_run:
                    limits.Group(paths={path: version}, controllers={}).remove(timeout=5.0)
                gone.append(str(path))
        with contextlib.suppress(OSError):
            base.rmdir()  # made anew with the next sandbox
    return gone
