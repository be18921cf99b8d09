"""Which of a browser's processes and sockets say something: what it starts and opens for its own parts comes and goes by itself.

A tab, a worker or an extension has a process, but which ones share it and how many wait in reserve is the browser's choice. What is
open is read over its protocol; here only what is not a part of the browser counts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from sandbox.model import EnvironmentSpec, ProcessInfo, Role
from sandbox.ports import Listener

KIND = "browser"
_Known = dict[tuple[str | None, int], ProcessInfo]
_SELF = "/proc/self/exe"  # how Chromium starts some parts; a part gives itself its program's name a moment later
_RANDOM = re.compile(r"^(/tmp/\.?org\.chromium\.[A-Za-z.]*)[A-Za-z0-9]{6}/")
_UNNAMED = re.compile(r"^(unnamed|@[0-9a-f]{5})$")  # socket pairs, and names that the kernel chose


def browsers_of(spec: EnvironmentSpec) -> frozenset[str]:
    return frozenset(r.name for r in spec.resources if r.kind == KIND)


def without_parts(processes: Iterable[ProcessInfo], browsers: frozenset[str]) -> list[ProcessInfo]:
    """Leave out the processes that a browser started of its own program (or of the program beside it that waits for crashes)."""
    found = list(processes)
    known: _Known = {(p.resource, p.pid): p for p in found if p.role is Role.SERVER and p.resource in browsers}
    return [p for p in found if (p.resource, p.pid) not in known or not _is_part(p, known)]


def _is_part(process: ProcessInfo, known: _Known) -> bool:
    words = " ".join(process.argv).split(" ")
    helper = words[0].rpartition("/")[2] == "chrome_crashpad_handler"
    if not helper and not any(word.startswith("--type=") for word in words):
        return False
    above = known.get((process.resource, process.parent))
    for _ in range(len(known)):  # up to the browser itself; a helper may have lost its parent
        if above is None:
            return helper
        said = " ".join(above.argv).split(" ")
        if _SELF not in (said[0], words[0]) and said[0].rpartition("/")[0] != words[0].rpartition("/")[0]:
            return helper
        if not any(word.startswith("--type=") for word in said):
            return True
        above = known.get((above.resource, above.parent))
    return False


def without_noise(listeners: Iterable[Listener], browsers: frozenset[str]) -> list[Listener]:
    """Leave out socket pairs between a browser's parts, and closed connections that the kernel still remembers; take random parts
    out of names."""
    kept = []
    for listener in listeners:
        if listener.resource in browsers and listener.role is Role.SERVER:
            if listener.kind == "unix" and listener.state == "connected" and _UNNAMED.match(listener.address):
                continue
            if listener.kind == "tcp" and listener.state == "other":
                continue
            listener = dataclasses.replace(listener, address=_RANDOM.sub(r"\1*/", listener.address))
        kept.append(listener)
    return kept
