"""The trusted side's view of the agent's library: modules, classes and objects that stand for ones in a child process.

Calls go there as data and come back as data of exact builtin types, made anew here: no object of the library's, no `__eq__`,
`__hash__` or exception class of its own is ever in this process, and no expected value leaves it.
"""

import builtins
import contextlib
import datetime
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
import types
from functools import partial
from pathlib import Path

LARGEST = 4_000_000  # bytes of one answer
DEEPEST = 50  # levels of one answer
# What two values of the library's are told apart by, read and compared here; its own `__eq__` must agree with it.
VALUES = {"ledgerline.money.Money": ("minor", "currency")}


class NoAnswer(BaseException):
    """The child gave none, or one that is not of the protocol. No `assertRaises` takes it for an error of the library's."""


class Child:
    """One process with the library; every wait ends at `until`."""

    def __init__(self, library, limit_s):
        ours, theirs = socket.socketpair()
        self._line, self._until, self._functions, self._kinds = ours, time.monotonic() + limit_s, [], {}
        self.names, self.late = {}, False
        script = str(Path(__file__).resolve().parent / "child.py")
        # Bytecode in the tree is not looked at, only the source is; its folder must not be one that anybody could write.
        python = [sys.executable, "-I", "-S", "-B", "-X", "pycache_prefix=/proc/none"]
        argv = [*python, script, str(library.resolve()), str(theirs.fileno())]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], cwd="/", start_new_session=True, env={}, **silent)
        theirs.close()

    def close(self):
        """End the child and what stayed in its session."""
        self._line.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, do, *args, **kwargs):
        """Have one thing done; return its result, raise what it raised as an exception made here."""
        given = [*args, *kwargs.values()]
        self._send({"do": do, "args": [self._encode(a) for a in args], "kw": {k: self._encode(v) for k, v in kwargs.items()}})
        while True:
            answer = self._receive()
            try:
                if "call" not in answer:
                    return self._answered(answer, given)
                function = self._functions[answer["call"]]
                call = [self._decode(a) for a in answer["args"]], {k: self._decode(v) for k, v in answer["kw"].items()}
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise NoAnswer(f"not of the protocol: {error!r}") from None
            self._send(self._called(function, *call))

    def _answered(self, answer, given):
        changed = [(given[index], self._decode(now)) for index, now in answer["changed"]]
        made = self._raised(answer["raised"]) if "raised" in answer else None
        result = None if made else self._decode(answer["ok"])
        for held, now in changed:
            _follow(held, now)
        return _Outcome(result, made)

    def _called(self, function, args, kwargs):
        try:
            return {"ok": self._encode(function(*args, **kwargs))}
        except Exception as error:  # noqa: BLE001 - a function of the tests; the library is told that it failed
            return {"raised": str(error)}

    def _send(self, message):
        data = json.dumps(message).encode()
        self._wait(partial(self._line.sendall, struct.pack(">I", len(data)) + data))

    def _receive(self):
        size = struct.unpack(">I", self._read(4))[0]
        if size > LARGEST:
            raise NoAnswer(f"an answer of {size} bytes")
        try:
            answer = json.loads(self._read(size))
        except (ValueError, RecursionError):
            raise NoAnswer("not JSON") from None
        if not isinstance(answer, dict):
            raise NoAnswer("not an answer")
        return answer

    def _read(self, size):
        data = b""
        while len(data) < size:
            piece = self._wait(partial(self._line.recv, size - len(data)))
            if not piece:
                raise NoAnswer("the library ended its process")
            data += piece
        return data

    def _wait(self, step):
        left = self._until - time.monotonic()
        if left <= 0:
            self.late = True
            raise NoAnswer("the time is over")
        self._line.settimeout(left)
        try:
            return step()
        except TimeoutError:
            self.late = True
            raise NoAnswer("the time is over") from None
        except OSError as error:
            raise NoAnswer(f"no answer: {error!r}") from None

    def _encode(self, value):
        kind = type(value)
        if value is None or kind in (str, int, float, bool):
            return value
        if kind in (list, tuple, set, frozenset):
            return {"t": kind.__name__, "v": [self._encode(item) for item in value]}
        if kind is dict:
            return {"t": "dict", "v": [[self._encode(k), self._encode(v)] for k, v in value.items()]}
        if kind is complex:
            return {"t": "complex", "v": [value.real, value.imag]}
        if kind is datetime.date:
            return {"t": "date", "v": value.isoformat()}
        if kind is Far:
            return {"t": "object", "v": value._far[1], "kind": value._far[2]}
        if kind in (types.FunctionType, types.MethodType):
            self._functions.append(value)
            return {"t": "function", "v": len(self._functions) - 1, "name": value.__name__}
        raise NoAnswer(f"the check cannot hand a {kind.__name__} to the library")

    def _decode(self, value, level=0):
        if level > DEEPEST:
            raise NoAnswer("nested too deeply")
        if value is None or type(value) in (str, int, float, bool):
            return value
        kind, inner = value["t"], value["v"]
        if kind in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, kind)([self._decode(item, level + 1) for item in inner])
        if kind == "dict":
            return {self._decode(k, level + 1): self._decode(v, level + 1) for k, v in inner}
        if kind == "complex":
            return complex(*inner)
        if kind == "date":
            return datetime.date.fromisoformat(inner)
        if kind == "function":
            return self._functions[inner]
        if kind == "exception":
            return self._exception(inner)
        if kind == "object":
            return Far(self, int(inner), str(value["kind"]))
        raise NoAnswer(f"an answer of kind {kind!r}")

    def _exception(self, lineage):
        """Return this side's class for one of the library's: same name, same bases, nothing else of it."""
        base = Exception
        for module, name in reversed(lineage[:20]):
            if module == "builtins":
                found = getattr(builtins, name)
                if not (isinstance(found, type) and issubclass(found, Exception)):
                    raise NoAnswer(f"{name} is no exception")
                base = found if issubclass(found, base) else base
            else:
                key = f"{module}.{name}"
                if key not in self._kinds:
                    self._kinds[key] = type(str(name), (base,), {})
                base = self._kinds[key]
        return base

    def _raised(self, told):
        kind = self._exception(told["lineage"])
        error = type(kind.__name__, (kind,), {"__str__": _text})(str(told["text"]))
        for name, value in told["held"].items():
            if name.isidentifier() and not name.startswith("_"):
                setattr(error, name, self._decode(value))
        return error


def _text(error):
    return error.args[0]  # KeyError and its like would write it in another way


class _Outcome:
    """A result, or the exception in its place."""

    def __init__(self, result, error):
        self.result, self.error = result, error

    def get(self):
        if self.error is not None:
            raise self.error
        return self.result


def _follow(held, now):
    """Let the tests' own argument become what the call made of it."""
    if type(held) is not type(now) or held == now:
        return
    if isinstance(held, list):
        held[:] = now
    elif isinstance(held, (dict, set)):
        held.clear()
        held.update(now)
    elif isinstance(held, tuple):
        for old, new in zip(held, now, strict=False):
            _follow(old, new)


def _operator(name):
    return lambda self, *others: self._far[0].ask(name, self, *others).get()


class Far:
    """Stands for one object of the library's."""

    __slots__ = ("_far",)

    def __init__(self, child, number, kind):
        object.__setattr__(self, "_far", (child, number, kind))

    def __getattr__(self, name):
        child, number, kind = self._far
        if kind != "builtins.module":
            return child.ask("get", self, name).get()
        if (number, name) not in child.names:  # what a module offers is asked for once
            child.names[number, name] = child.ask("get", self, name).get()
        return child.names[number, name]

    def __setattr__(self, name, value):
        raise NoAnswer(f"the tests set {name} of an object of the library's: the check has no way for that")

    def __call__(self, *args, **kwargs):
        return self._far[0].ask("call", self, *args, **kwargs).get()

    def __eq__(self, other):
        """Compare what both hold, here. That the library's own `__eq__` says otherwise is a fault, whichever is expected."""
        if type(other) is not Far:
            return False
        kind = self._far[2]
        if kind not in VALUES:
            raise NoAnswer(f"the check has no way to compare objects of {kind}")
        same = kind == other._far[2] and all(_data(getattr(self, n)) == _data(getattr(other, n)) for n in VALUES[kind])
        if _data(self._far[0].ask("eq", self, other).get()) is not same:
            raise AssertionError(f"two {kind} that are {'equal' if same else 'different'} compare otherwise")
        return same

    def __repr__(self):
        return f"<{self._far[2]}>"

    __hash__ = _operator("hash")
    __str__ = _operator("str")
    __bool__ = _operator("bool")
    __len__ = _operator("len")
    __iter__ = _operator("iter")
    __next__ = _operator("next")
    __contains__ = _operator("contains")
    __getitem__ = _operator("getitem")
    __add__ = _operator("add")
    __sub__ = _operator("sub")
    __mul__ = _operator("mul")
    __neg__ = _operator("neg")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")


def _data(value):
    if type(value) is Far:
        raise NoAnswer(f"an object of {value._far[2]} where data had to be")
    return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets `import PACKAGE` of the tests load a stand-in whose names are the child's."""

    def __init__(self, child, package):
        self._child, self._package = child, package

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != self._package:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        there = self._child.ask("import", spec.name).get()
        module.__getattr__ = lambda name: _attribute(there, name)
        return module

    def exec_module(self, module):
        return None


def _attribute(there, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(there, name)


def controls(child):
    """Say what is wrong with the values that the child holds, by amounts that no source names; nothing when they are right."""
    for kind, (first, second) in VALUES.items():
        module, _, name = kind.rpartition(".")
        made = getattr(child.ask("import", module).get(), name)
        one, other = random.SystemRandom().sample(range(10**6, 10**9), 2)
        a, again, b, c = made(one), made(one), made(other), made(one, "USD")
        held = [_data(getattr(x, n)) for x in (a, b, c) for n in (first, second)]
        if held != [one, "EUR", other, "EUR", one, "USD"] or a != again or a in (b, c):
            return f"objects of {kind} do not hold what they were given"
    return None
