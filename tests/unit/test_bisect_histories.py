"""From a pool's sessions to the culprit, over instances in memory: what is recorded, which history is replayed, what is refused."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.bisect import BisectReport, bisect, history, shown
from envs.bisect.history import need
from sandbox.actions import ActionKind, open_actions, read
from sandbox.client import RemotePool
from sandbox.clock import SystemClock
from sandbox.errors import EnvironmentInvalid, InstanceLost
from sandbox.ledger import open_ledger
from sandbox.model import (
    Baseline,
    CheckPolicy,
    Depth,
    ExecResult,
    Mismatch,
    ResetMethod,
    ResetPolicy,
    Snapshot,
    TaskSpec,
    TrajectoryId,
    Verdict,
    VerdictStatus,
)
from sandbox.pool import Pool
from sandbox.ports import Ledger, Subject
from sandbox.service import Server
from sandbox.settings import Settings, Users
from sandbox.testing import MemoryRuntime, ScriptedVerifier, memory_environment
from sandbox.testing.instance import MemoryInstance

HOOK = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",))


def made(reset: ResetPolicy = HOOK, *, deep_every: int = 1000) -> Any:
    return memory_environment(reset=reset, check=CheckPolicy(deep_every=deep_every))


@dataclass
class Home:
    """One home, whose runtime outlives its pools. Under a hook and under restore, `leaks` are left."""

    path: Path
    leaks: dict[ResetMethod, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runtime = MemoryRuntime(leaks=self.leaks)

    @property
    def settings(self) -> Settings:
        return Settings(home=self.path, store=self.path, scratch=self.path, run=self.path, users=Users(agent=None, server=None))

    @asynccontextmanager
    async def ledger(self) -> AsyncIterator[Ledger]:
        async with open_ledger(self.settings.ledger, clock=SystemClock()) as ledger:
            yield ledger

    @asynccontextmanager
    async def pool(self, environment: Any) -> AsyncIterator[Pool]:
        async with (
            self.ledger() as ledger,
            open_actions(self.settings.actions, budget_mb=4) as actions,
            Pool([environment], ledger=ledger, runtime=self.runtime, clock=SystemClock(), size=1, actions=actions) as pool,
        ):
            yield pool

    async def live(self, environment: Any, *trajectories: Sequence[str], task: str | None = None) -> None:
        """Each trajectory is commands; they are called t1, t2, ..."""
        async with self.pool(environment) as pool:
            for number, commands in enumerate(trajectories, 1):
                async with pool.session("memory", trajectory=f"t{number}", task=task, wait=10) as session:
                    for command in commands:
                        await session.run(command.split())
                await pool.cleared([f"t{number}"], timeout=10)

    async def bisect(self, environment: Any, name: str, **options: Any) -> BisectReport:
        async with self.ledger() as ledger:
            return await bisect(await history(name, ledger, self.settings), environment, self.runtime, ledger, **options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, {ResetMethod.HOOK: ["file/left*", "file/deep/*"]})


@pytest.fixture
def make_home() -> Callable[..., Home]:
    return Home


async def test_what_a_session_was_asked_for_is_written_down(home: Home) -> None:
    async with home.pool(made()) as pool, pool.session("memory", trajectory="t1", wait=10) as session:
        await session.run(["cat"], stdin=b"x", env={"A": "b", "A_TOKEN": "not-to-be-seen"}, cwd="/w")
        await session.write_file("/a", b"1", mode=0o600)
        await session.read_file("/a")
        session.endpoint("state")
        await session.snapshot()

    found = (await read(home.settings.actions, [TrajectoryId("t1")]))[TrajectoryId("t1")]

    assert found.gap == ""
    assert [a.kind for a in found.actions] == [ActionKind.RUN, ActionKind.WRITE_FILE, ActionKind.ENDPOINT, ActionKind.SNAPSHOT]
    assert (found.actions[0].env["A"], found.actions[0].exit_code, found.actions[0].limit_s) == ("b", 0, 60.0)
    written = b"".join(p.read_bytes() for p in home.settings.actions.iterdir())
    assert b"not-to-be-seen" not in written


async def test_a_session_of_another_process_says_where_it_acts_unseen(home: Home) -> None:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as short:  # a socket's path may have 107 bytes
        reached = replace(home.settings, run=Path(short) / "run")
        async with home.pool(made()) as pool, Server(pool, reached), RemotePool(reached) as remote:
            for name, direct in (("t1", True), ("t2", False)):
                async with remote.session("memory", trajectory=name, wait=10) as session:
                    await session.run(["get", "orders"])
                    if direct:
                        session.endpoint("state")

    found = await read(home.settings.actions, [TrajectoryId("t1"), TrajectoryId("t2")])

    assert [[a.kind for a in recording.actions] for recording in found.values()] == [
        [ActionKind.RUN, ActionKind.ENDPOINT],
        [ActionKind.RUN],
    ]
    assert [recording.gap for recording in found.values()] == ["", ""]


async def test_a_client_that_leaves_without_a_word_may_have_acted_unseen(home: Home) -> None:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as short:
        reached = replace(home.settings, run=Path(short) / "run")
        async with home.pool(made()) as pool, Server(pool, reached):
            async with RemotePool(reached) as remote:
                session = await remote.acquire("memory", trajectory="t1", wait=10)
                await session.run(["get", "orders"])
                session.endpoint("state")
            await pool.cleared(["t1"], timeout=10)

    found = (await read(home.settings.actions, [TrajectoryId("t1")]))[TrajectoryId("t1")]

    assert [a.kind for a in found.actions] == [ActionKind.RUN, ActionKind.ENDPOINT]
    assert found.gap == ""


async def test_the_culprit_among_twenty_suspects_is_named_and_its_entry_fails_alone(home: Home) -> None:
    environment = made(deep_every=20)
    harmless = ["set orders 4", "rm orders", "spawn worker"]
    await home.live(environment, *[[*harmless, *(["set deep/x 1"] if n == 7 else []), "get orders"] for n in range(20)])

    report = await home.bisect(environment, "t20")

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[0], report.culprit[1].argv) == ("t8", ("set", "deep/x", "1"))
    assert (len(report.as_json()["suspects"]), report.fails_alone, report.verdict) == (20, True, VerdictStatus.MISMATCH)
    assert report.as_json()["fields"] == ["memory/file/deep/x"]
    assert report.as_json()["in_force"]["runtime"] == "memory"


async def test_only_the_field_that_differed_is_looked_for(home: Home) -> None:
    environment = made(deep_every=3)
    home.leaks[ResetMethod.HOOK] = ["file/deep/x"]
    await home.live(environment, ["set deep/y 1"], ["set deep/y 2", "set deep/x 1"], [])
    home.leaks[ResetMethod.HOOK] = ["file/deep/*"]  # and now another thing is left, too, and earlier

    report = await home.bisect(environment, "t3")

    assert report.culprit is not None
    assert (report.culprit[0], report.culprit[1].argv[1]) == ("t2", "deep/x")


async def test_under_restore_each_trajectory_has_a_state_of_its_own(home: Home) -> None:
    home.leaks |= {ResetMethod.CLEAN: ["process/stubborn"], ResetMethod.RESTORE: ["process/stubborn"]}
    environment = made(ResetPolicy())
    await home.live(environment, ["set orders 4", "spawn worker"], ["set a b", "spawn stubborn"])

    report = await home.bisect(environment, "t2")

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[0], report.culprit[1].number) == ("t2", 1)
    assert report.entry is not None
    assert report.entry.table["repaired_by"] == "rebuild"


class Sticky(MemoryInstance):
    """`stick` leaves a field that a restore does not repair, and so does `stick-where FILE` where a file of that name is there."""

    stuck = False

    async def run(self, argv: Sequence[str], **options: Any) -> ExecResult:
        if argv[0] == "stick" or (argv[0] == "stick-where" and argv[1] in self.files):
            self.stuck = True
        elif not argv[0].startswith("stick"):
            return await super().run(argv, **options)
        return ExecResult(exit_code=0, stdout=b"", stderr=b"")

    async def restore(self, snapshot: Snapshot, generation: int) -> None:
        await super().restore(snapshot, generation)
        if self.stuck:
            self.files["deep/x"] = "stuck"


class StickyRuntime(MemoryRuntime):
    makes = Sticky


def under(environment: Any, method: ResetMethod) -> Any:
    """The same, as the command names it: by the method that the failed check followed."""
    other = memory_environment(check=environment.spec.check)
    other.spec = replace(environment.spec, reset=replace(environment.spec.reset, method=method, restore_every=0))
    return other


@pytest.fixture
def sticky(home: Home) -> Home:
    home.runtime = StickyRuntime(leaks=home.leaks)
    return home


def now_and_then(count: int) -> Any:
    """A hook, and a restore with a deep check after so many trajectories."""
    return made(replace(HOOK, restore_every=count), deep_every=count)


async def test_what_a_hook_keeps_for_the_next_one_is_kept_where_only_the_last_was_followed_by_a_restore(sticky: Home) -> None:
    environment = now_and_then(2)
    await sticky.live(environment, ["get orders", "set deep/key 1"], ["set orders 4", "stick-where deep/key"])

    report = await sticky.bisect(under(environment, ResetMethod.RESTORE), "t2")

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[0], report.culprit[1].argv) == ("t2", ("stick-where", "deep/key"))
    assert [(need["trajectory"], need["text"]) for need in report.as_json()["needs"]] == [("t1", "set deep/key 1")]
    assert report.as_json()["resets"] == {"t1": ["hook"], "t2": ["hook", "restore"]}, "closed first"
    assert "reset by restore, and before that by hook" in str(shown.report(report)[0])


async def test_what_a_hook_leaves_and_the_restore_repairs_is_not_what_the_check_found(sticky: Home) -> None:
    environment = now_and_then(3)
    await sticky.live(environment, ["set deep/x 1"], ["get orders"], ["set orders 4", "stick", "get orders"])

    report = await sticky.bisect(under(environment, ResetMethod.RESTORE), "t3")

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[0], report.culprit[1].argv, report.fails_alone) == ("t3", ("stick",), True)
    assert report.as_json()["needs"] == []


async def test_who_left_it_before_a_hook_is_named_and_not_who_was_followed_by_the_restore(sticky: Home) -> None:
    environment = now_and_then(3)
    await sticky.live(environment, ["get orders"], ["set orders 4", "stick"], ["get orders"])

    report = await sticky.bisect(under(environment, ResetMethod.RESTORE), "t3")

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[0], report.culprit[1].number, report.fails_alone) == ("t2", 1, True)


async def test_what_a_closing_hook_and_the_restore_change_by_themselves_is_nobodys_fault(home: Home) -> None:
    """Neither does alone."""
    environment = made(replace(HOOK, restore_every=2), deep_every=2)
    environment.verifier = Worn()
    await home.live(environment, ["get orders"], ["set orders 4"])
    other = under(environment, ResetMethod.RESTORE)
    other.verifier = environment.verifier

    report = await home.bisect(other, "t2")

    assert report.as_json()["resets"]["t2"] == ["hook", "restore"]
    assert report.culprit is None, report.as_json()
    assert report.by_itself == {"memory/file/worn"}


async def test_a_history_of_resets_by_a_hook_needs_one(home: Home) -> None:
    environment = now_and_then(2)
    home.leaks[ResetMethod.RESTORE] = ["file/deep/*"]
    await home.live(environment, ["get orders"], ["set deep/x 1"])
    other = under(environment, ResetMethod.RESTORE)
    other.spec = replace(other.spec, reset=ResetPolicy())

    with pytest.raises(EnvironmentInvalid, match="trajectory t1 was followed by a reset by hook"):
        await home.bisect(other, "t2")


async def test_under_another_method_it_is_replayed_by_that_one_alone(sticky: Home) -> None:
    environment = now_and_then(2)
    await sticky.live(environment, ["set deep/key 1"], ["stick-where deep/key"])

    report = await sticky.bisect(under(environment, ResetMethod.REBUILD), "t2")

    assert (report.verdict, report.as_json()["resets"]) == (VerdictStatus.CLEAN, {"t1": ["rebuild"], "t2": ["rebuild"]})


async def test_a_history_is_replayed_from_its_tasks_own_start(home: Home) -> None:
    home.leaks[ResetMethod.HOOK] = ["file/orders"]
    own = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"orders": "9"}})
    environment = memory_environment(reset=HOOK, tasks=[own])
    await home.live(environment, ["get orders"], ["set orders 3"], task="own")  # as golden has it, and this start has not

    report = await home.bisect(environment, "t2")

    assert report.culprit is not None
    assert (report.culprit[0], report.fails_alone) == ("t2", True)


async def test_tasks_that_start_from_golden_share_the_state_of_one_namespace(home: Home) -> None:
    plain = [TaskSpec(id=name, family="f", difficulty="easy", split="train", prompt="") for name in ("one", "two")]
    environment = memory_environment(reset=HOOK, check=CheckPolicy(deep_every=2), tasks=plain)
    async with home.pool(environment) as pool:
        for name in ("one", "two"):
            async with pool.session("memory", trajectory=name, task=name, wait=10) as session:
                await session.run(["set", "deep/x", name])
            await pool.cleared([name], timeout=10)
    home.leaks[ResetMethod.HOOK] = []

    report = await home.bisect(environment, "two")

    assert report.verdict is VerdictStatus.CLEAN
    assert report.as_json()["suspects"] == ["one", "two"]
    assert report.account.namespaces == 2, "one for an untouched state, one for the history"


class Marked(ScriptedVerifier):
    """Finds that a reset in place changes a field of every state that holds a mark."""

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        found = await super().check(subject, baseline, depth)
        if not subject.in_place or subject.tree("state").entry("mark") is None:
            return found
        itself = Mismatch(probe="memory", field="file/left", expected=None, actual="1")
        return replace(found, status=VerdictStatus.MISMATCH, mismatches=(itself,))


async def test_what_the_reset_changes_by_itself_in_a_tasks_own_start_is_nobodys_fault(home: Home) -> None:
    own = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"mark": "x"}})
    environment = memory_environment(reset=HOOK, tasks=[own])
    environment.verifier = Marked()
    await home.live(environment, ["get orders"], task="own")

    report = await home.bisect(environment, "t1")

    assert report.culprit is None, report.as_json()
    assert report.by_itself == {"memory/file/left"}


class Worn(ScriptedVerifier):
    """Finds that a restore which is not the first reset changes a field, whoever used the state."""

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        found = await super().check(subject, baseline, depth)
        generation: int = subject._instance.generation  # type: ignore[attr-defined]
        if subject.in_place or generation < 3 or depth is Depth.QUICK:
            return found
        itself = Mismatch(probe="memory", field="file/worn", expected=None, actual="1", depth=Depth.DEEP)
        return replace(found, status=VerdictStatus.MISMATCH, mismatches=(*found.mismatches, itself))


class Wearing(ScriptedVerifier):
    """Finds that the second reset in place changes a field, whoever used the state."""

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        found = await super().check(subject, baseline, depth)
        generation: int = subject._instance.generation  # type: ignore[attr-defined]
        if not subject.in_place or generation < 3:
            return found
        itself = Mismatch(probe="memory", field="file/worn", expected=None, actual="1")
        return replace(found, status=VerdictStatus.MISMATCH, mismatches=(*found.mismatches, itself))


async def test_what_the_second_reset_changes_by_itself_is_nobodys_fault(home: Home) -> None:
    environment = made()
    environment.verifier = Wearing()
    await home.live(environment, ["get orders"], ["set orders 4"])

    report = await home.bisect(environment, "t2")

    assert report.culprit is None, report.as_json()
    assert (report.by_itself, report.verdict) == (frozenset({"memory/file/worn"}), VerdictStatus.MISMATCH)


async def test_trajectories_that_did_nothing_are_no_missing_record(home: Home) -> None:
    environment = made()
    environment.verifier = Wearing()
    await home.live(environment, [], [])
    async with home.ledger() as ledger:
        past = await history("t2", ledger, home.settings)

    need(past)
    for path in home.settings.actions.iterdir():
        path.unlink()
    async with home.ledger() as ledger:
        unrecorded = await history("t2", ledger, home.settings)

    assert (await home.bisect(environment, "t2")).by_itself == {"memory/file/worn"}
    with pytest.raises(EnvironmentInvalid, match="is recorded"):
        need(unrecorded)


async def test_what_resets_change_by_themselves_hides_no_culprit(home: Home) -> None:
    environment = made(deep_every=3)
    await home.live(environment, ["get orders"], ["set orders 4"], ["get orders", "set deep/x 1"])
    environment.verifier = Wearing()

    report = await home.bisect(environment, "t3", patterns=["memory/file/*"])

    assert report.culprit is not None, report.as_json()
    assert (report.culprit[1].argv[1], report.by_itself) == ("deep/x", frozenset({"memory/file/worn"}))


async def test_what_went_otherwise_than_recorded_leaves_a_doubt(home: Home) -> None:
    environment = made()
    async with home.pool(environment) as pool, pool.session("memory", trajectory="t1", wait=10) as session:
        home.runtime.faults.fail("run", TimeoutError("cut short"))
        with pytest.raises(TimeoutError):
            await session.run(["set", "a", "b"])
        await session.run(["set", "left", "1"])
    home.leaks[ResetMethod.HOOK] = []

    longer = await home.bisect(environment, "t1")
    home.runtime.faults.fail("run", InstanceLost("it died"))
    lost = await home.bisect(environment, "t1")

    assert (longer.verdict, lost.verdict) == (VerdictStatus.INCONCLUSIVE, VerdictStatus.INCONCLUSIVE)
    assert "cut short (TimeoutError)" in str(longer.as_json()["diverged"])
    assert "it ended the instance" in str(lost.as_json()["diverged"])


async def test_a_command_that_was_refused_is_refused_again_and_stops_nothing(home: Home) -> None:
    environment = made()
    async with home.pool(environment) as pool, pool.session("memory", trajectory="t1", wait=10) as session:
        with pytest.raises(ValueError, match="program name"):
            await session.run([])
        await session.run(["set", "left", "1"])

    report = await home.bisect(environment, "t1", shortening=0)

    assert report.culprit is not None
    assert (report.culprit[1].number, report.account.diverged) == (1, {})


class Shell(MemoryInstance):
    """Runs one script: it leaves something, and ends well where `a` is there, or where nobody asks how it ended."""

    async def run(self, argv: Sequence[str], **options: Any) -> ExecResult:
        if argv[0] != "/bin/sh":
            return await super().run(argv, **options)
        self.files["left"] = "1"
        well = "a" in self.files or argv[2].endswith("|| :\n")
        return ExecResult(exit_code=0 if well else 1, stdout=b"", stderr=b"")


class ShellRuntime(MemoryRuntime):
    makes = Shell


async def test_a_reproduction_counts_as_done_although_what_it_leaves_out_would_have_made_it_end_well(home: Home) -> None:
    home.runtime = ShellRuntime(leaks=home.leaks)
    environment = made()
    async with home.pool(environment) as pool, pool.session("memory", trajectory="t1", wait=10) as session:
        await session.run(["set", "a", "1"])
        assert (await session.run(["/bin/sh", "-c", "set left 1; rm a"])).exit_code == 0

    report = await home.bisect(environment, "t1", write=home.path / "own.toml")

    assert report.culprit is not None
    assert report.as_json()["needs"] == []
    assert (report.fails_alone, report.entry_refused) == (True, ""), "env check would say that it was not done"
    assert report.written


async def test_a_field_that_is_named_is_explained_by_what_it_matches_and_must_be_one(home: Home) -> None:
    environment = made()
    home.leaks[ResetMethod.HOOK] = ["file/left*", "file/deep/*"]
    await home.live(environment, ["set left[1] 1"])

    found = await home.bisect(environment, "t1", patterns=["memory/file/left[1]", "memory/file/le*", "memory/file/other"])

    assert found.culprit is not None
    assert found.unexplained == ("memory/file/other",)
    with pytest.raises(EnvironmentInvalid, match="PROBE/FIELD"):
        await home.bisect(environment, "t1", patterns=["left"])


async def test_what_was_found_is_told_also_where_it_cannot_be_written(home: Home) -> None:
    environment, file = made(), home.path / "own.toml"
    await home.live(environment, ["set left 1"])

    first, again = [await home.bisect(environment, "t1", write=file) for _ in range(2)]

    assert (first.written, first.unwritten) == (file, "")
    assert (again.written, again.culprit) == (None, first.culprit)
    assert "already" in again.as_json()["not_written"]


async def test_a_reset_that_holds_now_and_one_that_fails_are_not_the_same(home: Home) -> None:
    environment = made()
    await home.live(environment, ["set left 1"])
    home.leaks[ResetMethod.HOOK] = []

    holds = await home.bisect(environment, "t1")
    home.runtime.faults.fail("reset_in_place", OSError("no"), times=2)
    fails = await home.bisect(environment, "t1")

    assert (holds.verdict, holds.culprit) == (VerdictStatus.CLEAN, None)
    assert fails.verdict is VerdictStatus.INCONCLUSIVE
    assert fails.account.failed_resets


async def test_what_the_reset_changes_by_itself_is_nobodys_fault(home: Home) -> None:
    environment = made()
    await home.live(environment, ["set left 1"])
    itself = Mismatch(probe="memory", field="file/left", expected=None, actual="1")
    environment.verifier.script.append(Verdict(status=VerdictStatus.MISMATCH, depth=Depth.DEEP, mismatches=(itself,)))

    report = await home.bisect(environment, "t1")

    assert report.by_itself == {"memory/file/left"}
    assert (report.culprit, report.unexplained, report.verdict) == (None, (), VerdictStatus.MISMATCH)


async def test_another_version_of_the_environment_is_refused(home: Home) -> None:
    await home.live(made(), ["set left 1"])
    other = memory_environment(reset=HOOK, version="2")

    with pytest.raises(EnvironmentInvalid, match="another version"):
        await home.bisect(other, "t1")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
async def test_a_culprit_is_found_in_any_history(
    tmp_path_factory: pytest.TempPathFactory, make_home: Callable[..., Home], seed: int
) -> None:
    chance = random.Random(seed)
    home = make_home(tmp_path_factory.mktemp("home"), {ResetMethod.HOOK: ["file/deep/*"]})
    environment = made(deep_every=20)
    harmless = ["set orders 4", "rm orders", "get orders", "spawn x", "set a b", "nothing"]
    trajectories = [chance.choices(harmless, k=chance.randint(0, 4)) for _ in range(20)]
    where = chance.randrange(20)
    at = chance.randint(0, len(trajectories[where]))
    trajectories[where].insert(at, "set deep/x 1")
    await home.live(environment, *trajectories)

    report = await home.bisect(environment, "t20")

    assert report.culprit is not None
    assert (report.culprit[0], report.culprit[1].number, report.fails_alone) == (f"t{where + 1}", at, True)
