"""The side of the check that runs the agent's library: does what it is asked, one request at a time, and knows no expected value.

    python3 -I -S -B child.py LIBRARY DESCRIPTOR

Everything here is in the agent's hands as soon as its library is loaded. That is no loss: nothing is judged here.
"""

import datetime
import importlib
import json
import operator
import resource
import socket
import struct
import sys

PLAIN = (str, int, float, bool, type(None))
CPU_S = 20  # of the processor, whatever else the machine does: an endless loop ends here
OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "lt", "le", "gt", "ge", "eq", "contains", "getitem")},
    **{function.__name__: function for function in (len, iter, next, hash, str, bool)},
}


class Stub:
    """Stands for a function of the tests: a call of it is a call there."""

    def __init__(self, peer, number, name):
        self._peer, self._number, self.__name__ = peer, number, name

    def __call__(self, *args, **kwargs):
        given = [self._peer.encode(a) for a in args]
        named = {k: self._peer.encode(v) for k, v in kwargs.items()}
        answer = self._peer.ask({"call": self._number, "args": given, "kw": named})
        if "raised" in answer:
            raise RuntimeError(answer["raised"])
        return self._peer.decode(answer["ok"])


class Peer:
    """Reads requests and answers them; objects that are no plain data stay here and go by number."""

    def __init__(self, line):
        self._line, self._objects, self._numbers = line, [], {}

    def _read(self, size):
        data = b""
        while len(data) < size:
            piece = self._line.recv(size - len(data))
            if not piece:
                sys.exit(0)
            data += piece
        return data

    def receive(self):
        return json.loads(self._read(struct.unpack(">I", self._read(4))[0]))

    def send(self, message):
        data = json.dumps(message).encode()
        self._line.sendall(struct.pack(">I", len(data)) + data)

    def ask(self, message):
        self.send(message)
        while "do" in (answer := self.receive()):
            self.serve(answer)  # the test's function calls the library again
        return answer

    def number(self, value):
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept, so that the id stays its own
        return self._numbers[id(value)]

    def encode(self, value):
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in (list, tuple, set, frozenset):
            return {"t": kind.__name__, "v": [self.encode(item) for item in value]}
        if kind is dict:
            return {"t": "dict", "v": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if kind is complex:
            return {"t": "complex", "v": [value.real, value.imag]}
        if kind is datetime.date:
            return {"t": "date", "v": value.isoformat()}
        if kind is Stub:
            return {"t": "function", "v": value._number}
        if isinstance(value, type) and issubclass(value, Exception):
            return {"t": "exception", "v": lineage(value)}
        return {"t": "object", "v": self.number(value), "kind": f"{kind.__module__}.{kind.__qualname__}"}

    def decode(self, value):
        if not isinstance(value, dict):
            return value
        kind, inner = value["t"], value["v"]
        if kind == "object":
            return self._objects[inner]
        if kind == "function":
            return Stub(self, inner, value["name"])
        if kind == "dict":
            return {self.decode(k): self.decode(v) for k, v in inner}
        if kind == "complex":
            return complex(*inner)
        if kind == "date":
            return datetime.date.fromisoformat(inner)
        return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](self.decode(item) for item in inner)

    def serve(self, request):
        given = [*request.get("args", ()), *request.get("kw", {}).values()]
        args = [self.decode(a) for a in request.get("args", ())]
        kwargs = {k: self.decode(v) for k, v in request.get("kw", {}).items()}
        try:
            answer = {"ok": self.encode(self.perform(request["do"], args, kwargs))}
        except Exception as error:  # noqa: BLE001 - the library raises what it likes; it is told
            held = {k: self.encode(v) for k, v in getattr(error, "__dict__", {}).items()}
            answer = {"raised": {"lineage": lineage(type(error)), "text": str(error), "held": held}}
        after = [self.encode(value) for value in (*args, *kwargs.values())]
        changed = [[i, now] for i, now in enumerate(after) if plain(given[i]) != now]
        self.send({**answer, "changed": changed})

    def perform(self, do, args, kwargs):
        if do == "import":
            return importlib.import_module(args[0])
        if do == "get":
            return getattr(*args)
        if do == "call":
            return args[0](*args[1:], **kwargs)
        return OPERATORS[do](*args)


def plain(value):
    """Leave out what only one side writes: names of functions."""
    if isinstance(value, dict) and value["t"] == "function":
        return {"t": "function", "v": value["v"]}
    return value


def lineage(kind):
    """Name an exception's classes from itself to Exception."""
    return [[c.__module__, c.__qualname__] for c in kind.__mro__ if issubclass(c, Exception)]


def main():
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    peer = Peer(socket.socket(fileno=int(sys.argv[2])))
    sys.path = [p for p in sys.path if p] + [sys.argv[1]]
    while True:
        peer.serve(peer.receive())


if __name__ == "__main__":
    main()
