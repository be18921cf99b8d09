"""The two pages that acceptance runs keep: docs/resets.md and docs/acceptance.md. Written only with AUTOCLAVE_WRITE_DOCS=1."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.model import ResetMethod

ROOT = Path(__file__).parents[2]
WRITE = os.environ.get("AUTOCLAVE_WRITE_DOCS") == "1"
RESETS, ACCEPTANCE = ROOT / "docs" / "resets.md", ROOT / "docs" / "acceptance.md"

RESETS_HEAD = """# What survives which reset

Every leak of the catalogue (`probes/leaks/`) is planted through a real instance, read at depth deep with no reset done, and then
reset by each method in turn. "Gone" means that a deep check afterwards finds no field that differs, apart from what the reset
changes by itself in a world that nobody touched (listed below each table).

- **hook**: what most authors write: `TRUNCATE ... RESTART IDENTITY` and reload; `git reset --hard && git clean -fdx`
- **clean**: Autoclave's own clean-up in place
- **restore**: the state replaced by a clone of the sealed golden
- **rebuild**: a new instance from the golden, whose seal is verified first

Made by `AUTOCLAVE_WRITE_DOCS=1 python -m pytest tests/acceptance/test_leaks_and_resets.py -m acceptance`. Do not edit.
"""
# "Done when" of issue 2, and the tests that stand for each line. What no test here covers says where it is shown.
DONE_WHEN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("1", "`make demo` and `make test` set up and pass in a new clone; the demo also as an ordinary user", ("test_new_clone",)),
    ("2", "`autoclave demo --json`: all planted leaks caught (12 or more), no false alarm", ("test_demo",)),
    (
        "3",
        "`autoclave env check shop` and `repo`: clean under restore; the hooks report the differing fields",
        ("test_env_check_shipped",),
    ),
    (
        "4",
        "every leak that PostgreSQL allows is seen at deep with no reset done, and gone after restore",
        ("test_leaks_and_resets",),
    ),
    ("5", "2,000 clean cycles over shop and repo: no false alarm, nothing left behind", ("test_cycles",)),
    (
        "6",
        "kill -9 at 50 points: P9 and P10 hold; an agent reads no file of the host beyond the profile",
        ("test_killed_manager", "test_reach_of_an_agent"),
    ),
    ("7", "`make bench` prints the ratios", ()),
    ("8", "the HTML report and the terminal output read well at 80 and 200 columns", ()),
)
ELSEWHERE = {"7": "see [benchmarks](benchmarks.md)", "8": "looked at by a person"}


# What `make acceptance` selects: a module that stands for a line above has tests of these marks.
MARKS = ("acceptance", "done_when")


@dataclass(slots=True)
class Ran:
    """One test of this run."""

    outcome: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)


_RAN: dict[str, Ran] = {}
_COUNTS: dict[str, dict[str, int]] = {}


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """`tally("cycles", 1000)` puts a count beside the test's result."""

    def count(what: str, number: int) -> None:
        _COUNTS.setdefault(request.node.nodeid, {})[what] = number

    return count


class ResetsPage:
    """Collects the tables of docs/resets.md."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Sequence[Any], Mapping[ResetMethod, Any]]] = []

    def add(self, title: str, outcomes: Sequence[Any], noise: Mapping[ResetMethod, Any]) -> None:
        self._parts.append((title, outcomes, noise))

    def text(self) -> str:
        lines = [RESETS_HEAD, _when()]
        for title, outcomes, noise in sorted(self._parts, key=lambda part: part[0]):
            planted = [o for o in outcomes if not o.refused]
            lines += [
                "",
                f"## {title}",
                "",
                f"{len(planted)} leaks. Of these survive or defeat the reset: {self._summary(planted)}.",
                "",
            ]
            lines += [
                "| leak | what it is | needs | seen at | hook | clean | restore | rebuild |",
                "|---|---|---|---|---|---|---|---|",
            ]
            lines += [self._row(o) for o in outcomes]
            for method in (ResetMethod.HOOK, ResetMethod.CLEAN):
                fields = sorted(noise.get(method, ()))
                shown = ", ".join(f"`{f}`" for f in fields[:12]) + (f" and {len(fields) - 12} more" if len(fields) > 12 else "")
                lines += ["", f"What `{method}` changes by itself: {shown or 'nothing that is read'}."]
        return "\n".join(lines) + "\n"

    def _summary(self, planted: Sequence[Any]) -> str:
        counts = {m: sum(o.after.get(m, "gone") != "gone" for o in planted) for m in ResetMethod}
        return ", ".join(
            f"{m} {counts[m]}" for m in (ResetMethod.HOOK, ResetMethod.CLEAN, ResetMethod.RESTORE, ResetMethod.REBUILD)
        )

    def _row(self, o: Any) -> str:
        seen = "none: " + o.leak.blind if o.leak.seen is None else str(o.leak.seen)
        if o.refused:
            return (
                f"| {o.leak.name} | {o.leak.what} | {o.leak.needs} | - | cannot be planted: {o.refused.replace('|', '/')} | | | |"
            )
        cells = [
            self._cell(o.after.get(m)) for m in (ResetMethod.HOOK, ResetMethod.CLEAN, ResetMethod.RESTORE, ResetMethod.REBUILD)
        ]
        return f"| {o.leak.name} | {o.leak.what} | {o.leak.needs} | {seen} | {' | '.join(cells)} |"

    def _cell(self, after: str | None) -> str:
        if after is None:
            return "not tried"
        return after if after == "gone" else f"**{after.partition(':')[0]}**"


_PAGE = ResetsPage()


@pytest.fixture
def resets_page() -> ResetsPage:
    return _PAGE


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a page that names a module without tests: before the selection by marks, and hours before the page is written."""
    for number, _, modules in DONE_WHEN:
        for module in modules:
            if why := _unmatched(module, items):
                raise pytest.UsageError(f'line {number} of "Done when" in {Path(__file__).name} names {module}: {why}')


def _unmatched(module: str, items: Sequence[pytest.Item]) -> str:
    """Say why a module can bring no result. Where this run collects it, its tests are looked at, else its source."""
    found = list((ROOT / "tests").rglob(f"{module}.py"))
    if len(found) != 1:
        return f"{len(found)} files of the suite are called so"
    collected = [item for item in items if item.path == found[0]]
    marked = [item for item in collected if any(item.get_closest_marker(mark) for mark in MARKS)]
    text = found[0].read_text("utf-8")
    if not marked if collected else not any(f"pytest.mark.{mark}" in text for mark in MARKS):
        return f"none of its tests is marked {' or '.join(MARKS)}"
    return ""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _RAN[report.nodeid] = Ran(report.outcome, report.duration, _COUNTS.get(report.nodeid, {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not WRITE or session.config.option.collectonly:
        return
    parts = len(_PAGE._parts)
    if parts == 2 and not os.environ.get("AUTOCLAVE_LEAKS"):
        RESETS.write_text(_PAGE.text(), "utf-8")
    if _RAN:
        ACCEPTANCE.write_text(_acceptance(), "utf-8")


def _acceptance() -> str:
    """The table of this run; lines whose tests did not run now keep what the page said of them."""
    before = _rows_of(ACCEPTANCE.read_text("utf-8")) if ACCEPTANCE.exists() else {}
    lines = [
        "# Acceptance",
        "",
        'Each "Done when" line of the main job, the tests that stand for it, and their last result. Kept by',
        "`AUTOCLAVE_WRITE_DOCS=1 make acceptance`; a line whose tests did not run keeps its last result.",
        "",
        "| | done when | tests | result | counts | seconds | on |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, what, modules in DONE_WHEN:
        ran = {n: r for n, r in _RAN.items() if any(f"/{m}.py::" in n for m in modules)}
        if not ran:
            lines.append(
                before.get(number) or f"| {number} | {what} | {_tests(modules)} | {ELSEWHERE.get(number, 'not run yet')} | | | |"
            )
            continue
        outcomes = {r.outcome for r in ran.values()}
        result = "FAILED" if "failed" in outcomes else "passed" if outcomes == {"passed"} else "passed, some skipped"
        counts: dict[str, int] = {}
        for r in ran.values():
            for name, count in r.counts.items():
                counts[name] = counts.get(name, 0) + count
        told = ", ".join([f"{len(ran)} tests", *(f"{count:,} {name}" for name, count in counts.items())])
        seconds = sum(r.seconds for r in ran.values())
        lines.append(f"| {number} | {what} | {_tests(modules)} | {result} | {told} | {seconds:.0f} | {_stamp()} |")
    return "\n".join(lines) + "\n" + _below_table(ACCEPTANCE.read_text("utf-8") if ACCEPTANCE.exists() else "")


def _below_table(text: str) -> str:
    """What people wrote below the table stays."""
    lines = text.splitlines(keepends=True)
    last = max((n for n, line in enumerate(lines) if line.startswith("| ")), default=len(lines))
    return "".join(lines[last + 1 :])


def _rows_of(text: str) -> dict[str, str]:
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.split("|")[1].strip().isdigit()]
    return {line.split("|")[1].strip(): line for line in rows}


def _tests(modules: Sequence[str]) -> str:
    return ", ".join(f"`{m}`" for m in modules) or "-"


def _stamp() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{datetime.now(UTC):%Y-%m-%d} {done.stdout.strip()}"


def _when() -> str:
    user = "as root" if os.geteuid() == 0 else "as an ordinary user"
    return f"Last run: {_stamp()}, Linux {platform.release()}, {user}."
