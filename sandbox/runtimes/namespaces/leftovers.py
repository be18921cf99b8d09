"""Finds and removes what a manager of this home left on the machine. Others' sandboxes carry other tags and are never touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox.runtimes.namespaces import limits
from sandbox.settings import Settings

_DEATH_S = 10.0


def sweep(settings: Settings, keep: frozenset[str]) -> tuple[str, ...]:
    """Kill and remove whatever carries our tag and none of the tokens in `keep`. Blocking."""
    gone = [*_processes(settings, keep), *_groups(settings, keep)]
    if settings.run.is_dir() and os.lstat(settings.run).st_uid == os.geteuid():
        for path in settings.run.iterdir():
            if path.name not in keep and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
                gone.append(str(path))
    return tuple(gone)


def remove_empty(settings: Settings) -> None:
    """Remove the directory of sockets when nobody uses it."""
    with contextlib.suppress(OSError):
        settings.run.rmdir()


def _processes(settings: Settings, keep: frozenset[str]) -> list[str]:
    found = list(_strays(settings, keep))
    for pid, _ in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    give_up = time.monotonic() + _DEATH_S
    while _strays_left(found) and time.monotonic() < give_up:
        time.sleep(0.002)
    return [f"process {pid} ({name})" for pid, name in found]


def _strays(settings: Settings, keep: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield bubblewrap's processes of our tag: with the outer one dies the inner one, and with that its whole namespace."""
    mark = f"autoclave:{limits.tag(settings)}:".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        names = [word.removeprefix(mark).decode(errors="replace") for word in words if word.startswith(mark)]
        if names and not any(token in names[0].split(".") for token in keep):
            yield int(entry), names[0]


def _strays_left(found: list[tuple[int, str]]) -> bool:
    for pid, name in found:
        try:
            if name.encode() in Path("/proc", str(pid), "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def _groups(settings: Settings, keep: frozenset[str]) -> list[str]:
    gone = []
    for version, base in set(limits.detected(settings).bases.values()):
        for path in [p for p in base.iterdir() if p.is_dir()] if base.is_dir() else []:
            if not any(token in path.name.split(".") for token in keep):
                limits.Group(paths={path: version}, controllers={}).remove(timeout=5.0)
                gone.append(str(path))
    return gone
