"""What `env check` found, as an HTML file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from envs.check import CheckReport
from envs.planting.kept import Kept
from sandbox.errors import EnvironmentInvalid
from sandbox.report import CheckPage, ScoreEntry, StepEntry, html


def entries(scores: Iterable[Kept]) -> tuple[ScoreEntry, ...]:
    """Return stored scores as a report takes them."""
    return tuple(
        ScoreEntry(
            environment=k.score.environment,
            method=k.score.method,
            body=k.score.body,
            at=k.score.at,
            state=k.state,
            runtime=k.runtime,
            stale=k.stale,
        )
        for k in scores
    )


def write(report: CheckReport, scores: Iterable[Kept], *, at: datetime, path: Path) -> None:
    """Write the page; it appears whole or not at all. `scores` are the environment's: this check's own among them comes first, be
    it a sample, and those of its other reset methods stand beside it. Raises EnvironmentInvalid where it cannot be written."""
    page = CheckPage(
        environment=report.environment,
        method=report.method,
        verdict=report.verdict,
        at=at,
        fields=report.baseline.fields,
        steps=tuple(StepEntry(name=s.name, ok=s.ok, seconds=s.seconds, detail=s.detail) for s in report.steps),
        differences=tuple(report.differences),
        problems=tuple(report.problems),
        scores=entries(sorted(scores, key=lambda kept: not _measured(report, kept))),
        in_force=report.in_force,
    )
    half = path.with_name(f".{path.name}.half")
    try:
        half.write_text(html.render_check(page), "utf-8")
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise EnvironmentInvalid(f"the page could not be written to {path}: {error.strerror}", fix="give another --html") from error


def _measured(report: CheckReport, kept: Kept) -> bool:
    """True for the score that this check measured."""
    score = kept.score
    if report.score is None or (score.baseline, score.method) != (report.baseline.key, report.method):
        return False
    return score.sampled == (report.score.seed is not None)
