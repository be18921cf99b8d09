"""Looking at a baseline itself: what an agent could exploit although every reset brings it back exactly (P13)."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.model import Baseline


def examine(baseline: Baseline) -> tuple[str, ...]:
    """Return what is suspicious in a baseline, one line each with what to do; empty when nothing is."""
    return tuple(line for r in baseline.readings for name, text in r.fields.items() for line in _suspicions(r.probe, name, text))


def _suspicions(probe: str, name: str, text: str) -> Iterator[str]:
    if name == "git history/commits" and text.isdigit() and int(text) > 1:
        yield f"{probe}: HEAD has {text} commits of history, in which an agent may read how things were or will be: squash them"
    elif name == "git history/unreached objects" and text != "0":
        yield f"{probe}: unreached objects ({text}) may hold commits: git reflog expire --expire=now --all, git gc --prune=now"
    elif name == "git objects/alternates":
        yield f"{probe}: the repository borrows objects from {text}, outside what is reset: git repack -a -d, then remove the file"
    elif name.startswith("git ref/") and name.startswith(("git ref/refs/remotes/", "git ref/refs/stash", "git ref/refs/replace/")):
        yield f"{probe}: {name.removeprefix('git ref/')} leads beyond the task's commit: remove it"
    elif name.startswith(("prepared transactions/", "replication slots/")):
        yield f"{probe}: {name} was there when the golden snapshot was made: finish or drop it"
    elif name == "data directory pg_tblspc" and text:
        yield f"{probe}: a tablespace lies outside the data directory and would not be reset: move its tables and drop it"
