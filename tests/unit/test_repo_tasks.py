"""The bug-fix tasks: each mutation makes the named tests fail, and the check tells a repair from a trick."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.repo import generate
from envs.repo.mutations import mutations

ROWS = [json.loads(line) for line in (generate.HERE / "tasks.jsonl").read_text("utf-8").splitlines()]
pytestmark = pytest.mark.timeout(700)
SAMPLE = random.Random(3).sample(ROWS, 3)


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    """The check's files as the scorer mounts them."""
    shutil.copytree(generate.HERE / "checks", tmp_path / "checks" / "checks")
    shutil.copytree(generate.LIBRARY / "tests", tmp_path / "checks" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    runner = tmp_path / "checks" / "checks" / "run.py"
    runner.write_text(runner.read_text().replace("LIMIT_S = 150", "LIMIT_S = 300"))  # a loaded machine
    return tmp_path / "checks"


def library(tmp_path: Path, row: dict[str, Any]) -> Path:
    """The state that a task starts from."""
    copy = tmp_path / "workspace"
    shutil.copytree(generate.LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for change in row["start"]["code"]["replace"]:
        text = (copy / change["file"]).read_text("utf-8")
        assert text.count(change["old"]) == 1
        (copy / change["file"]).write_text(text.replace(change["old"], change["new"]), "utf-8")
    return copy


def verdict(checks: Path, copy: Path, row: dict[str, Any]) -> tuple[int, str]:
    named = row["success"]["argv"][6:]
    argv = [sys.executable, "-I", "-S", "-B", str(checks / "checks" / "run.py"), str(copy), *named]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=330, check=False)
    return done.returncode, done.stdout + done.stderr


def test_there_are_enough_of_every_sort() -> None:
    assert len(ROWS) >= 60
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len({row["family"] for row in ROWS}) >= 6
    assert {row["difficulty"] for row in ROWS} == {"easy", "medium", "hard"}
    assert min(Counter(row["difficulty"] for row in ROWS).values()) >= 10


def test_the_library_is_real_and_its_tests_pass() -> None:
    sources = [p.read_text("utf-8") for p in (generate.LIBRARY / "ledgerline").glob("*.py")]
    assert len(sources) >= 15
    assert sum(text.count("\n") for text in sources) >= 1200
    argv = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]

    done = subprocess.run(argv, cwd=generate.LIBRARY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stderr.split("Ran ")[1].split()[0]) >= 150


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row["id"])
def test_a_task_fails_as_it_says_and_passes_when_repaired(tmp_path: Path, checks: Path, row: dict[str, Any]) -> None:
    copy = library(tmp_path, row)
    change = row["start"]["code"]["replace"][0]

    code, said = verdict(checks, copy, row)

    assert code == 1
    assert said.startswith("still failing: ")
    assert "broken" not in said, "exactly the named tests fail"
    shutil.copy(generate.LIBRARY / change["file"], copy / change["file"])
    assert verdict(checks, copy, row)[0] == 0


@pytest.mark.parametrize("row", SAMPLE[:1], ids=lambda row: row["id"])
def test_the_generator_gives_the_same_task_again(row: dict[str, Any]) -> None:
    change = row["start"]["code"]["replace"][0]
    found = [c for c in generate.of_module(Path(change["file"]).stem) if generate._replacement(c) == change]

    assert found, "the candidates of the seed hold it"
    failed = generate.failing(found[0])
    assert failed
    number = int(row["id"].rsplit("-", 1)[1])
    again = [generate.line(generate.task(c, failed, number)) for c in found]
    assert generate.line(row) in again


@pytest.mark.acceptance
@pytest.mark.timeout(1800)
def test_the_whole_file_is_made_again_byte_for_byte() -> None:
    rows = sorted(generate.tasks(generate.SEED), key=lambda row: str(row["id"]))

    assert "".join(generate.line(row) for row in rows) == (generate.HERE / "tasks.jsonl").read_text("utf-8")


TRICKS = {
    "ends the process": "import os\nos._exit(0)\n",
    "weakens unittest": (
        "import unittest\nunittest.TestCase.run = lambda self, result=None: None\n"
        "unittest.TestCase.__call__ = lambda self, *a, **k: None\n"
    ),
    "shadows the standard library": "",
    "does not end": "while True:\n    pass\n",
    "does not parse": "def (\n",
    "silences the runner's result": (
        'import __main__; R = getattr(__main__, "Result", None)\n'
        "if R: R.addFailure = R.addError = R.addSubTest = lambda *args: None\n"
        "import unittest; U = unittest.TestResult\n"
        "U.addFailure = U.addError = U.addSubTest = lambda *args: None\n"
    ),
    "silences assertions": (
        "import unittest\n"
        "for name in dir(unittest.TestCase):\n"
        "    if name.startswith('assert') and 'Raises' not in name: setattr(unittest.TestCase, name, lambda *a, **k: None)\n"
    ),
    "exits when asked": "import builtins, sys\nbuiltins.isinstance = lambda *a: sys.exit(0)\n",
    "exits at the end": "import atexit, os\natexit.register(os._exit, 0)\n",
    "answers in its driver's place": (
        "import __main__\nOP = getattr(__main__, 'OPERATORS', {})\nfor name in OP: OP[name] = lambda *args: True\n"
    ),
    "sends words of no protocol": (
        "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'\\0\\0\\0\\2{}')\n    except OSError: pass\n"
    ),
    "claims a huge answer": (
        "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'\\xff\\xff\\xff\\xff')\n    except OSError: pass\n"
    ),
    "ends its judge": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
}
# Appended to the module: the class is there. The bug stays.
AFTER = {
    "is equal to everything": "Money.__eq__ = lambda self, other: True\nMoney.__hash__ = lambda self: 0\n",
    "holds nothing": "Money.minor = property(lambda self: 0, lambda self, value: None)\nMoney.__eq__ = lambda self, other: True\n",
    "text that equals everything": (
        "class Any(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
        "Money.__str__ = lambda self: Any('x')\nMoney.parse = classmethod(lambda cls, text: Any('x'))\n"
    ),
}


@pytest.mark.parametrize("trick", [*TRICKS, *AFTER])
def test_a_trick_is_no_repair(tmp_path: Path, checks: Path, trick: str) -> None:
    row = next(r for r in ROWS if "ledgerline/money.py" in r["start"]["code"]["replace"][0]["file"])
    copy = library(tmp_path, row)
    if trick == "does not end":
        runner = checks / "checks" / "run.py"
        runner.write_text(runner.read_text().replace("LIMIT_S = 300", "LIMIT_S = 2").replace("STARVED = 0.25", "STARVED = 9"))
    if trick == "shadows the standard library":
        (copy / "unittest.py").write_text("raise SystemExit(0)\n")
        (copy / "json.py").write_text("raise SystemExit(0)\n")
        (copy / "sitecustomize.py").write_text("raise SystemExit(0)\n")
    else:
        path = copy / "ledgerline" / "money.py"
        head, future, rest = path.read_text("utf-8").partition("from __future__ import annotations\n")
        path.write_text(head + future + TRICKS.get(trick, "") + rest + AFTER.get(trick, ""), "utf-8")

    code, said = verdict(checks, copy, row)

    assert code == (-9 if trick == "ends its judge" else 1), said
    assert "tests pass" not in said


def test_an_equality_of_the_librarys_own_is_no_oracle(tmp_path: Path, checks: Path) -> None:
    row = next(r for r in ROWS if "ledgerline/money.py" in r["start"]["code"]["replace"][0]["file"])
    copy = library(tmp_path, row)
    money = copy / "ledgerline" / "money.py"
    whole = (generate.LIBRARY / "ledgerline" / "money.py").read_text("utf-8")
    money.write_text(whole.replace("minor = (scaled + 5_000) // 10_000", "minor = 0") + "Money.__eq__ = lambda self, other: True\n")

    code, said = verdict(checks, copy, row)

    assert code == 1, said
    assert "test_percent_rounds_half_away_from_zero" in said, "the amounts differ, whatever the library says of them"


def test_what_a_call_does_to_its_arguments_is_seen(tmp_path: Path, checks: Path) -> None:
    row = next(r for r in ROWS if "ledgerline/money.py" in r["start"]["code"]["replace"][0]["file"])
    copy = tmp_path / "workspace"
    shutil.copytree(generate.LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert verdict(checks, copy, row)[0] == 0
    config = copy / "ledgerline" / "config.py"
    config.write_text(
        config.read_text("utf-8").replace("    out: Settings = {}\n    for layer", "    out = layers[0]\n    for layer")
    )

    code, said = verdict(checks, copy, row)

    assert (code, said) == (1, "broken: tests.test_config.ConfigTest.test_layered_leaves_layers_alone\n")


def test_the_judge_is_out_of_reach_of_the_library(tmp_path: Path) -> None:
    """As an ordinary user: the memory and descriptors of the process that judges cannot be opened."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        top = Path(place) / "checks"
        shutil.copytree(generate.HERE / "checks", top / "checks")
        shutil.copytree(generate.LIBRARY / "tests", top / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        copy, said = Path(place) / "workspace", Path(place) / "said"
        shutil.copytree(generate.LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
        said.mkdir()
        said.chmod(0o777)
        reach = (
            "import os\nfor name in ('mem', 'fd/1', 'maps', 'environ'):\n"
            "    try: open(f'/proc/{os.getppid()}/{name}', 'rb').read(1); word = 'open'\n"
            "    except OSError as error: word = type(error).__name__\n"
            f"    open('{said}/' + name.replace('/', '-'), 'w').write(word)\n"
        )
        init = copy / "ledgerline" / "__init__.py"
        init.write_text(init.read_text("utf-8") + reach)
        runner = top / "checks" / "run.py"
        runner.write_text(runner.read_text().replace("LIMIT_S = 150", "LIMIT_S = 300"))
        argv = ["/usr/bin/python3", "-I", "-S", "-B", str(top / "checks" / "run.py"), str(copy), "tests.x"]
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=330, check=False, **user)  # type: ignore[call-overload]

        assert done.returncode == 0, done.stdout + done.stderr
        assert {p.name: p.read_text() for p in said.iterdir()} == dict.fromkeys(
            ("mem", "fd-1", "maps", "environ"), "PermissionError"
        )


def test_the_agents_own_tests_play_no_role(tmp_path: Path, checks: Path) -> None:
    row = ROWS[0]
    copy = library(tmp_path, row)
    for path in (copy / "tests").glob("test_*.py"):
        path.write_text("")

    assert verdict(checks, copy, row)[0] == 1


def test_breaking_another_test_is_no_success(tmp_path: Path, checks: Path) -> None:
    row = next(r for r in ROWS if "money.py" not in r["start"]["code"]["replace"][0]["file"])
    copy = library(tmp_path, row)
    change = row["start"]["code"]["replace"][0]
    shutil.copy(generate.LIBRARY / change["file"], copy / change["file"])
    money = copy / "ledgerline" / "money.py"
    money.write_text(money.read_text("utf-8").replace("self.minor + self._same", "self.minor - self._same"), "utf-8")

    code, said = verdict(checks, copy, row)

    assert code == 1
    assert said.startswith("broken: tests.test_")


def test_mutations_are_what_they_say() -> None:
    text = "def f(a, b=1):\n    if a < b:\n        return g(a, b)\n    return min(a, 3)\n"

    found = {(m.operator, m.apply(text)) for m in mutations(text)}

    assert ("comparison", text.replace("a < b", "a <= b")) in found
    assert ("swapped-arguments", text.replace("g(a, b)", "g(b, a)")) in found
    assert ("wrong-call", text.replace("min", "max")) in found
    assert ("wrong-default", text.replace("b=1", "b=2")) in found
    assert ("dropped-branch", "def f(a, b=1):\n    return min(a, 3)\n") in found
    assert ("wrong-constant", text.replace("3", "4")) in found
    for _, mutated in found:
        compile(mutated, "mutated", "exec")


def test_places_count_characters_not_bytes() -> None:
    text = "def f(a):\n    return 'ü' + a if a > 'é' else a\n"

    assert {m.apply(text) for m in mutations(text) if m.operator == "comparison"} == {text.replace("a > 'é'", "a >= 'é'")}
