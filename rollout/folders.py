"""Where runs lie in a home."""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import RecordMissing

ROLLOUTS = "rollouts"


def folder_of(home: Path, run: str = "") -> Path:
    """Return a run's folder, the latest one when none is named; raise RecordMissing where there is none."""
    top = home / ROLLOUTS
    if run:
        return top / run
    runs = sorted((p for p in top.glob("*") if p.is_dir()), key=lambda p: p.stat().st_mtime)
    if not runs:
        raise RecordMissing(f"there is no run in {top}", fix="`autoclave rollout run` makes one")
    return runs[-1]
