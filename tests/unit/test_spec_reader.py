"""A wrong environment is refused before anything starts, with every problem named by file, line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs import load
from envs.reader import read
from sandbox.errors import EnvironmentInvalid
from sandbox.model import Depth, ResetMethod, WindowPolicy

GOOD = """\
name = "desk"
version = "1.0"
[resources.data]
kind = "files"
seed = "seed"
target = "/workspace"
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "a.txt").write_text("a\n")
    return tmp_path


def problems(base: Path, text: str) -> list[str]:
    (base / "environment.toml").write_text(text)
    with pytest.raises(EnvironmentInvalid) as caught:
        read(base)
    assert caught.value.exit_code == 2
    return list(caught.value.problems)


def test_the_smallest_environment_is_read(base: Path) -> None:
    (base / "environment.toml").write_text(GOOD)

    found = read(base)

    assert found.spec.name == "desk"
    assert found.spec.reset.method is ResetMethod.RESTORE
    assert found.spec.resources[0].options == {"seed": str((base / "seed").resolve()), "target": "/workspace"}
    assert found.tasks == {}


def test_every_section_is_lowered(base: Path) -> None:
    (base / "hooks").mkdir()
    (base / "hooks" / "reset.sh").write_text("#!/bin/sh\nrm -f /workspace/b\n")
    (base / "environment.toml").write_text(
        GOOD.replace("[resources.data]", 'network = "none"\n[env]\nLANG = "C"\n[resources.data]')
        + '[limits]\nmemory_mb = 128\ncpus = 2\n[reset]\nmethod = "hook"\nhook_script = "hooks/reset.sh"\nrestore_every = 9\n'
        + '[check]\nrequired_depth = "deep"\nwindow = "exposed-only"\n'
        + '[[volatile]]\npattern = "data/log*"\nreason = "a date in it"\n'
        + '[[shared]]\npath = "seed"\nmount = "/opt/data"\n[[destructive]]\nname = "gone"\nrun = "rm a.txt"\n'
        + '[[probes]]\nname = "count"\nkind = "command"\ndepth = "deep"\nargv = ["ls"]\n'
    )

    spec = read(base).spec

    assert spec.reset.hook == ("/bin/sh", "-c", "#!/bin/sh\nrm -f /workspace/b\n")
    assert (spec.limits.memory_mb, spec.limits.cpus, spec.reset.restore_every) == (128, 2, 9)
    assert (spec.check.required_depth, spec.check.window) == (Depth.DEEP, WindowPolicy.EXPOSED_ONLY)
    assert spec.volatile[0].pattern == "data/log*"
    assert (spec.shared[0].path, spec.shared[0].mount) == (str((base / "seed").resolve()), "/opt/data")
    assert spec.destructive[0].argv == ("/bin/sh", "-c", "rm a.txt")
    assert (spec.destructive[0].seen, spec.destructive[0].repaired_by) == (Depth.DEEP, ResetMethod.RESTORE)
    assert (spec.probes[0].depth, spec.probes[0].options) == (Depth.DEEP, {"argv": ["ls"]})
    assert spec.env == {"LANG": "C"}


STEPS = '[[destructive]]\nname = "d"\nresource = "data"\nsteps = [{}]\n'
CASES = {
    "typo at the top": ('nmae = "x"\n' + GOOD, 'environment.toml:1: nmae: unknown key; did you mean "name"?'),
    "typo in a table": (GOOD + '[reset]\nmetod = "hook"\n', 'environment.toml:8: reset.metod: unknown key; did you mean "method"?'),
    "typo in a list": (
        GOOD + '[[volatile]]\npatern = "a/b"\nreason = "long enough"\n',
        'environment.toml:8: volatile[0].patern: unknown key; did you mean "pattern"?',
    ),
    "typo in a value": (
        GOOD + '[reset]\nmethod = "restor"\n',
        "environment.toml:8: reset.method: is 'restor', must be 'hook', 'clean', 'restore' or 'rebuild'; did you mean \"restore\"?",
    ),
    "missing key": ('name = "desk"\n' + GOOD.split("\n", 2)[2], "environment.toml:1: version: missing"),
    "misspelt key of an open table": (
        GOOD.replace("kind =", "knd ="),
        'environment.toml:3: resources.data.kind: missing; is it the key "knd" misspelt, for "kind"?',
    ),
    "wrong type": (
        GOOD + '[limits]\nmemory_mb = "lots"\n',
        "environment.toml:8: limits.memory_mb: input should be a valid integer (found 'lots')",
    ),
    "out of range": (
        GOOD + "[check]\ndeep_every = 0\n",
        "environment.toml:8: check.deep_every: input should be greater than or equal to 1 (found 0)",
    ),
    "bad name": (GOOD.replace('"desk"', '"My Desk"'), "environment.toml:1: name: is 'My Desk', which does not match"),
    "network": (
        GOOD.replace("[res", 'network = "host"\n[res'),
        "environment.toml:3: network: is 'host', must be 'none' (an instance has",
    ),
    "isolation": (
        GOOD.replace("[res", 'isolation = "shared"\n[res'),
        "environment.toml:3: isolation: is 'shared', must be 'instance', 'database', 'schema', 'directory' or 'context'",
    ),
    "isolation without its resource": (
        GOOD.replace("[res", 'isolation = "schema"\n[res'),
        'environment.toml:3: isolation: "schema" divides one postgres resource, and there are 0',
    ),
    "isolation with a hook": (
        GOOD.replace("[res", 'isolation = "directory"\n[res') + '[reset]\nmethod = "clean"\n',
        'environment.toml:9: reset.method: "clean" works on a whole instance; use "restore" under isolation "directory"',
    ),
    "missing seed": (
        GOOD.replace('seed = "seed"', 'seed = "sed"'),
        'environment.toml:5: resources.data.seed: "sed" does not exist in @BASE@; did you mean "seed"?',
    ),
    "seed that escapes": (
        GOOD.replace('seed = "seed"', 'seed = "../other"'),
        'environment.toml:5: resources.data.seed: "../other" leaves the environment\'s directory',
    ),
    "absolute seed": (
        GOOD.replace('seed = "seed"', 'seed = "/etc"'),
        'environment.toml:5: resources.data.seed: "/etc" is absolute; paths start at the directory of the file',
    ),
    "unknown kind": (
        GOOD.replace('"files"', '"postgress"'),
        'environment.toml:4: resources.data.kind: no resource kind "postgress"; did you mean "postgres"?',
    ),
    "unknown option of a kind": (
        GOOD.replace("target =", "tarjet ="),
        "environment.toml:6: resources.data.tarjet: there is no such option (did you mean 'target'?)",
    ),
    "no resources": ('name = "desk"\nversion = "1"\n', "environment.toml:1: no [resources.NAME]"),
    "two resources at one place": (
        GOOD + '[resources.more]\nkind = "files"\ntarget = "/workspace"\n',
        'environment.toml:9: resources.more.target: "/workspace" is also the target of "data"',
    ),
    "hook without a hook": (GOOD + '[reset]\nmethod = "hook"\n', 'environment.toml:8: reset.method: "hook" needs `hook`'),
    "two hooks": (
        GOOD + '[reset]\nhook = ["true"]\nhook_script = "seed/a.txt"\n',
        "environment.toml:9: reset.hook_script: give `hook` or `hook_script`, not both",
    ),
    "hook script without shebang": (
        GOOD + '[reset]\nhook_script = "seed/a.txt"\n',
        'environment.toml:8: reset.hook_script: "seed/a.txt" must begin with #!',
    ),
    "missing hook script": (
        GOOD + '[reset]\nhook_script = "seed/b.txt"\n',
        'environment.toml:8: reset.hook_script: "seed/b.txt" does not exist',
    ),
    "restore_every under restore": (
        GOOD + "[reset]\nrestore_every = 5\n",
        'environment.toml:8: reset.restore_every: means nothing under method "restore"',
    ),
    "impossible limits": (GOOD + "[limits]\ndisk_mb = 10\n", "limits.file_mb: 1024 is more than disk_mb = 10"),
    "probe of a resource that is not there": (
        GOOD + '[[probes]]\nname = "p"\nkind = "sql"\nresource = "dta"\nquery = "x"\n',
        'environment.toml:10: probes[0].resource: there is no resource "dta"; did you mean "data"?',
    ),
    "probe of an unknown kind": (
        GOOD + '[[probes]]\nname = "p"\nkind = "sqll"\n',
        'environment.toml:9: probes[0].kind: no probe kind "sqll"; did you mean "sql"?',
    ),
    "probe with an unknown option": (
        GOOD + '[[probes]]\nname = "p"\nkind = "command"\nargw = ["ls"]\n',
        "environment.toml:10: probes[0].argw: Extra inputs are not permitted",
    ),
    "two probes of one name": (
        GOOD + '[[probes]]\nname = "p"\nkind = "command"\nargv = ["a"]\n[[probes]]\nname = "p"\nkind = "command"\nargv = ["b"]\n',
        'environment.toml:12: probes[1].name: a second probe is called "p"',
    ),
    "everything volatile": (
        GOOD + '[[volatile]]\npattern = "*/*"\nreason = "too lazy"\n',
        'environment.toml:8: volatile[0].pattern: "*/*" would exempt every field',
    ),
    "volatile without a reason": (GOOD + '[[volatile]]\npattern = "a/b"\n', "environment.toml:7: volatile[0].reason: missing"),
    "missing shared directory": (
        GOOD + '[[shared]]\npath = "data"\nmount = "/opt/x"\n',
        'environment.toml:8: shared[0].path: "data" does not exist',
    ),
    "shared over the system": (
        GOOD + '[[shared]]\npath = "seed"\nmount = "/usr/share/x"\n',
        'environment.toml:9: shared[0].mount: "/usr/share/x" is taken by the system',
    ),
    "destructive action with a NUL": (
        GOOD + '[[destructive]]\nname = "d"\nargv = ["x", "a\\u0000b"]\n',
        'environment.toml:9: destructive[0].argv: "d" holds a NUL character, which no command can',
    ),
    "destructive action with two bodies": (
        GOOD + '[[destructive]]\nname = "d"\nrun = "x"\nargv = ["x"]\n',
        'environment.toml:7: destructive[0]: "d" must have exactly one of run, argv, sql, script, steps (has run, argv)',
    ),
    "step that does two things": (
        GOOD + STEPS.format('{ goto = "http://a/", click = "b" }'),
        "environment.toml:10: destructive[0].steps[0]: must have exactly one of goto, click, fill, select, upload"
        " (has goto, click)",
    ),
    "step that types nowhere": (
        GOOD + STEPS.format('{ click = "a" }, { goto = "http://a/", text = "b" }'),
        "environment.toml:10: destructive[0].steps[1].text: goes with `fill`, `select` and `upload` only",
    ),
    "upload without a name": (
        GOOD + STEPS.format('{ upload = "#f", text = "b" }'),
        "environment.toml:10: destructive[0].steps[0]: needs `file`, the name of what is uploaded",
    ),
    "file where nothing is uploaded": (
        GOOD + STEPS.format('{ fill = "#f", file = "b" }'),
        "environment.toml:10: destructive[0].steps[0]: `file` goes with `upload` only",
    ),
    "steps and a script": (
        GOOD + STEPS.format('{ click = "a" }') + 'script = "x"\n',
        'environment.toml:7: destructive[0]: "d" must have exactly one of run, argv, sql, script, steps (has script, steps)',
    ),
    "steps in a directory": (
        GOOD + STEPS.format('{ click = "a" }'),
        'environment.toml:9: destructive[0].resource: `steps` needs a browser resource, "data" is files',
    ),
    "sql for a directory": (
        GOOD + '[[destructive]]\nname = "d"\nresource = "data"\nsql = ["select 1"]\n',
        'environment.toml:9: destructive[0].resource: `sql` needs a postgres resource, "data" is files',
    ),
    "leak seen at no depth": (
        GOOD + '[[destructive]]\nname = "d"\nrun = "x"\nseen = "deeep"\n',
        "environment.toml:10: destructive[0].seen: is 'deeep', must be 'quick' or 'deep'; did you mean \"deep\"?",
    ),
    "leak that a hook must repair": (
        GOOD + '[[destructive]]\nname = "d"\nrun = "x"\nrepaired_by = "hook"\n',
        "environment.toml:10: destructive[0].repaired_by: is 'hook', must be 'clean', 'restore' or 'rebuild'",
    ),
    "misspelt field of a leak": (
        GOOD + '[[destructive]]\nname = "d"\nrun = "x"\nrepairedby = "clean"\n',
        'environment.toml:10: destructive[0].repairedby: unknown key; did you mean "repaired_by"?',
    ),
    "two actions of one name": (
        GOOD + '[[destructive]]\nname = "d"\nrun = "x"\n[[destructive]]\nname = "d"\nrun = "y"\n',
        'environment.toml:7: destructive: two actions are called "d"',
    ),
    "missing task file": (
        GOOD.replace("[res", 'tasks = "tasks.jsonl"\n[res'),
        'environment.toml:3: tasks: "tasks.jsonl" does not exist',
    ),
    "variable name": (
        GOOD.replace("[res", '[env]\n"A B" = "1"\n[res'),
        "environment.toml:4: env.A B: is not the name of an environment",
    ),
    "root": (
        GOOD.replace("[res", 'root = "/nowhere"\n[res'),
        'environment.toml:3: root: "/nowhere" is none of "host", "image" and',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_environment_is_refused(base: Path, case: str) -> None:
    text, expected = CASES[case]
    expected = expected.replace("@BASE@", str(base))

    found = problems(base, text)

    assert any(problem.startswith(expected) or expected in problem for problem in found), found


def test_all_problems_are_said_at_once(base: Path) -> None:
    found = problems(base, GOOD + '[reset]\nmetod = "x"\n[limits]\nmemory = 1\n[check]\nwindow = "wide"\n')

    assert len(found) == 3
    assert [p.split(":")[1] for p in found] == ["8", "10", "12"], "in the order of the file"


def test_invalid_toml_names_the_line(base: Path) -> None:
    assert "line 2" in problems(base, 'name = "x"\nversion =\n')[0]


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentInvalid, match=r"does not exist.*autoclave env new"):
        read(tmp_path)


def task_line(**changes: object) -> str:
    row: dict[str, object] = {"id": "t1", "prompt": "do it", "success": {"kind": "command", "argv": ["true"]}}
    return json.dumps(row | changes)


TASKS = {
    "typo": (task_line(promt="x"), 'tasks.jsonl:2: task t1: promt: unknown key; did you mean "prompt"?'),
    "no json": ("{", "tasks.jsonl:2: not valid JSON"),
    "no object": ("[1]", "tasks.jsonl:2: a task is a JSON object"),
    "repeated id": (task_line(id="t0"), "tasks.jsonl:2: task t0: id: is also the id of the task at tasks.jsonl:1"),
    "difficulty": (task_line(difficulty="heavy"), "task t1: difficulty: is 'heavy', must be 'easy', 'medium' or 'hard'"),
    "start": (task_line(start={"dat": {}}), 'task t1: start: no resource "dat"; did you mean "data"?'),
    "success kind": (task_line(success={"kind": "magic"}), "task t1: success: "),
    "success key": (
        task_line(success={"kind": "command", "argv": ["x"], "limit": 3}),
        'task t1: success: limit: extra inputs are not permitted; did you mean "limit_s"?',
    ),
    "sql resource": (
        task_line(success={"kind": "sql", "resource": "db", "queries": ["select true"]}),
        'task t1: success: no resource "db"',
    ),
    "no queries": (task_line(success={"kind": "sql", "resource": "data", "queries": []}), "task t1: success: queries: list should"),
    "checks": (
        task_line(success={"kind": "command", "argv": ["x"], "checks": ["../x"]}),
        'task t1: success: checks: "../x" is not a directory of the environment',
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_a_wrong_task_is_refused(base: Path, case: str) -> None:
    line, expected = TASKS[case]
    (base / "tasks.jsonl").write_text(task_line(id="t0") + "\n" + line + "\n")

    found = problems(base, GOOD.replace("[res", 'tasks = "tasks.jsonl"\n[res'))

    assert any(expected in problem for problem in found), found


def test_inline_tasks_are_named_by_their_line(base: Path) -> None:
    found = problems(base, GOOD + '[[tasks]]\nid = "a"\nprompt = "x"\n[tasks.success]\nkind = "command"\nargv = ["x"]\nargs = 1\n')

    assert found == ['environment.toml:7: task a: success: args: extra inputs are not permitted; did you mean "argv"?']


def test_tasks_in_a_toml_file(base: Path) -> None:
    (base / "tasks.toml").write_text('[[tasks]]\nid = "a"\nprompt = "x"\nsuccess = { kind = "command", argv = ["true"] }\n')
    (base / "environment.toml").write_text(GOOD.replace("[res", 'tasks = "tasks.toml"\n[res'))

    assert list(read(base).tasks) == ["a"]


def test_hook_override_needs_a_hook(base: Path) -> None:
    (base / "environment.toml").write_text(GOOD)
    environment = load(base)

    with pytest.raises(EnvironmentInvalid, match="no reset hook"):
        environment.with_reset(ResetMethod.HOOK)
    assert environment.with_reset(ResetMethod.REBUILD).spec.reset.method is ResetMethod.REBUILD
    assert environment.with_reset(ResetMethod.CLEAN).spec.digest == environment.spec.digest
