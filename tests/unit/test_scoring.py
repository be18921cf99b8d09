"""Success checks: what the agent brought about is 0 or 1, what the machine could not do is None."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs import scoring
from envs.success import SqlQuery
from sandbox.errors import InstanceLost
from sandbox.model import ExecResult, TaskSpec
from sandbox.ports import Mount


@dataclasses.dataclass
class FakeSubject:
    """Answers trusted_run with what the test says, and keeps what was mounted."""

    result: ExecResult | Exception
    address: str = "host=/nonexistent dbname=x"
    namespace: str = "n"
    seen: dict[str, str] = dataclasses.field(default_factory=dict)
    modes: set[int] = dataclasses.field(default_factory=set)

    def endpoint(self, resource: str) -> str:
        return self.address

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        for mount in binds:
            assert mount.readonly
            top = Path(mount.layers[0])
            for path in top.rglob("*"):
                self.modes.add(path.stat().st_mode & 0o777)
                if path.is_file():
                    self.seen[f"{mount.target}/{path.relative_to(top)}"] = path.read_text()
            self.seen["staged"] = str(top)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def task(**success: Any) -> TaskSpec:
    return TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="p", success=success)


def ended(code: int, *, timed_out: bool = False) -> ExecResult:
    return ExecResult(exit_code=code, stdout=b"said", stderr=b"", timed_out=timed_out)


@pytest.mark.parametrize(
    ("result", "reward", "success"),
    [
        (ended(0), 1.0, True),
        (ended(1), 0.0, False),
        (ended(125), 0.0, False),
        (ended(126), None, False),
        (ended(127), None, False),
        (ended(137), None, False),
        (ended(-9), None, False),
        (ended(1, timed_out=True), None, False),
        (InstanceLost("gone"), None, False),
        (OSError("disk"), None, False),
        (TimeoutError(), None, False),
    ],
)
async def test_command(result: ExecResult | Exception, reward: float | None, success: bool) -> None:
    found = await scoring.score(FakeSubject(result), task(kind="command", argv=["x"]))  # type: ignore[arg-type]

    assert (found.reward, found.success) == (reward, success)
    assert found.detail


async def test_checks_are_staged_readable_and_removed(tmp_path: Path) -> None:
    for name in ("checks", "tests"):
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        (tmp_path / name / "__pycache__" / "x.pyc").write_text("x")
        (tmp_path / name / "a.py").write_text(name)
        (tmp_path / name / "a.py").chmod(0o600)
    subject = FakeSubject(ended(0))

    await scoring.score(subject, task(kind="command", argv=["x"], checks=[str(tmp_path / "checks"), str(tmp_path / "tests")]))  # type: ignore[arg-type]

    staged = Path(subject.seen.pop("staged"))
    assert subject.seen == {"/checks/checks/a.py": "checks", "/checks/tests/a.py": "tests"}
    assert subject.modes == {0o755, 0o644}
    assert not staged.exists()


async def test_a_server_that_cannot_be_reached_is_no_zero() -> None:
    found = await scoring.score(FakeSubject(ended(0)), task(kind="sql", resource="db", queries=["select true"]))  # type: ignore[arg-type]

    assert found.reward is None
    assert "could not run" in found.detail


@pytest.mark.parametrize(
    ("rows", "query", "fault"),
    [
        ([(True,)], SqlQuery(query="q"), None),
        ([(False,)], SqlQuery(query="q"), "expected one row with true, found false"),
        ([(None,)], SqlQuery(query="q"), "expected one row with true, found None"),
        ([], SqlQuery(query="q"), "expected one row with true, found no rows"),
        ([(True,), (True,)], SqlQuery(query="q"), "expected one row with true, found true; true"),
        ([(1,)], SqlQuery(query="q"), "expected one row with true, found 1"),
        ([(1, None), (2, "b")], SqlQuery(query="q", expect=[["1", None], ["2", "b"]]), None),
        ([(2,), (1,)], SqlQuery(query="q", expect=[["1"], ["2"]]), "expected [['1'], ['2']], found 2; 1"),
        ([], SqlQuery(query="q", expect=[]), None),
    ],
)
def test_rows(rows: list[tuple[Any, ...]], query: SqlQuery, fault: str | None) -> None:
    # 1 == True in Python, so a number must not pass for a boolean
    assert scoring._rows_fault(rows, query) == fault
