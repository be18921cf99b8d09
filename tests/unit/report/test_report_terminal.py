"""What people read in a terminal: nothing lost at 80 columns, room used at 200, and no value can speak to the terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from sandbox.model import Mismatch, Recall, TrajectoryId
from sandbox.report import AuditReport, terminal
from sandbox.report.difference import WIDE


def shown(renderable: RenderableType, width: int, *, colour: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None).print(renderable)
    return out.getvalue()


def flowed(text: str) -> str:
    return " ".join(text.split())


CHECK = {"id": "c-7", "verdict": "clean", "depth": "quick", "purpose": "reset", "fields": 412, "when": "2026-11-29T02:00:00+00:00"}
WHY: dict[str, Any] = {
    "trajectory": "t-6f2c1a90", "environment": "shop", "task": "refund-17", "namespace": "shop-3f9a",
    "lease": {"sequence": 12, "generation": 13, "granted": "02:00", "ended": "02:06", "holder": "trainer-0", "outcome": "released"},
    "lineage": {"id": "l-4", "leases": {"from": 11, "to": 20}, "opened_by": {"method": "restore", "identity": True}},
    "start_check": {**CHECK, "vouched_for": "deep", "identity": True}, "end_check": {**CHECK, "id": "c-9", "verdict": "mismatch"},
    "clearance": {"state": "quarantined", "text": "quarantined (contaminated)", "cleared_by": None, "by": "", "note": ""},
    "window": {
        "quarantine": "q-1", "check": "c-9", "from": 11, "to": 20, "namespace": "shop-3f9a", "depth": "deep", "policy": "strict",
        "mismatches": [{"probe": "postgres", "field": "roles/agent", "expected": "limit 20", "actual": "limit 3", "depth": "deep"}],
        "problems": [],
    },
    "parent": None, "forks": [], "siblings": ["t-1", "t-2"], "updates": ["update-12"], "checkpoints": ["ckpt-12"],
    "batches": [{"batch": "batch-9", "shipped_as": "cleared (quick)", "policy_version": "41"}],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 200])
def test_the_audit_fits_and_says_everything(found: AuditReport, width: int) -> None:
    text = shown(terminal.audit(found), width)
    assert all(len(line) <= width for line in text.splitlines())
    said = flowed(text)
    for words in (
        "verdict: mismatch",
        "roles/agent",
        "q-1",
        "update-12",
        "seal broken",
        "stash entry",
        "timed out after 30 s",
        "contaminated",
    ):
        assert words in said
    assert re.search(r"shop-3f9a +quick +clean +18 ", text)


def test_ids_and_verdicts_are_not_broken_at_80_columns(found: AuditReport) -> None:
    text = shown(terminal.audit(found), 80)
    for word in ("inconclusive", "contaminated", "unverified", "shop-3f9a"):
        assert word in text


def test_nothing_in_a_value_reaches_the_terminal_as_a_command(found: AuditReport) -> None:
    text = shown(terminal.audit(found), 80)
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x00\\u202e" in text
    assert "[bold]markup[/bold]" in text


def test_sides_stand_beside_each_other_only_where_there_is_room() -> None:
    view = terminal.differences([Mismatch(probe="p", field="f", expected="old value", actual="new value")])
    assert any("old value" in line and "new value" in line for line in shown(view, WIDE).splitlines())
    assert not any("old value" in line and "new value" in line for line in shown(view, WIDE - 1).splitlines())


def test_the_changed_part_is_marked_and_the_rest_is_not() -> None:
    view = terminal.differences([Mismatch(probe="p", field="f", expected="limit 20 rows", actual="limit 3 rows")])
    text = shown(view, 80, colour=True)
    assert re.search(r"limit \x1b\[[0-9;]*m20\x1b\[0m rows", text)


def test_what_is_left_out_is_counted() -> None:
    long = "a" * 5_000
    text = flowed(shown(terminal.differences([Mismatch(probe="p", field="f", expected=None, actual=long)]), 80))
    assert "[3,800 more characters]" in text
    many = [Mismatch(probe="p", field=f"f{n}", expected="1", actual="2") for n in range(75)]
    assert "and 15 more fields" in shown(terminal.differences(many), 80)


def test_a_megabyte_is_shown_in_a_few_lines() -> None:
    view = terminal.differences([Mismatch(probe="p", field="f", expected="x" * 1_000_000, actual="x" * 999_999 + "y")])
    assert len(shown(view, 80).splitlines()) < 40
    assert "900,000 more characters not compared here" in flowed(shown(view, 80))


@pytest.mark.parametrize("width", [80, 200])
def test_why_tells_the_whole_story(width: int) -> None:
    text = shown(terminal.why(WHY), width)
    assert all(len(line) <= width for line in text.splitlines())
    said = flowed(text)
    for words in (
        "t-6f2c1a90",
        "quarantined",
        "deep by identity",
        "c-9",
        "begun by restore",
        "t-1, t-2",
        "batch-9 as cleared (quick)",
        "update-12",
        "ckpt-12",
    ):
        assert words in said
    assert "deep window of leases 11 to 20" in said
    assert "limit 20" in said
    assert "fork of" not in said


def test_why_before_any_check() -> None:
    young = WHY | {"end_check": None, "window": None, "clearance": {"state": "pending", "text": "pending", "by": "", "note": ""}}
    young["lease"] = WHY["lease"] | {"ended": None, "outcome": None}
    said = flowed(shown(terminal.why(young), 80))
    assert "end check none yet" in said
    assert "to now" in said


def test_quarantines() -> None:
    row = {"id": "quarantine-154", "environment_name": "shop", "namespace": "shop-29ce9a0e900d", "reason": "contaminated",
           "depth": "deep", "from": 11, "to": 20, "trajectories": 10, "held_back": 7, "at": "2026-11-29T02:00:00+00:00",
           "policy": "strict"}  # fmt: skip
    text = shown(terminal.quarantines([row]), 80)
    assert re.search(r"quarantine-154 +shop-29ce9a0e900d +contaminated +deep 11-20 +11-29 02:00", text)
    assert re.search(r"2026-11-29 02:00:00 +7 of 10 +shop +strict", shown(terminal.quarantines([row]), 160))
    assert "nothing was held back" in shown(terminal.quarantines([]), 80)
    member = {
        "trajectory": "t-1",
        "sequence": 11,
        "task": None,
        "effect": "held",
        "clearance": "released",
        "note": "a cache",
        "by": "ada",
    }
    evidence = {"mismatches": WHY["window"]["mismatches"], "problems": [{"probe": "files", "reason": "timed out"}]}
    said = flowed(
        shown(terminal.quarantine(row | {"note": "", "members": [member], "recall": {"updates": ["u-1"]}} | evidence), 80)
    )
    for words in ("deep window of leases 11 to 20", "released: a cache", "u-1", "roles/agent", "files gave no answer: timed out"):
        assert words in said


def test_recall(found: AuditReport) -> None:
    said = flowed(shown(terminal.recall(found.recalls[0]), 80))
    assert "quarantine q-1 reached 1 update" in said
    assert "checkpoints ckpt-12" in said
    assert "no trajectory is quarantined" in shown(terminal.recall(Recall(quarantine=None, trajectories=())), 80)
    only = Recall(quarantine=None, trajectories=(TrajectoryId("t-1"),))
    assert "updates none" in flowed(shown(terminal.recall(only), 80))


def test_demo() -> None:
    times = {"p50": 81.2, "p99": 1140.0}
    result = {"environment": ["shop", "repo"], "runtime": "namespaces", "storage": "overlay", "sessions": 24,
              "leaks_planted": 14, "leaks_caught": 14, "false_alarms": 0,
              "quarantined": [f"t-{n}" for n in range(9)], "cleared": [], "reset_ms": times, "check_ms": times,
              "acquire_ms": {"p50": None, "p99": None}, "report": "/home/a/report.html"}  # fmt: skip
    said = flowed(shown(terminal.demo(result), 80))
    for words in ("shop, repo", "14 of 14", "9 (t-0, t-1, t-2, t-3, ...)", "81.2 / 1,140.0 ms", "- / - ms", "/home/a/report.html"):
        assert words in said


def test_pool_status() -> None:
    none = {"p50": None, "p99": None}
    environment = {"size": 8, "live": 8, "ready": 6, "leased": 2, "creating": 0, "waiting": 1, "breaker": None,
                   "broken": "no space left", "baseline": "7c", "snapshot": "s-1", "states": {"ready": 6, "leased": 2},
                   "version": "2.1.0", "former": [{"version": "2.0.0", "digest": "d", "live": 3, "leased": 1}], "halted": None,
                   "quarantine_rate": {"quarantined": 4, "judged": 20, "limit": 1.0, "window": 20}}  # fmt: skip
    ledger = {"leases": {"open": 2, "given": 40}, "checks": {"clean": 39}, "clearances": {"cleared (quick)": 38},
              "quarantines": 0, "batches": 1, "reset_ms": {"p50": 80.0, "p99": 120.0}, "check_ms": none,
              "acquire_ms": none}  # fmt: skip
    status = {"environments": {"shop": environment}, "draining": True, "troubles": {"deep checks": "late"}, "ledger": ledger,
              "in_force": {"runtime": "namespaces", "storage": "overlay"}}  # fmt: skip
    for width in (80, 200):
        said = flowed(shown(terminal.pool_status(status), width))
        for words in (
            "ready 6",
            "open 2, given 40",
            "80.0 / 120.0 ms",
            "late",
            "draining",
            "runtime namespaces",
            "4 of the last 20",
        ):
            assert words in said
