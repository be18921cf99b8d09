"""What tasks are drafted from: claims about the end state, and the facts of the golden state that they need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One boolean query over the end state. All claims of a task must be true."""

    name: str
    sql: str


def lit(value: object) -> str:
    """Return a value as an SQL literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, datetime | date):
        value = value.isoformat()
    return "'" + str(value).replace("'", "''") + "'"


def among(values: Iterable[object]) -> str:
    """Return `(1, 2, 3)` for an IN; never empty, which SQL refuses."""
    return "(" + ", ".join(lit(v) for v in values) + ")"


def holds(name: str, sql: str) -> Claim:
    return Claim(name=name, sql=f"select {sql}")


class World:
    """The golden state, asked through one function that runs SQL; every choice follows from `seed` alone. An environment's own
    World names its tables."""

    TABLES: ClassVar[tuple[str, ...]] = ()

    def __init__(self, query: Callable[[str], Sequence[Row]], seed: int) -> None:
        self._query = query
        self._seed = seed
        self._known: dict[str, Any] = {}

    def rows(self, sql: str) -> Sequence[Row]:
        return self._query(sql)

    def value(self, sql: str) -> Any:
        """Return the only value of a query; the same text is asked once."""
        if sql not in self._known:
            (row,) = self._query(sql)
            (self._known[sql],) = row.values()
        return self._known[sql]

    def order(self, label: str, values: Iterable[T], key: Callable[[T], Hashable] = repr) -> list[T]:
        """Return the values in an order that depends on the seed, the label and their keys alone."""
        return sorted(values, key=lambda v: hashlib.blake2b(f"{self._seed}/{label}/{key(v)}".encode(), digest_size=8).digest())

    def pick(self, label: str, sql: str, count: int) -> list[Row]:
        """Return `count` rows of a query; each row needs a distinct first column."""
        found = self.order(label, self.rows(sql), key=lambda r: str(next(iter(r.values()))))
        if len(found) < count:
            raise ValueError(f"{label}: {len(found)} candidates for {count} tasks")
        return found[:count]

    def say(self, label: str, key: object, *variants: str) -> str:
        return self.order(f"say {label} {key}", variants)[0]

    # Claims whose right-hand side is read from the golden state

    def unchanged(self, table: str, *, but: str = "false", only: str = "true", without: Sequence[str] = ()) -> Claim:
        """Say that the rows of a table outside `but` are what they were, exactly (or apart from the columns `without`)."""
        gone = "".join(f" - {lit(c)}" for c in without)
        text = f"(pg_catalog.to_jsonb(t){gone})::text" if without else "pg_catalog.record_out(t)::text"
        parts = f"count(*), coalesce(sum(pg_catalog.hashtextextended({text}, 0)), 0)"
        # The sum is linear, so the rows outside a small scope need no scan of their own: all minus scope.
        count, total = self._sums(f"select {parts} from only {table} t where {only}")
        if but != "false":
            inner_count, inner = self._sums(f"select {parts} from only {table} t where ({only}) and ({but})")
            count, total = count - inner_count, total - inner
        name = f"{table} as it was" if but == "false" and only == "true" else f"{table} otherwise as it was"
        return holds(name, f"(select ({parts}) = ({count}, {total}) from only {table} t where ({only}) and not ({but}))")

    def _sums(self, sql: str) -> tuple[int, Decimal]:
        if sql not in self._known:
            (row,) = self._query(sql)
            self._known[sql] = tuple(row.values())
        count, total = self._known[sql]
        return count, total

    def added(self, table: str, count: int) -> tuple[Claim, Claim]:
        """Say that exactly `count` rows were added to a table with an id, and that the old ones are what they were."""
        last = self.value(f"select max(id) from {table}")
        return (
            holds(f"{count} new in {table}", f"(select count(*) from {table} where id > {last}) = {count}"),
            self.unchanged(table, but=f"id > {last}"),
        )

    def new(self, table: str) -> str:
        """Return the condition that a row of a table with an id is new."""
        return f"id > {self.value(f'select max(id) from {table}')}"

    def same_counts(self, *changing: str) -> Claim:
        """Say that no table but the named ones gained or lost rows."""
        tables = [t for t in self.TABLES if t not in changing]
        sql = "array[" + ", ".join(f"(select count(*) from {t})" for t in tables) + "]::text"
        return holds("no rows came or went elsewhere", f"{sql} = {lit(self.value(f'select {sql}'))}")


def held_out(names: Mapping[str, str], seed: int, share: float) -> set[str]:
    """Return the held-out ones of a family's tasks, given as name and difficulty: the same share of every difficulty."""
    held: set[str] = set()
    for difficulty in dict.fromkeys(names.values()):
        ranked = sorted(
            (name for name, its in names.items() if its == difficulty),
            key=lambda name: hashlib.blake2b(f"split/{seed}/{name}".encode(), digest_size=8).digest(),
        )
        held.update(ranked[: round(len(ranked) * share)])
    return held


def sources_digest(paths: Iterable[Path]) -> str:
    """Digest what tasks are made from: a change of any of it asks for a new run."""
    total = hashlib.blake2b(digest_size=16)
    for path in paths:
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()
