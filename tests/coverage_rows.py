#!/usr/bin/env python3
"""Checks docs/coverage.md: every row is there, and every named test exists. With `--summary FILE` also that every named field is
one of that run's JSON; with `--run` the named tests are run, and each must pass: one that is skipped shows nothing (row B35 needs
the packages of `autoclave[rollout]`)."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
UNSHOWN = {"skipped", "failure", "error"}
ROWS = {f"A{n}" for n in range(1, 40)} | {f"B{n}" for n in range(1, 48)} - {"B32", "B36"}


def rows(text: str) -> dict[str, str]:
    """What shows each row."""
    return {m[1]: m[2] for m in re.finditer(r"^\| ([AB]\d+) \| [^|]* \| ([^|]*) \|$", text, re.MULTILINE)}


def tests_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    functions = (n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def named(shown: str) -> list[str]:
    return re.findall(r"`?(tests/[\w/]+\.py(?:::\w+)?)`?", shown)


def fields(shown: str) -> list[str]:
    return re.findall(r"field `([\w.]+)`", shown)


def wrong(found: dict[str, str], summary: dict[str, object] | None) -> list[str]:
    """Everything that is not as the page says. `summary` is a run's JSON; without one, fields are not looked at."""
    out = [f"{row} is missing" for row in sorted(ROWS - set(found))] + [f"{row} is no row" for row in sorted(set(found) - ROWS)]
    for row, shown in found.items():
        tests, told = named(shown), fields(shown)
        if not tests and not told:
            out.append(f"{row}: nothing shows it")
        if "not built" in shown or "partly" in shown:
            out.append(f"{row}: it says that it is not built")
        for test in tests:
            path, _, name = test.partition("::")
            if not (ROOT / path).exists() or (name and name not in tests_in(ROOT / path)):
                out.append(f"{row}: there is no test {test}")
        for field in told if summary is not None else ():
            value: object = summary
            for part in field.split("."):
                value = value.get(part, KeyError) if isinstance(value, dict) else KeyError
            if value is KeyError:
                out.append(f"{row}: a run's summary has no field {field}")
    return out


def not_passed(names: list[str], report: Path) -> list[str]:
    """The named tests of which no case passed, by pytest's own report: one that was skipped has shown nothing."""
    cases = [case for case in ElementTree.parse(report).iter("testcase") if not len(case) or not UNSHOWN & {c.tag for c in case}]
    passed = [(f"{case.get('classname')}.", str(case.get("name")).partition("[")[0]) for case in cases]
    out = []
    for test in names:
        path, _, name = test.partition("::")
        module = path.removesuffix(".py").replace("/", ".") + "."
        if not any(where.startswith(module) and name in ("", function) for where, function in passed):
            out.append(test)
    return out


def run(names: list[str]) -> int:
    """Run the tests; 1 where one failed, or did not run at all (its packages or its machinery are not there)."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-n", "2", f"--junitxml={report}", *names]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        missed = not_passed(names, report) if report.exists() else names
    print("\n".join(f"did not pass here: {test}" for test in missed) or f"{len(names)} named tests passed")
    return int(bool(code or missed))


def main() -> int:
    text = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    given = sys.argv[1:]
    summary = json.loads(Path(given[given.index("--summary") + 1]).read_text("utf-8")) if "--summary" in given else None
    found = rows(text)
    problems = wrong(found, summary)
    print("\n".join(problems) or f"{len(found)} rows, {sum(len(named(s)) for s in found.values())} tests named, all there")
    if problems or "--run" not in given:
        return bool(problems)
    names = sorted({test for shown in found.values() for test in named(shown)})
    return run(names)


if __name__ == "__main__":
    sys.exit(main())
