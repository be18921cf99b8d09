"""Writes tasks.jsonl: bug-fix tasks, each a seeded mutation of the library that makes known tests fail.

    python -m envs.repo.generate [--seed N] [--output FILE]

The same seed gives the same file, byte for byte. Candidates are shuffled by the seed and really run; one is taken when it makes
between one and MOST tests fail, in time. Each pair of module and operator gives at most PER_PAIR tasks, each module PER_MODULE.

Difficulty: one point each when no failing test names the broken function, when only one test fails, and when the function is
longer than 12 lines. 0 points: easy; 1: medium; 2 or 3: hard.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.repo.mutations import Mutation, mutations

HERE = Path(__file__).parent
LIBRARY = HERE / "library"
SEED = 20
PER_PAIR, PER_MODULE, MOST = 2, 8, 12
LONG = 12
WORKDIR = "/workspace"

_RUN = """
import json, sys, unittest
sys.path.insert(0, sys.argv[1])
class Result(unittest.TestResult):
    failed = set()
    def addFailure(self, test, err): self.failed.add(test.id())
    def addError(self, test, err): self.failed.add(test.id())
    def addSubTest(self, test, subtest, err):
        if err is not None: self.failed.add(test.id())
result = Result()
unittest.defaultTestLoader.discover(sys.argv[1] + "/tests", top_level_dir=sys.argv[1]).run(result)
print(json.dumps([result.testsRun, sorted(result.failed)]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mutation of one module of the library."""

    module: str
    mutation: Mutation

    @property
    def path(self) -> str:
        return f"ledgerline/{self.module}.py"

    def text(self) -> str:
        return self.mutation.apply((LIBRARY / self.path).read_text("utf-8"))


def candidates(seed: int) -> list[Candidate]:
    """Return every candidate in the seed's order."""
    found = [c for path in sorted((LIBRARY / "ledgerline").glob("[a-z]*.py")) for c in of_module(path.stem)]
    random.Random(seed).shuffle(found)
    return found


def of_module(module: str) -> list[Candidate]:
    """Return the candidates of one module in the order of its text."""
    text = (LIBRARY / "ledgerline" / f"{module}.py").read_text("utf-8")
    return [Candidate(module=module, mutation=m) for m in mutations(text) if _compiles(m.apply(text))]


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutated", "exec", dont_inherit=True)
    except (SyntaxError, SyntaxWarning):
        return False
    return True


def failing(candidate: Candidate, *, limit_s: float = 20.0) -> list[str] | None:
    """Run the tests over the mutated library; return the ids that fail, None when the run did not end as it should."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "library"
        shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / candidate.path).write_text(candidate.text(), "utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-B", "-c", _RUN, str(copy)], capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return None
    if done.returncode != 0:
        return None
    _, failed = json.loads(done.stdout.splitlines()[-1])
    return [str(name) for name in failed]


def task(candidate: Candidate, failed: list[str], number: int) -> dict[str, Any]:
    """Return the task of a candidate whose mutation makes `failed` fail."""
    difficulty = ("easy", "medium", "hard", "hard")[_points(candidate, failed)]
    return {
        "id": f"{candidate.module}-{number:02d}",
        "family": candidate.mutation.operator,
        "difficulty": difficulty,
        "prompt": _prompt(failed, difficulty),
        "start": {"code": {"replace": [_replacement(candidate)]}},
        "success": {
            "kind": "command",
            "argv": ["/usr/bin/python3", "-I", "-S", "-B", "/checks/checks/run.py", WORKDIR, *failed],
            "checks": ["checks", "library/tests"],
            "limit_s": 180.0,
        },
    }


def _replacement(candidate: Candidate) -> dict[str, str]:
    """Write the mutation as whole lines of text that occur once in the module."""
    text = (LIBRARY / candidate.path).read_text("utf-8")
    start, end = candidate.mutation.start, candidate.mutation.end
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", max(start, end - 1))
    while text.count(text[first:last]) != 1:
        first, last = text.rfind("\n", 0, max(0, first - 1)) + 1, text.find("\n", last + 1)
    return {"file": candidate.path, "old": text[first:last], "new": text[first:start] + candidate.mutation.new + text[end:last]}


def _points(candidate: Candidate, failed: list[str]) -> int:
    name = candidate.mutation.scope.rsplit(".", 1)[-1]
    unnamed = name.startswith("_") or not any(name in names for names in (_names(test) for test in failed))
    return unnamed + (len(failed) == 1) + (candidate.mutation.lines > LONG)


def _names(test: str) -> set[str]:
    """Return the names that a test's source uses."""
    _, file, group, method = test.split(".")
    for node in ast.walk(ast.parse((LIBRARY / "tests" / f"{file}.py").read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == group:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == method:
                    used = {n.attr for n in ast.walk(item) if isinstance(n, ast.Attribute)}
                    return used | {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}
    return set()


def _prompt(failed: list[str], difficulty: str) -> str:
    count = "One test fails" if len(failed) == 1 else f"{len(failed)} tests fail"
    which = "" if difficulty == "hard" else ": " + ", ".join(failed)
    return (
        f"The library `ledgerline` in {WORKDIR} has a bug. {count}{which}. Find the cause in the library and fix it there, without "
        "breaking anything else; the tests are right and stay as they are. "
        "Run them with `python3 -m unittest discover -s tests -t .`."
    )


def tasks(seed: int) -> Iterator[dict[str, Any]]:
    """Yield the tasks in the order in which they are found."""
    pairs: Counter[tuple[str, str]] = Counter()
    modules: Counter[str] = Counter()
    places: set[tuple[str, int]] = set()
    for candidate in candidates(seed):
        pair = (candidate.module, candidate.mutation.operator)
        place = (candidate.module, candidate.mutation.start)
        if pairs[pair] >= PER_PAIR or modules[candidate.module] >= PER_MODULE or place in places:
            continue
        failed = failing(candidate)
        if failed and len(failed) <= MOST:
            pairs[pair] += 1
            modules[candidate.module] += 1
            places.add(place)
            yield task(candidate, failed, modules[candidate.module])


def line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Parse, generate, write."""
    parser = argparse.ArgumentParser(description="Write the bug-fix tasks of the repo environment.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path, default=HERE / "tasks.jsonl")
    options = parser.parse_args()
    rows = sorted(tasks(options.seed), key=lambda row: str(row["id"]))
    options.output.write_text("".join(line(row) for row in rows), "utf-8")
    sys.stderr.write(f"{len(rows)} tasks: {dict(Counter(row['difficulty'] for row in rows))}\n")


if __name__ == "__main__":
    main()
