"""What a candidate for planting must show to count as seen."""

from __future__ import annotations

from envs.planting import Candidate
from probes.leaks import ShellLeak
from probes.leaks.browser import BrowserLeak


def test_a_browsers_leak_is_told_by_its_own_field_and_not_by_what_the_visit_changes() -> None:
    leak = BrowserLeak(name="cookie", what="a cookie", shows="cookie/{domain} / planted")
    found = Candidate(
        name="web/cookie", kind="browser", what="", leak=leak, names={"domain": "shop.test", "origin": "http://shop.test"}
    )
    assert found.shows == "cookie/shop.test / planted"


def test_any_field_tells_of_another_leak() -> None:
    leak = ShellLeak(name="edit", what="an edit", shell="echo planted")
    assert Candidate(name="home/edit", kind="files", what="", leak=leak).shows == "*"
