#!/usr/bin/env python3
"""Checks docs/coverage.md: every row is there, and every named test exists. With `--summary FILE` also that every named field is
one of that run's JSON; with `--run` the named tests are run."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = {f"A{n}" for n in range(1, 40)} | {f"B{n}" for n in range(1, 48)} - {"B32", "B36"}
OPEN = {"B18": "not built"}  # what the page itself calls so; anything else may not


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
        if not tests and not told and not (row in OPEN and OPEN[row] in shown):
            out.append(f"{row}: nothing shows it")
        if row not in OPEN and ("not built" in shown or "partly" in shown):
            out.append(f"{row}: it says that it is not built, and is not among those that are known to be open")
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
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", *names], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
