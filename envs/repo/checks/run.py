"""Runs the original tests over an agent's library and says whether the task is solved.

    python3 -I -S run.py LIBRARY TEST [TEST ...]

Exit code 0: every test passes. 1: one of the named tests still fails, another one broke, or no report came. 2: wrong use.
The tests come from beside this file, never from the library. They run in a child process, since the library's code could
end its process at any moment: without a whole report under the child's own key there is no success.
"""

import ast
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
LIMIT_S = 30

CHILD = """
import json, sys, unittest
key, library, tests = sys.stdin.readline().strip(), sys.argv[1], sys.argv[2]
report = open(3, "w", closefd=False)
sys.path = [p for p in sys.path if p] + [library]
import importlib.util, types
package = types.ModuleType("tests"); package.__path__ = [tests]; sys.modules["tests"] = package
failed, ran = [], []
class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test); ran.append(test.id())
    def addFailure(self, test, err): failed.append(test.id())
    def addError(self, test, err): failed.append(test.id())
    def addSubTest(self, test, subtest, err):
        if err is not None: failed.append(test.id())
    def addUnexpectedSuccess(self, test): failed.append(test.id())
    def addSkip(self, test, reason): failed.append(test.id())
for name in sys.argv[3:]:
    module = "tests." + name
    try:
        spec = importlib.util.spec_from_file_location(module, tests + "/" + name + ".py")
        loaded = importlib.util.module_from_spec(spec); sys.modules[module] = loaded; spec.loader.exec_module(loaded)
    except BaseException as error:
        failed.append(module); continue
    unittest.defaultTestLoader.loadTestsFromModule(loaded).run(Result())
report.write(json.dumps({"key": key, "ran": ran, "failed": sorted(set(failed))})); report.flush()
"""


def expected(modules):
    """Return the ids of all tests, read from the source: what ran is compared with what had to run."""
    ids = []
    for path in modules:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                ids += [
                    f"tests.{path.stem}.{node.name}.{item.name}"
                    for item in node.body
                    if isinstance(item, ast.FunctionDef) and item.name.startswith("test")
                ]
    return ids


def run(library):
    """Return the child's report, or a text that says why there is none."""
    modules = sorted(TESTS.glob("test_*.py"))
    key = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as scratch, open(Path(scratch) / "report", "w+b") as report:
        # The child writes to descriptor 3; bytecode in the tree is not looked at, only the source is.
        line = 'exec 3>"$1"; shift; exec "$@"'
        python = [sys.executable, "-I", "-S", "-B", "-X", f"pycache_prefix={scratch}/pyc", "-c", CHILD]
        argv = ["/bin/sh", "-c", line, "sh", report.name, *python, str(library), str(TESTS), *(p.stem for p in modules)]
        try:
            done = subprocess.run(argv, input=key + "\n", capture_output=True, text=True, timeout=LIMIT_S, cwd=scratch)
        except subprocess.TimeoutExpired:
            return f"the tests did not end within {LIMIT_S} s"
        try:
            found = json.loads(report.read())
        except ValueError:
            return f"the tests gave no report (exit code {done.returncode}): {done.stderr.strip()[-300:]}"
    if found.get("key") != key or (sorted(found["ran"]) != sorted(expected(modules)) and not found["failed"]):
        return "the report is not whole: the tests were cut short"
    return found


def main(argv):
    if len(argv) < 2:
        sys.stderr.write(__doc__)
        return 2
    library, named = Path(argv[0]), set(argv[1:])
    found = run(library)
    if isinstance(found, str):
        sys.stdout.write(found + "\n")
        return 1
    failed = set(found["failed"])
    if not failed:
        sys.stdout.write(f"all {len(found['ran'])} tests pass\n")
        return 0
    if still := sorted(failed & named):
        sys.stdout.write(f"still failing: {', '.join(still[:10])}\n")
    if broken := sorted(failed - named):
        sys.stdout.write(f"broken: {', '.join(broken[:10])}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
