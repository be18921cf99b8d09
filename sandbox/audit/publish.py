"""Writes an audit's report where a person and a CI system look for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.errors import LimitReached
from sandbox.report import AuditReport, html, junit


async def publish(report: AuditReport, directory: Path, *, name: str = "audit") -> AuditReport:
    """Write `<name>-<started>.html` and `.xml`; return the report with their paths. Raises LimitReached on a full disk."""
    stem = f"{name}-{report.started:%Y%m%dT%H%M%S}"
    placed = replace(report, html=str(directory / f"{stem}.html"), junit=str(directory / f"{stem}.xml"))
    await in_thread(_write, directory, {f"{stem}.html": html.render(placed), f"{stem}.xml": junit.render(placed)})
    return placed


def _write(directory: Path, files: dict[str, str]) -> None:
    """Each file appears whole or not at all."""
    halves = {directory / f".{name}.half": (directory / name, text) for name, text in files.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for half, (whole, text) in halves.items():
            half.write_text(text, encoding="utf-8")
            os.replace(half, whole)
    except OSError as error:
        for half in halves:
            half.unlink(missing_ok=True)
        raise LimitReached(f"the report could not be written to {directory}: {error.strerror}", fix="free space there") from error
