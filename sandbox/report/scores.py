"""Probe scores as tables: what was planted, at which depth it was seen, and what each reset method left of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.report.contents import ScoreEntry

_WHO = {"": "the agent", "owner": "the agent", "superuser": "a superuser of the server", "root": "root"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodHead:
    """One reset method of a table: a column, and a line of its summary."""

    entry: ScoreEntry

    @property
    def name(self) -> str:
        return self.entry.method.value

    @property
    def at(self) -> Any:
        return self.entry.at

    @property
    def stale(self) -> tuple[str, ...]:
        return self.entry.stale

    @property
    def sample(self) -> Mapping[str, Any] | None:
        return self.entry.body["sample"]  # type: ignore[no-any-return]

    @property
    def planted(self) -> int:
        return int(self.entry.body["planted"])

    @property
    def caught(self) -> int:
        return int(self.entry.body["caught"])

    @property
    def repaired(self) -> int:
        return int(self.entry.body["repaired"])

    @property
    def left(self) -> int:
        return len(self.entry.body["left"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one reset left of one leak, nothing where it is gone. `broken`: it is strong enough that it must undo it."""

    left: str
    at: str | None
    broken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakRow:
    """One leak, with a cell for each method; None where that survey did not plant it."""

    name: str
    what: str
    needs: str
    seen: str | None
    late: bool
    blind: str
    probes: tuple[str, ...]
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The leaks of one kind."""

    kind: str
    rows: tuple[LeakRow, ...]

    @property
    def planted(self) -> int:
        return len(self._visible)

    @property
    def quick(self) -> int:
        return sum(r.seen == "quick" for r in self._visible)

    @property
    def deep(self) -> int:
        return sum(r.seen == "deep" for r in self._visible)

    @property
    def missed(self) -> int:
        return sum(r.seen is None for r in self._visible)

    @property
    def left(self) -> tuple[int | None, ...]:
        """By method; None where nothing of this kind was planted under it."""
        columns = list(zip(*(r.cells for r in self.rows), strict=True))
        return tuple(sum(bool(c and c.left) for c in column) if any(column) else None for column in columns)

    @property
    def broken(self) -> int:
        return sum(c is not None and c.broken for r in self.rows for c in r.cells)

    @property
    def _visible(self) -> list[LeakRow]:
        return [r for r in self.rows if not r.blind]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Reset method x leak x depth, of one start state of one environment under one runtime."""

    environment: str
    state: str
    runtime: str
    methods: tuple[MethodHead, ...]
    groups: tuple[Group, ...]
    false_alarms: tuple[tuple[str, tuple[str, ...]], ...]
    unplanted: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        return "score-" + re.sub(r"[^a-z0-9]+", "-", f"{self.environment}-{self.state}-{self.runtime}".lower())

    @property
    def of(self) -> str:
        """Of which start state and runtime it speaks, where that has to be said."""
        parts = ["" if self.state == "golden" else f"task {self.state}", f"runtime {self.runtime}" if self.runtime else ""]
        return ", ".join(filter(None, parts))


def tables(entries: Iterable[ScoreEntry]) -> list[ScoreTable]:
    """Join the scores of each start state under each runtime: one column for each method, the first entry of each."""
    grouped: dict[tuple[str, str, str], dict[str, ScoreEntry]] = {}
    for entry in entries:
        grouped.setdefault((entry.environment, entry.state, entry.runtime), {}).setdefault(entry.method.value, entry)
    return [_table(*key, list(found.values())) for key, found in sorted(grouped.items())]


def _table(environment: str, state: str, runtime: str, entries: Sequence[ScoreEntry]) -> ScoreTable:
    order = ("hook", "clean", "restore", "rebuild")
    entries = sorted(entries, key=lambda e: order.index(e.method.value))
    leaks = [{leak["name"]: leak for leak in entry.body["leaks"]} for entry in entries]
    names = dict.fromkeys(name for of_method in leaks for name in of_method)
    rows: dict[str, list[LeakRow]] = {}
    for name in names:
        found = [of_method.get(name) for of_method in leaks]
        shown = _least_seen(found, [entry.stale for entry in entries])
        rows.setdefault(shown["kind"], []).append(_row(shown, found, [set(entry.body["broken"]) for entry in entries]))
    alarms = [(e.method.value, tuple(e.body["false_alarms"])) for e in entries if e.body["false_alarms"]]
    unplanted = {
        n: why for e in entries for part in ("refused", "inapplicable") for n, why in e.body[part].items() if n not in names
    }
    return ScoreTable(
        environment=environment,
        state=state,
        runtime=runtime,
        methods=tuple(MethodHead(entry=entry) for entry in entries),
        groups=tuple(Group(kind=kind, rows=tuple(of_kind)) for kind, of_kind in rows.items()),
        false_alarms=tuple(alarms),
        unplanted=tuple(sorted(unplanted.items())),
    )


def _least_seen(found: Sequence[Mapping[str, Any] | None], stale: Sequence[tuple[str, ...]]) -> Mapping[str, Any]:
    """Each survey looked for itself: what one of them did not see is not called seen. A stale one counts where no other planted
    it."""
    planted = [(leak, bool(old)) for leak, old in zip(found, stale, strict=True) if leak is not None]
    counted = [leak for leak, old in planted if not old] or [leak for leak, _ in planted]
    return max(counted, key=lambda leak: ("quick", "deep", None).index(leak["seen"]))


def _row(first: Mapping[str, Any], found: Sequence[Mapping[str, Any] | None], broken: Sequence[set[str]]) -> LeakRow:
    name = str(first["name"])
    return LeakRow(
        name=name,
        what=first["what"],
        needs=_WHO.get(first["needs"], first["needs"]),
        seen=first["seen"],
        late=first["declared"] == "quick" and first["seen"] == "deep",
        blind=first["blind"],
        probes=tuple(first["probes"]),
        cells=tuple(
            None if leak is None else Cell(left=leak["left"], at=leak["left_at"], broken=name in names)
            for leak, names in zip(found, broken, strict=True)
        ),
    )
