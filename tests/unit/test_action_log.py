"""What sessions did, written down: everything that doing it again takes, no secrets, bounded, and gaps that show."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.actions import ActionKind, ActionLog, RecordedAction, open_actions, read
from sandbox.actions.action import LARGEST, decode, encode
from sandbox.actions.log import segments
from sandbox.model import ExecResult, PageAction, PageDo, TrajectoryId

A, B = TrajectoryId("t-a"), TrajectoryId("t-b")


async def test_what_two_sessions_did_is_read_back_in_order(tmp_path: Path) -> None:
    async with open_actions(tmp_path / "actions", budget_mb=1) as log:
        first, second = log.begin(A), log.begin(B)
        with first.doing(ActionKind.RUN, argv=("psql", "-f", "-"), stdin=b"select 1", cwd=Path("/w"), limit_s=5.0) as noted:
            with second.doing(ActionKind.WRITE_FILE, path="/w/a", data=b"\xff\0", mode=0o600):
                pass
            noted.result(ExecResult(exit_code=3, stdout=b"", stderr=b"", timed_out=True))
        with pytest.raises(FileNotFoundError), first.doing(ActionKind.WRITE_FILE, path="/none/a", data=b"x"):
            raise FileNotFoundError
        first.gave(ActionKind.ENDPOINT, "db")
        first.gave(ActionKind.ENDPOINT, "db")
        first.end()
        first.end()
        second.end()

    found = await read(tmp_path / "actions", [A, B])

    assert found[A].gap == found[B].gap == ""
    run, failed, given_out = found[A].actions
    assert (run.argv, run.stdin, run.cwd, run.limit_s) == (("psql", "-f", "-"), b"select 1", "/w", 5.0)
    assert (run.exit_code, run.timed_out, run.obstacle) == (3, True, "")
    assert (failed.number, failed.error) == (1, "FileNotFoundError")
    assert (given_out.number, "db" in given_out.obstacle) == (2, True)
    assert found[B].actions == (
        RecordedAction(number=0, kind=ActionKind.WRITE_FILE, path="/w/a", data=b"\xff\0", mode=0o600, env={}),
    )
    assert (tmp_path / "actions").stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for _, path in segments(tmp_path / "actions")] == [0o600]


@pytest.mark.parametrize("name", ["lauf-ö-1", 'say "hi", it said', "a\\b\nc", "t-a"])
async def test_a_trajectory_is_read_back_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    async with open_actions(tmp_path, budget_mb=1) as log:
        for trajectory in (TrajectoryId(name), TrajectoryId("t-another")):
            notes = log.begin(trajectory)
            with notes.doing(ActionKind.RUN, argv=(trajectory,)):
                pass
            notes.end()

    found = (await read(tmp_path, [TrajectoryId(name)]))[TrajectoryId(name)]

    assert ([a.argv for a in found.actions], found.gap) == ([(name,)], "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": ("sleep", 5)},
        {"argv": ("cat",), "stdin": "text"},
        {"argv": ("cat",), "stdin": None, "cwd": 5},
        {"env": {"A_TOKEN": "a-secret", "N": 5}},
    ],
)
async def test_what_cannot_be_written_down_is_a_gap_of_its_own_and_loses_nobody_elses(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with open_actions(tmp_path, budget_mb=1) as log:
        first, second = log.begin(A), log.begin(B)
        with second.doing(ActionKind.RUN, argv=("a",)):
            pass
        with pytest.raises(TypeError, match="the session's own"), first.doing(ActionKind.RUN, **wrong):
            raise TypeError("the session's own")
        with second.doing(ActionKind.RUN, argv=("b",)):
            pass
        first.end()
        second.end()

    found = await read(tmp_path, [A, B])

    assert ([a.argv for a in found[B].actions], found[B].gap) == ([("a",), ("b",)], "")
    assert found[A].gap == "1 of its 1 actions are not recorded"


async def test_actions_that_overlap_keep_the_order_in_which_they_began(tmp_path: Path) -> None:
    async with open_actions(tmp_path, budget_mb=1) as log:
        notes, slow = log.begin(A), asyncio.Event()

        async def act(name: str, waits: bool) -> None:
            with notes.doing(ActionKind.RUN, argv=(name,)):
                if waits:
                    await slow.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(act("first", True))
            await asyncio.sleep(0)
            group.create_task(act("second", False))
            await asyncio.sleep(0)
            slow.set()
        notes.end()

    assert [a.argv for a in (await read(tmp_path, [A]))[A].actions] == [("first",), ("second",)]


SECRETS = {
    "AUTH": "Bearer-xyz",
    "DB_PASSWORD": "hunter22",
    "GH_TOKEN": "ghp-abcdef",
    "GITHUB_PAT": "ghp-fedcba",
    "MYSQL_PWD": "hunter22-and-more",  # begins with another
    "NPM_CONFIG_AUTHTOKEN": "npm-abcdef",
    "OPENAI_API_KEY": "sk-12345678",
    "SSHPASS": "letmein-1",
}


def test_the_value_of_what_is_called_like_a_secret_is_nowhere() -> None:
    action = RecordedAction(
        number=0,
        kind=ActionKind.RUN,
        argv=("curl", "-H", f"X: {SECRETS['OPENAI_API_KEY']}", f"-p{SECRETS['MYSQL_PWD']}"),
        stdin=f"password={SECRETS['DB_PASSWORD']}".encode(),
        env={
            **SECRETS,
            "GIT_AUTHOR_NAME": "planter",
            "PWD": "/home/of/mine",
            "OLDPWD": "/home/of/yours",
            "TOKENIZERS_PARALLELISM": "false",
            "URL": f"x:{SECRETS['GH_TOKEN']}@y",
        },
    )

    line = encode(A, action).decode()

    assert [value for value in SECRETS.values() if value in line] == []
    assert "and-more" not in line
    assert [text for text in ("planter", "/home/of/mine", "/home/of/yours") if text not in line] == []
    assert '"TOKENIZERS_PARALLELISM":"false"' in line
    told = decode(json.loads(line)).obstacle
    assert all(f"the value of {name}" in told for name in SECRETS)


def test_a_large_content_is_left_out_and_said() -> None:
    line = encode(A, RecordedAction(number=0, kind=ActionKind.WRITE_FILE, path="/a", data=b"x" * (LARGEST + 1)))

    assert len(line) < 1000
    assert decode(json.loads(line)).obstacle == f"data of {LARGEST + 1} bytes"


@given(
    argv=st.lists(st.text(st.characters(exclude_categories=())), min_size=1, max_size=4),
    stdin=st.binary(max_size=64),
    env=st.dictionaries(st.sampled_from(["LANG", "HOME"]), st.text(max_size=8)),
    cwd=st.none() | st.text(min_size=1, max_size=8),
)
def test_every_command_comes_back_as_it_was(argv: list[str], stdin: bytes, env: dict[str, str], cwd: str | None) -> None:
    action = RecordedAction(number=7, kind=ActionKind.RUN, argv=tuple(argv), stdin=stdin, env=env, cwd=cwd, exit_code=0)

    line = encode("t-x", action)

    assert line.count(b"\n") == 1
    assert line.startswith(b'{"t":"t-x"')
    assert decode(json.loads(line)) == action


@given(
    do=st.sampled_from(PageDo),
    at=st.text(st.characters(exclude_categories=()), max_size=8),
    text=st.text(max_size=8),
    data=st.binary(max_size=64),
)
def test_what_was_done_on_a_page_comes_back_as_it_was(do: PageDo, at: str, text: str, data: bytes) -> None:
    page = PageAction(do=do, at=at, text=text, resource="web")
    action = RecordedAction(number=7, kind=ActionKind.BROWSE, page=page, data=data, resource="web", exit_code=1)

    assert decode(json.loads(encode("t-x", action))) == action
    assert action.obstacle == ""


def test_a_page_is_kept_in_bounds() -> None:
    page = PageAction(do=PageDo.FILL, at="#q", text="x" * (LARGEST + 1))

    line = encode(A, RecordedAction(number=0, kind=ActionKind.BROWSE, page=page, resource="web"))

    assert len(line) < 1000
    found = decode(json.loads(line))
    assert found.page == PageAction(do=PageDo.FILL, at="#q", resource="web")
    assert found.obstacle == f"the text of {LARGEST + 1} characters"


async def test_texts_of_a_page_that_wait_for_a_slow_disk_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.actions.log.MOST_PENDING", 10_000)
    log = ActionLog(tmp_path, budget_bytes=1_000_000)
    notes = log.begin(A)
    for _ in range(3):
        with notes.doing(ActionKind.BROWSE, page=PageAction(do=PageDo.FILL, at="#q", text="x" * 6000), resource="web"):
            pass
    notes.end()
    await log.close()

    found = (await read(tmp_path, [A]))[A]
    assert (len(found.actions), found.gap) == (1, "2 of its 3 actions are not recorded")


async def test_what_is_missing_is_said(tmp_path: Path) -> None:
    log = ActionLog(tmp_path, budget_bytes=1_000_000)
    notes = log.begin(A)
    for number in range(3):
        with notes.doing(ActionKind.RUN, argv=(str(number),)):
            pass
    await log.close()
    (_, path), *_ = segments(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)

    path.write_bytes(lines[0] + lines[1] + lines[2][:20])  # as a killed manager leaves it
    killed = (await read(tmp_path, [A, B]))[A]
    assert (len(killed.actions), killed.gap) == (2, "its end is not recorded: 2 actions are known")

    again = ActionLog(tmp_path, budget_bytes=1_000_000)  # the next manager's line is whole
    other = again.begin(B)
    with other.doing(ActionKind.RUN, argv=("b",)):
        pass
    other.end()
    await again.close()
    found = await read(tmp_path, [A, B, TrajectoryId("t-c")])
    assert (found[A], found[B].gap, len(found[B].actions)) == (killed, "", 1)
    assert found[TrajectoryId("t-c")].gap == "nothing of it is recorded"

    path.write_bytes(lines[0] + lines[2] + b'{"t":"t-a","k":"end","n":3}\n')
    assert (await read(tmp_path, [A]))[A].gap == "1 of its 3 actions are not recorded"


async def test_the_oldest_segments_go_when_the_budget_is_spent(tmp_path: Path) -> None:
    budget = 80_000
    log = ActionLog(tmp_path, budget_bytes=budget)
    for number in range(400):
        notes = log.begin(TrajectoryId(f"t-{number}"))
        with notes.doing(ActionKind.RUN, argv=("x" * 500,)):
            pass
        notes.end()
        if number % 50 == 0:
            await asyncio.sleep(0.01)  # the thread writes meanwhile
    await log.close()

    kept = sum(path.stat().st_size for _, path in segments(tmp_path))
    found = await read(tmp_path, [TrajectoryId("t-0"), TrajectoryId("t-399")])

    assert budget / 2 < kept < budget * 1.3
    assert found[TrajectoryId("t-0")].gap == "nothing of it is recorded"
    assert found[TrajectoryId("t-399")].gap == ""


async def test_nothing_is_recorded_where_nobody_wants_it(tmp_path: Path) -> None:
    async with open_actions(tmp_path / "actions", budget_mb=0) as log:
        notes = log.begin(A)
        with notes.doing(ActionKind.RUN, argv=("a",)):
            pass
        notes.end()

    assert not (tmp_path / "actions").exists()


async def test_an_action_does_not_fail_for_its_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "actions").write_text("a file is in the way")
    async with open_actions(tmp_path / "actions", budget_mb=1) as log:
        notes = log.begin(A)
        with notes.doing(ActionKind.RUN, argv=("a",)):
            pass
        notes.end()

    assert [r.message for r in caplog.records if r.name.startswith("sandbox.actions")] == ["actions are not recorded"]
