"""`autoclave gc`: what may be deleted, and deleting it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sandbox.cli import output
from sandbox.cli.options import NOT_NEGATIVE, Home, Json, load
from sandbox.cli.running import run


def gc(
    *,
    evidence_days: Annotated[
        float, Parameter(validator=NOT_NEGATIVE, help="Keep the differences that failed checks found for so many days.")
    ] = 30.0,
    keep_checks: Annotated[int, Parameter(validator=NOT_NEGATIVE, help="Keep so many checks of each namespace.")] = 1000,
    dry_run: Annotated[bool, Parameter(negative="", help="Say what would be deleted, and delete nothing.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Delete what nothing needs any more: leftovers of killed managers, snapshots of earlier environment versions, old evidence.

    Only what carries this home's own tag is ever touched. Snapshots that a living environment, a task or an unfinished trajectory
    stands on stay. Needs the home to itself: drain a running pool first.

    Example: autoclave gc --dry-run
    """
    from sandbox.cleaning import clean

    settings = load(home)
    with output.Progress().step("looking for what nothing needs any more"):
        done = run(clean(settings, evidence_older_than_s=evidence_days * 86_400, keep_checks=keep_checks, dry_run=dry_run))
    if json:
        output.print_json(done)
        return 0
    verb = "would delete" if dry_run else "deleted"
    for snapshot in done.snapshots:
        output.Progress().say(f"{verb} snapshot {snapshot}")
    for thing in done.leftovers:
        output.Progress().say(f"{verb} {thing}")
    output.show(
        f"{verb} {len(done.snapshots)} snapshots, {len(done.leftovers)} leftovers, {done.evidence} pieces of evidence; "
        f"snapshots hold {done.used_mb} MB of {settings.disk_budget_mb} MB"
    )
    return 0
