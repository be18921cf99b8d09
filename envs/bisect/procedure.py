"""From a mismatch to what left it: the search over replays, and the reproduction that is tried before it is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from envs.bisect import reproduction
from envs.bisect.history import History
from envs.bisect.replay import Replayer, Say
from envs.bisect.report import BisectReport
from envs.bisect.reproduction import Entry
from envs.bisect.search import Budget, Found, Search, Segment, Sought, Worn
from envs.check import baseline
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid
from sandbox.model import Depth, ResetMethod
from sandbox.pages import open_pages
from sandbox.pool.members import StartState
from sandbox.ports import Environment, Ledger, Runtime

SHORTENING = 60  # plans that are replayed to leave out what is not needed


async def bisect(
    history: History,
    environment: Environment,
    runtime: Runtime,
    ledger: Ledger,
    *,
    patterns: Sequence[str] = (),
    shortening: int = SHORTENING,
    write: Path | None = None,
    say: Say = lambda _: None,
) -> BisectReport:
    """Replay a history, each trajectory with the resets that followed it; with the environment's own method alone where that is
    not the one which the failed check followed. `patterns` are looked for instead of the fields that differed."""
    require_same(history, environment)
    sought = Sought(patterns=tuple(patterns)) if patterns else Sought(names=frozenset(history.sought))
    if wrong := [pattern for pattern in patterns if "/" not in pattern and "*" not in pattern]:
        raise EnvironmentInvalid(f"{wrong[0]!r} names no field", fix="--field 'PROBE/FIELD', with * for any text")
    if not patterns and not history.sought:
        raise EnvironmentInvalid(
            f"{history.quarantine} holds no field that differed",
            fix="name what to look for: --field 'PROBE/FIELD', with * for any text",
        )
    began, method = SystemClock().monotonic(), environment.spec.reset.method
    segments = [replace(s, task=_own_start(environment, s.task), resets=_resets(history, environment, s)) for s in history.segments]
    async with open_pages() as pages:
        judge = Replayer(environment, runtime, _starts(environment, runtime, ledger), pages, say=say)
        report = BisectReport(
            history=history,
            method=method,
            resets={segment.trajectory: segment.resets for segment in segments},
            sought=tuple(patterns or history.sought),
            named=bool(patterns),
            account=judge.account,
            gaps=history.gaps,
        )
        say("a reset of an untouched state")
        looked = [segment for segment in segments if segment.resets[-1] is method]
        for task, resets in dict.fromkeys((segment.task, segment.resets) for segment in looked):
            report.by_itself |= await judge.hits([Segment(trajectory="", actions=(), task=task, resets=resets)], sought)
        rest, budget = replace(sought, by_itself=report.by_itself), Budget(left=shortening)
        while rest.patterns or rest.names - rest.by_itself:
            found = await Search(judge, rest, budget).run(segments, suspects=history.suspects)
            if not isinstance(found, Worn):
                report.found = found
                break
            report.by_itself |= found.fields
            rest = replace(rest, by_itself=report.by_itself)
        if isinstance(report.found, Found):
            await _reproduce(report, report.found, judge, rest, say)
            if write is not None and report.entry is not None and report.fails_alone:
                _write(report, report.entry, write)
    report.seconds = SystemClock().monotonic() - began
    return report


def require_same(history: History, environment: Environment) -> None:
    """Raise EnvironmentInvalid where the environment is not what the trajectories acted in."""
    spec = environment.spec
    if spec.digest != history.digest:
        raise EnvironmentInvalid(
            f"environment {spec.name} is another version now: {spec.digest[:12]}, and the trajectories of {history.quarantine}"
            f" acted in {history.digest[:12]} of {history.environment}",
            fix="check out the version that they had and name it with --environment PATH",
        )


def _resets(history: History, environment: Environment, segment: Segment) -> tuple[ResetMethod, ...]:
    policy = environment.spec.reset
    resets = segment.resets if policy.method is history.method else ()
    if ResetMethod.HOOK in resets and not policy.hook:
        raise EnvironmentInvalid(
            f"trajectory {segment.trajectory} was followed by a reset by hook, and environment {environment.spec.name} has none",
            fix="name the environment that the pool had with --environment PATH",
        )
    return resets or (policy.method,)


def _own_start(environment: Environment, task: str) -> str:
    """Name a task's start state: empty for one that starts from golden, as those without a task do."""
    spec = environment.tasks.get(task)
    return task if spec is not None and spec.start else ""


def _write(report: BisectReport, entry: Entry, path: Path) -> None:
    """Keep the reproduction. What was found is worth telling also where that cannot be done."""
    try:
        reproduction.append(entry, path)
    except (EnvironmentInvalid, OSError) as error:
        report.unwritten = str(error)
    else:
        report.written = path


def _starts(environment: Environment, runtime: Runtime, ledger: Ledger) -> Callable[[str], Awaitable[StartState]]:
    """Return start states by the task whose own they are; golden for the empty name."""
    known: dict[str, StartState] = {}

    async def start(task: str) -> StartState:
        if task not in known:
            known[task] = await baseline(environment, runtime, ledger, task=task or None)
        return known[task]

    return start


async def _reproduce(report: BisectReport, found: Found, judge: Replayer, sought: Sought, say: Say) -> None:
    """Make the shortest history one entry of the catalogue, and try that alone in a fresh namespace."""
    last = [segment for segment in found.plan if segment.actions][-1]
    seen = Depth.QUICK if Depth.QUICK in {report.history.sought.get(name) for name in found.fields} else Depth.DEEP
    for lenient in (False, True):
        report.entry = reproduction.entry(
            [action for segment in found.plan for action in segment.actions],
            fields=found.fields,
            about={
                "what": f"left by an agent: {_shown(found.fields)}",
                "seen": seen.value,
                **({"repaired_by": ResetMethod.REBUILD.value} if report.method.replaces else {}),
            },
            comment=(
                f"Found by `autoclave bisect {report.history.quarantine}`:",
                f"left by trajectory {last.trajectory}, action {last.actions[-1].number}, under reset {report.method}.",
            ),
            lenient=lenient,
        )
        if report.entry is None:
            return
        say("its reproduction, alone")
        refused, report.entry_leaves = await judge.alone(report.entry.action, last.task, sought)
        report.entry_refused = refused or ""
        if not (refused and report.entry_leaves):  # an action that ends badly counts as not done, whatever it leaves
            return


def _shown(fields: frozenset[str]) -> str:
    names = sorted(fields)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
