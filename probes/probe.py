"""What a probe is: a read-only reader of one instance, and what it is handed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Protocol, runtime_checkable

from probes.canonical import digest_of
from probes.compare import strip
from sandbox.model import Depth, VolatileField
from sandbox.ports import SharedSubject, Sharing, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one reading brought: canonical text by field, and whatever could not be read. A field whose name ends in "/" is a
    listing: sorted lines of `name<TAB>value`, which `compare` takes apart."""

    fields: Mapping[str, str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What a probe is handed for one reading.

    `depth` says how much to read. `baseline` holds the fields of the baseline without what is `volatile` (None while the first
    reading of one is made), so that a probe can wait for a server that is still coming up, and need not read again what the storage
    vouches for. Where an instance is read as a `fresh` one, nothing vouches for that baseline yet. `backends` collects the process
    ids of the database sessions that the probes of this check hold, so that none mistakes another for an intruder.
    """

    subject: Subject
    depth: Depth = Depth.DEEP
    baseline: Mapping[str, str] | None = None
    volatile: tuple[VolatileField, ...] = ()
    fresh: bool = False
    backends: set[int] = field(default_factory=set)
    limit_s: float = 30.0

    @property
    def in_place(self) -> bool:
        return self.subject.in_place

    @property
    def deep(self) -> bool:
        return self.depth is Depth.DEEP

    def compared(self, probe: str, fields: Mapping[str, str]) -> Mapping[str, str]:
        """Leave out what is declared volatile, as `baseline` does."""
        return strip(probe, fields, self.volatile)

    @property
    def sharing(self) -> Sharing | None:
        """Whose fields are read where several namespaces share an instance; None where the instance has one namespace."""
        return sharing_of(self.subject)

    @property
    def thorough(self) -> bool:
        """True where everything that may have changed is read: at depth deep, and after hook or clean also at depth quick."""
        return self.deep or self.in_place


@runtime_checkable
class Probe(Protocol):
    """A read-only reader. It raises freely: the verifier turns an error into an inconclusive verdict."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str:
        """Covers everything that shapes its readings: kind, version, options."""

    @property
    def depth(self) -> Depth:
        """The least depth at which it reads anything."""

    @property
    def alone(self) -> bool:
        """True where it must run before the others, since they would show in what it reads."""

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        """Return the depth at which a field is read, None where it is not read in this situation. Depends on nothing else."""

    async def read(self, context: ProbeContext) -> Findings: ...


@runtime_checkable
class SharedProbe(Probe, Protocol):
    """A probe that knows what a shared instance has as a whole. The others read what a namespace has to itself."""

    def of_instance(self, field: str) -> bool:
        """True where a field that is read for a namespace belongs to its shared instance: no holder may change it."""


def sharing_of(subject: Subject) -> Sharing | None:
    return subject.sharing if isinstance(subject, SharedSubject) else None


ReadFunction = Callable[[ProbeContext], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProbe:
    """A probe made of an author's coroutine function; every field has the same depth."""

    name: str
    function: ReadFunction
    depth: Depth = Depth.QUICK
    version: str = "1"

    @property
    def alone(self) -> bool:
        return False

    @property
    def digest(self) -> str:
        code = getattr(self.function, "__code__", None)
        return digest_of(["function", self.name, self.version, self.depth, *(_code(code) if code else ())])

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return self.depth

    async def read(self, context: ProbeContext) -> Findings:
        return Findings(fields=await self.function(context))


def _code(code: CodeType) -> Iterator[str]:
    """Yield what a function does, without file names, line numbers and addresses."""
    yield code.co_code.hex()
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def probe(name: str, *, depth: Depth = Depth.QUICK, version: str = "1") -> Callable[[ReadFunction], FunctionProbe]:
    """Make a probe of an `async def` that takes a ProbeContext and returns canonical text by field. Raise `version` whenever
    what it reads changes in a way that its own code does not show."""

    def make(function: ReadFunction) -> FunctionProbe:
        return FunctionProbe(name=name, function=function, depth=depth, version=version)

    return make
