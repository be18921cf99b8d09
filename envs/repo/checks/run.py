"""Runs the original tests against an agent's library and says whether the task is solved.

    python3 -I -S run.py LIBRARY TEST [TEST ...]

Exit code 0: every test passes. 1: one of the named tests still fails, or another one broke. 2: wrong use. 126: no verdict,
since the check could not be made safe here or the machine was too busy.

The tests, their expected values and every assertion are in this process; the library is in another (child.py), which is sent
calls and returns data (far.py). So nothing that the library does to its own process - to unittest, to `__main__`, to exit codes,
to `__eq__` - reaches a verdict: it can only give answers, and those must be the expected ones.

What this does not stop: answers that are fitted to the tests' own inputs instead of computed (the tests are the agent's to read);
a side effect on an argument that the child does not report; and the end of this process by a signal, which makes the check
fail without a verdict, never succeed; so does a library that keeps every processor busy beside a test that does not end.
"""

import ast
import ctypes
import importlib.util
import random
import sys
import types
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
PACKAGE = "ledgerline"
LIMIT_S = 150  # of the wall: a loaded machine is slow, and the task's own limit is 180
STARVED = 0.25  # of LIMIT_S
PR_SET_DUMPABLE = 4


class Result(unittest.TestResult):
    """Collects the ids of what ran and of what did anything but pass."""

    def __init__(self):
        super().__init__()
        self.ran, self.failed = [], set()

    def startTest(self, test):
        self.ran.append(test.id())
        super().startTest(test)

    def addFailure(self, test, err):
        self.failed.add(test.id())

    addError = addSkip = addExpectedFailure = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.failed.add(test.id())

    def addUnexpectedSuccess(self, test):
        self.failed.add(test.id())


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
    """Return the ids that ran, those that failed, and what is wrong beside them (nothing, as a rule); None when the machine was too
    busy for a verdict."""
    import far

    modules = sorted(TESTS.glob("test_*.py"))
    result, amiss = Result(), None
    child = far.Child(library, LIMIT_S)
    sys.meta_path.insert(0, far.Finder(child, PACKAGE))
    sys.modules["tests"] = types.ModuleType("tests")
    place = random.SystemRandom().randrange(len(modules) + 1)
    try:
        for number, path in enumerate([*modules, None]):
            if number == place:
                amiss = guarded(far.controls, child)
            if path is not None and (trouble := guarded(test, path, result)):
                result.failed.add(f"tests.{path.stem}")
                amiss = amiss or trouble
    finally:
        child.close()
    if not result.failed and sorted(result.ran) != sorted(expected(modules)):
        amiss = amiss or "not every test ran"
    if child.late and starved():
        return None
    return result.ran, result.failed, amiss


def starved():
    """Whether this process, which does little, waited for a processor for much of the time: then slowness is not the library's."""
    try:
        waited_ns = int(Path("/proc/self/schedstat").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return False
    return waited_ns > LIMIT_S * STARVED * 1e9


def test(path, result):
    """Load one module of tests and run it; what it imports of the library loads there."""
    spec = importlib.util.spec_from_file_location(f"tests.{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    unittest.TestLoader().loadTestsFromModule(module).run(result)


def guarded(step, *args):
    """Do it; return what it returns when that is a text, or what it raised as one."""
    import far

    try:
        said = step(*args)
    except (Exception, far.NoAnswer) as error:  # noqa: BLE001 - the library's own way of not loading
        return f"{type(error).__name__}: {error}"[:300]
    return said if isinstance(said, str) else None


def seal():
    """Keep other processes of this user from this one's memory and descriptors (ptrace, /proc/PID/mem, /proc/PID/fd)."""
    return ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def main(argv):
    if len(argv) < 2:
        sys.stderr.write(__doc__)
        return 2
    if not seal():
        sys.stderr.write("prctl(PR_SET_DUMPABLE) failed: the library could reach into the process that judges it\n")
        return 126
    sys.path.insert(0, str(HERE))
    library, named = Path(argv[0]), set(argv[1:])
    if (found := run(library)) is None:
        sys.stderr.write(f"no verdict: the machine is so busy that the tests did not end within {LIMIT_S} s\n")
        return 126
    ran, failed, amiss = found
    if not failed and amiss is None:
        sys.stdout.write(f"all {len(ran)} tests pass\n")
        return 0
    if still := sorted(failed & named):
        sys.stdout.write(f"still failing: {', '.join(still[:10])}\n")
    if broken := sorted(failed - named):
        sys.stdout.write(f"broken: {', '.join(broken[:10])}\n")
    if amiss:
        sys.stdout.write(f"amiss: {amiss!a}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
