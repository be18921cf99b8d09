"""`autoclave gc`: what may be deleted, and deleting it."""

from __future__ import annotations

from dataclasses import asdict
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
    gone_homes: Annotated[
        bool, Parameter(negative="", help="Also delete stores of homes that are gone. Not while a home's disk is just not mounted.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Delete what nothing needs any more: leftovers of killed managers, snapshots of earlier environment versions, old evidence.

    Only what carries this home's own tag is ever touched. Snapshots that a living environment, a task or an unfinished trajectory
    stands on stay. Needs the home to itself: drain a running pool first.

    Example: autoclave gc --dry-run
    """
    from sandbox.cleaning import clean, orphans, remove_orphans

    settings = load(home)
    with output.Progress().step("looking for what nothing needs any more"):
        done = run(clean(settings, evidence_older_than_s=evidence_days * 86_400, keep_checks=keep_checks, dry_run=dry_run))
        found, kept = orphans(), list[str]()
        if gone_homes and not dry_run:
            found, kept = run(remove_orphans(found))
    listed = [{"home": orphan.home, "directory": orphan.directory} for orphan in found]
    if json:
        deleted = listed if gone_homes and not dry_run else []
        output.print_json({**asdict(done), "gone_homes": listed, "gone_homes_deleted": deleted, "gone_homes_kept": kept})
        return 0
    verb = "would delete" if dry_run else "deleted"
    for snapshot in done.snapshots:
        output.Progress().say(f"{verb} snapshot {snapshot}")
    for thing in done.leftovers:
        output.Progress().say(f"{verb} {thing}")
    for orphan in found:
        output.Progress().say(f"{verb if gone_homes else 'found'} {orphan.directory} of {orphan.home}, which is gone")
    for reason in kept:
        output.warn(f"not deleted: {reason}")
    if found and not gone_homes:
        output.show(f"{len(found)} directories belong to homes that are gone: `autoclave gc --gone-homes` deletes them")
    output.show(
        f"{verb} {len(done.snapshots)} snapshots, {len(done.leftovers)} leftovers, {done.evidence} pieces of evidence; "
        f"snapshots hold {done.used_mb} MB of {settings.disk_budget_mb} MB"
    )
    return 0
