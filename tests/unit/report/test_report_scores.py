"""The probe score in the reports: reset method x leak x depth, with what is missed, late, left and stale marked."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from sandbox.model import Mismatch, ResetMethod, VerdictStatus
from sandbox.report import AuditReport, CheckPage, ScoreEntry, StepEntry, as_json
from sandbox.report.html import render, render_check
from sandbox.report.scores import tables

AT = datetime(2026, 11, 30, 4, tzinfo=UTC)


def leak(name: str, *, seen: str | None = "quick", left: str = "", at: str | None = None, **more: Any) -> dict[str, Any]:
    plain = {"name": name, "kind": name.partition("/")[0], "what": "something", "needs": "owner", "declared": "quick"}
    return {**plain, "seen": seen, "probes": ["db"] if seen else [], "left": left, "left_at": at, "blind": "", **more}


def entry(method: ResetMethod, *leaks: dict[str, Any], **more: Any) -> ScoreEntry:
    visible = [row for row in leaks if not row["blind"]]
    body = {
        "planted": len(visible),
        "caught": sum(row["seen"] is not None for row in visible),
        "repaired": sum(not row["left"] for row in visible),
        "missed": [row["name"] for row in visible if row["seen"] is None],
        "left": [row["name"] for row in leaks if row["left"]],
        "broken": [],
        "false_alarms": [],
        "refused": {},
        "inapplicable": {},
        "sample": None,
        "leaks": list(leaks),
    }
    return ScoreEntry(environment="shop", method=method, at=AT, body={**body, **more.pop("body", {})}, **more)


def test_each_method_is_a_column_in_order_of_strength() -> None:
    restore = entry(ResetMethod.RESTORE, leak("db/row"), leak("db/role"))
    hook = entry(ResetMethod.HOOK, leak("db/row"), leak("db/role", left="db/roles", at="quick"))

    (table,) = tables([restore, hook])

    assert [m.name for m in table.methods] == ["hook", "restore"]
    (group,) = table.groups
    assert (group.planted, group.quick, group.deep, group.missed, group.left) == (2, 2, 0, 0, (1, 0))
    assert [cell and cell.left for cell in group.rows[1].cells] == ["db/roles", ""]


def test_the_first_of_one_method_counts_and_what_a_sample_left_out_is_no_cell() -> None:
    whole = entry(ResetMethod.RESTORE, leak("db/row"))
    sample = entry(ResetMethod.CLEAN, leak("db/role"), body={"sample": {"of": 2, "seed": 3}})

    (table,) = tables([whole, sample, entry(ResetMethod.RESTORE)])

    assert [[cell is None for cell in row.cells] for row in table.groups[0].rows] == [[False, True], [True, False]]
    assert table.methods[1].planted == 1


def test_start_states_and_environments_stand_apart() -> None:
    golden, task = entry(ResetMethod.RESTORE, leak("db/row")), entry(ResetMethod.RESTORE, leak("db/row"), state="t1")

    assert [(t.environment, t.state) for t in tables([golden, task])] == [("shop", "golden"), ("shop", "t1")]


def test_what_one_survey_did_not_see_is_not_called_seen() -> None:
    hook, restore = entry(ResetMethod.HOOK, leak("db/row")), entry(ResetMethod.RESTORE, leak("db/row", seen=None))
    old = dataclasses.replace(restore, stale=("probes",))

    assert [group.missed for table in tables([hook, restore]) for group in table.groups] == [1]
    assert [group.missed for table in tables([hook, old]) for group in table.groups] == [0]


def test_scores_of_two_runtimes_are_not_joined() -> None:
    inside = entry(ResetMethod.RESTORE, leak("db/row"), runtime="docker")
    beside = entry(ResetMethod.HOOK, leak("db/row"), runtime="namespaces")

    assert [(t.of, len(t.methods)) for t in tables([inside, beside])] == [("runtime docker", 1), ("runtime namespaces", 1)]


def test_the_page_says_what_was_missed_late_left_and_stale() -> None:
    found = entry(
        ResetMethod.RESTORE,
        leak("db/missed", seen=None),
        leak("db/late", seen="deep"),
        leak("db/left", left="db/roles <x>", at="deep"),
        leak("db/blind", seen=None, blind="nobody can"),
        body={"broken": ["db/left"], "inapplicable": {"db/odd": "it has no view"}, "false_alarms": ["db/noise"]},
        stale=("probes",),
    )
    page = CheckPage(
        environment="shop",
        method=ResetMethod.RESTORE,
        verdict=VerdictStatus.MISMATCH,
        at=AT,
        fields=12,
        steps=(StepEntry(name="probes", ok=True, seconds=0.1),),
        differences=(Mismatch(probe="db", field="roles", expected="a", actual="b"),),
        scores=(found,),
    )
    text = render_check(page)

    for words in ("not seen", "deep only", "left: seen deep", "cannot be", "nobody can", "stale: probes changed", "it has no view"):
        assert words in text, words
    assert "db/roles &lt;x&gt;" in text
    assert "<code>db/noise</code>" in text


def test_an_audit_shows_the_scores_of_its_environments(clean: AuditReport) -> None:
    name = clean.environments[0].name
    score = dataclasses.replace(entry(ResetMethod.RESTORE, leak("db/row"), leak("db/role", seen=None)), environment=name)
    report = dataclasses.replace(clean, scores=(score,))

    assert "db/role" in render(report)
    assert as_json(report)["environments"][0]["scores"] == [
        {
            "method": "restore",
            "state": "golden",
            "runtime": None,
            "planted": 2,
            "caught": 1,
            "repaired": 2,
            "missed": ["db/role"],
            "sample": None,
            "stale": [],
        }
    ]
    assert "--score" in render(clean)
