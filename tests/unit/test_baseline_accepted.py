"""A baseline that differs from the one before it is recorded when somebody says yes, and else all stays as it was."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envs import check as procedure
from sandbox.clock import SystemClock
from sandbox.errors import BaselineRefused, BaselineUnstable
from sandbox.ledger import open_ledger
from sandbox.model import Baseline, Isolation, TaskSpec
from sandbox.testing import MemoryRuntime, MemoryStorage, memory_environment


class Person:
    """Answers each question in turn, and says what it was shown."""

    def __init__(self, *answers: bool | BaseException) -> None:
        self.answers = list(answers)
        self.shown: list[set[str]] = []

    async def __call__(self, baseline: Baseline) -> bool:
        self.shown.append({m.field for m in baseline.changes})
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def salted(**more: Any) -> Any:
    """Each build has another salt, so that a rebuilt golden has another baseline."""
    return memory_environment(per_build=["salt"], **more)


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime(MemoryStorage())


@pytest.mark.parametrize("answer", [False, KeyboardInterrupt()])
async def test_without_a_yes_the_former_golden_and_baseline_stay(
    answer: bool | BaseException, tmp_path: Path, runtime: MemoryRuntime
) -> None:
    person = Person(answer, True)
    async with open_ledger(tmp_path / "ledger", clock=SystemClock()) as ledger:
        first = await procedure.baseline(salted(), runtime, ledger, approve=person)  # nothing before it: nothing is asked
        with pytest.raises((BaselineRefused, KeyboardInterrupt)) as refused:
            await procedure.baseline(salted(), runtime, ledger, rebuild=True, approve=person)
        kept = await procedure.baseline(salted(), runtime, ledger)
        dirs = {sealed for snapshot in await ledger.snapshots() for sealed in snapshot.dirs}
        strays = await runtime.storage.sweep(list(dirs))
        second = await procedure.baseline(salted(), runtime, ledger, rebuild=True, approve=person)
        after = await procedure.baseline(salted(), runtime, ledger)

    if isinstance(refused.value, BaselineRefused):
        assert refused.value.fields == ("memory/file/salt",)
        assert "--yes" in refused.value.fix
    assert (kept.snapshot, kept.baseline.key) == (first.snapshot, first.baseline.key)
    assert list(strays) == [], "what nobody accepted is removed"
    assert person.shown == [{"file/salt"}, {"file/salt"}]
    assert (second.baseline.former, after.baseline.key) == (first.baseline.digest, second.baseline.key)
    assert second.baseline.key != first.baseline.key


async def test_while_somebody_is_asked_the_former_state_is_the_one_that_the_ledger_knows(
    tmp_path: Path, runtime: MemoryRuntime
) -> None:
    """Who closes the terminal at the question ends the command at once."""

    def started(text: str) -> Any:
        start = {"state": {"mark": text}}
        return salted(
            version=text, tasks=[TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start=start)]
        )

    shared = {"isolation": Isolation.DATABASE, "namespaces_per_instance": 2}
    async with open_ledger(tmp_path / "ledger", clock=SystemClock()) as ledger:
        for environment, task, questions in ((started("a"), "own", 2), (salted(name="shared", **shared), None, 1)):
            await procedure.baseline(environment, runtime, ledger, task=task)
            known, seen = {s.id for s in await ledger.snapshots()}, list[set[str]]()

            async def accept(_: Baseline, seen: list[set[str]] = seen) -> bool:
                seen.append({s.id for s in await ledger.snapshots()})
                return True

            start = await procedure.baseline(environment, runtime, ledger, rebuild=True, task=task, approve=accept)

            now = {s.id for s in await ledger.snapshots()}
            assert len(seen) == questions
            assert seen[0] == known
            assert start.snapshot.id in now - seen[-1]
            assert await runtime.storage.sweep([sealed for s in await ledger.snapshots() for sealed in s.dirs]) == ()


async def test_nobody_is_asked_where_no_field_differs(tmp_path: Path, runtime: MemoryRuntime) -> None:
    person = Person()
    async with open_ledger(tmp_path / "ledger", clock=SystemClock()) as ledger:
        await procedure.baseline(memory_environment(), runtime, ledger, approve=person)
        await procedure.baseline(memory_environment(), runtime, ledger, rebuild=True, approve=person)
        same = await procedure.baseline(memory_environment(version="2"), runtime, ledger, approve=person)

    assert (same.baseline.changed, same.baseline.changes) == (("environment",), ())


async def test_a_state_that_is_no_baseline_at_all_takes_no_ones_place(tmp_path: Path, runtime: MemoryRuntime) -> None:
    environment = salted()
    async with open_ledger(tmp_path / "ledger", clock=SystemClock()) as ledger:
        first = await procedure.baseline(environment, runtime, ledger)
        environment.spec.resources[0].options["per_start"].append("clock")
        with pytest.raises(BaselineUnstable):
            await procedure.baseline(environment, runtime, ledger, rebuild=True, approve=Person())
        environment.spec.resources[0].options["per_start"].clear()
        kept = await procedure.baseline(environment, runtime, ledger)

    assert (kept.snapshot, kept.baseline.key) == (first.snapshot, first.baseline.key)


async def test_a_tasks_own_start_state_and_a_shared_instance_are_asked_for_too(tmp_path: Path, runtime: MemoryRuntime) -> None:
    def started(text: str) -> Any:
        start = {"state": {"mark": text}}
        return memory_environment(
            version=text, tasks=[TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start=start)]
        )

    def shared(text: str) -> Any:
        commons = {"common/guard/roles": "none", "common/slots": text}
        return memory_environment("shared", isolation=Isolation.DATABASE, namespaces_per_instance=2, commons=commons, version=text)

    person = Person(False, False)
    async with open_ledger(tmp_path / "ledger", clock=SystemClock()) as ledger:
        await procedure.baseline(started("a"), runtime, ledger, task="own", approve=person)
        with pytest.raises(BaselineRefused):
            await procedure.baseline(started("b"), runtime, ledger, task="own", approve=person)
        one = await procedure.baseline(shared("a"), runtime, ledger, approve=person)
        with pytest.raises(BaselineRefused, match=r"shared \(instance\)"):
            await procedure.baseline(shared("b"), runtime, ledger, approve=person)
        found = await ledger.baselines("shared")

    assert person.shown == [{"file/mark"}, {"common/slots"}]
    assert [b.key for b in found] == [one.baseline.key]


ASK = (
    "import asyncio\nfrom sandbox.cli import asking\n"
    "print(asking.somebody_is_there() and asyncio.run(asking.agreed('sure?', limit_s={limit})))"
)


def asked(*, before: str, after: str) -> tuple[str, str]:
    """What is typed at a terminal before the question and after it; return the answer and what was said."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, before.encode())
        command = [sys.executable, "-c", ASK.format(limit=60)]
        with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = process.stderr.read(len("sure? "))
            os.write(ours, after.encode())
            said += process.stderr.read()
            return process.stdout.read().decode().strip(), said.decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(("said", "agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("\x04", False)])
def test_a_person_is_asked_on_the_terminal(said: str, agreed: bool) -> None:
    assert asked(before="", after=said) == (str(agreed), "sure? ")


@pytest.mark.parametrize("early", ["y\n", "y", "y\ny\n"])
def test_what_was_typed_before_the_question_is_no_answer_to_it(early: str) -> None:
    assert asked(before=early, after="n\n") == ("False", "sure? ")
    assert asked(before="n\n", after="y\n") == ("True", "sure? ")


def test_what_waits_in_a_pipe_is_an_answer() -> None:
    piped = "import asyncio\nfrom sandbox.cli import asking\nprint(asyncio.run(asking.agreed('sure?', limit_s=60)))"
    done = subprocess.run([sys.executable, "-c", piped], input="y\n", capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "sure? ")


def test_no_answer_in_time_is_no_yes_and_without_a_terminal_nobody_is_asked() -> None:
    ours, theirs = pty.openpty()
    try:
        late = subprocess.run(
            [sys.executable, "-c", ASK.format(limit=0.1)], stdin=theirs, capture_output=True, text=True, timeout=60, check=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    nobody = subprocess.run(
        [sys.executable, "-c", ASK.format(limit=60)], input="y\n", capture_output=True, text=True, timeout=60, check=True
    )
    assert (late.stdout.strip(), nobody.stdout.strip(), nobody.stderr) == ("False", "False", "")
    assert "no answer within 0.1 s" in late.stderr
