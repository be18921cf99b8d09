"""The HTML report: whole, harmless, self-contained, and about what the audit found."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from typing import Any

from sandbox.model import Mismatch, VerdictStatus
from sandbox.report import AuditReport
from sandbox.report.html import LONGEST, OPEN_DIFFERENCES, difference, render
from sandbox.report.timeline import PER_LANE, timelines


class Page(HTMLParser):
    """Collects tags, attributes and text; checks that every tag is closed in order."""

    VOID = frozenset({"meta", "br", "rect", "path", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def with_mismatches(report: AuditReport, *mismatches: Mismatch) -> AuditReport:
    check = dataclasses.replace(report.checks[0], status=VerdictStatus.MISMATCH, mismatches=mismatches)
    return dataclasses.replace(report, checks=(check,))


def test_the_page_is_one_file_that_asks_for_nothing(found: AuditReport) -> None:
    page = Page(render(found))
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    targets = [value or "" for name, value in page.attributes if name in ("src", "href", "action", "srcset", "data")]
    assert targets
    assert all(target.startswith("#") for target in targets)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert not re.search(r"@import|url\(", render(found))


def test_hostile_values_stay_text(found: AuditReport) -> None:
    html = render(found)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "{{ 7 * 7 }}" in html
    assert "\\x1b[31mred\\x00\\u202egnp.exe" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)


def test_hostile_names_do_not_break_out_of_attributes(clean: AuditReport) -> None:
    evil: Any = '"><script>x</script>'
    check = dataclasses.replace(
        clean.checks[0], id=evil, namespace=evil, environment=evil, purpose=evil, status=VerdictStatus.MISMATCH,
        mismatches=(Mismatch(probe=evil, field=evil, expected=evil, actual=None),),
    )  # fmt: skip
    page = Page(render(dataclasses.replace(clean, checks=(check,))))
    assert "script" not in page.tags


def test_every_section_is_there_and_says_so_when_empty(clean: AuditReport) -> None:
    text = Page(render(clean)).text
    for said in (
        "No field differs.",
        "Nothing was quarantined.",
        "No quarantined trajectory had been shipped.",
        "None were planted",
    ):
        assert said in text
    assert "limits.memory_mb" in text
    assert "overlay (tmpfs upper)" in text


def test_an_audit_without_checks_does_not_look_clean(clean: AuditReport) -> None:
    text = Page(render(dataclasses.replace(clean, checks=()))).text
    assert "inconclusive" in text
    assert "Every check was clean" not in text


def test_a_value_of_a_megabyte_is_kept_whole(clean: AuditReport) -> None:
    value = "".join(f"row {n:06d}\n" for n in range(95_000))
    changed = value.replace("row 050000", "row 05x000")
    text = Page(render(with_mismatches(clean, Mismatch(probe="p", field="f", expected=value, actual=changed)))).text
    assert len(value) > 1_000_000
    whole = re.sub(r"[\d,]+ equal characters", "", text)
    assert [whole.count(side) for side in (value, changed)] == [1, 1]


def test_what_is_cut_is_said(clean: AuditReport) -> None:
    shown = difference(Mismatch(probe="p", field="f", expected=None, actual="y" * (LONGEST + 7)))
    assert shown.actual.segments is not None
    assert sum(len(s.text) for s in shown.actual.segments) == LONGEST
    assert f"{LONGEST + 7:,} characters" in shown.actual.note
    assert "ledger keeps the rest" in shown.actual.note


def test_long_equal_runs_are_folded_and_the_change_lies_open() -> None:
    before, after = "left " * 300, "right " * 300
    shown = difference(Mismatch(probe="p", field="f", expected=f"{before}OLD {after}", actual=f"{before}NEW {after}"))
    assert shown.expected.segments is not None
    changed = [s for s in shown.expected.segments if s.changed]
    assert [s.text for s in changed] == ["OLD"]
    assert all(not s.fold for s in changed)
    assert [s.fold for s in shown.expected.segments if s.fold] != []
    assert "".join(s.text for s in shown.expected.segments) == f"{before}OLD {after}"


def test_absent_and_empty_are_told_apart(clean: AuditReport) -> None:
    text = Page(render(with_mismatches(clean, Mismatch(probe="p", field="f", expected=None, actual="")))).text
    assert "absent" in text
    assert "empty text" in text


def test_many_differences_are_all_there(clean: AuditReport) -> None:
    many = [Mismatch(probe="p", field=f"field-{n:04d}", expected="a", actual="b") for n in range(OPEN_DIFFERENCES + 200)]
    text = Page(render(with_mismatches(clean, *many))).text
    assert all(f"field-{n:04d}" in text for n in range(len(many)))
    assert "200 more differences" in text


def test_the_timeline_holds_every_lease_check_and_window_once(found: AuditReport) -> None:
    drawn = timelines(found)
    assert {t.namespace for t in drawn} == {"shop-3f9a", "repo-77c1"}
    assert sum(len(t.boxes) for t in drawn) == len(found.leases)
    assert sum(len(t.diamonds) for t in drawn) == len(found.checks)
    repo = next(t for t in drawn if t.namespace == "repo-77c1")
    assert len({box.y for box in repo.boxes}) == -(-30 // PER_LANE)
    for t in drawn:
        places = [(b.x, b.y) for b in t.boxes]
        assert len(set(places)) == len(places)
        assert all(b.x >= 0 and b.x + b.width <= t.width and b.y + b.height <= t.height for b in t.bands)


def test_a_window_covers_exactly_its_leases(found: AuditReport) -> None:
    shop = next(t for t in timelines(found) if t.namespace == "shop-3f9a")
    (band,) = shop.bands
    inside = {
        b.lease.sequence
        for b in shop.boxes
        if band.x <= b.x and b.x + 28 <= band.x + band.width and band.y <= b.y <= band.y + band.height
    }
    assert inside == set(range(11, 21))


def test_a_window_over_two_lanes_is_drawn_on_both(found: AuditReport) -> None:
    wide = dataclasses.replace(found.quarantines[1], first=PER_LANE - 1, last=PER_LANE + 3)
    repo = next(t for t in timelines(dataclasses.replace(found, quarantines=(wide,))) if t.namespace == "repo-77c1")
    assert [band.first for band in repo.bands] == [True, False]
    assert len({band.y for band in repo.bands}) == 2
