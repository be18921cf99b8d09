"""Exact hashes of rows.

A row's text is `textin(record_out(t))`: it sees what the type's equality does not (numeric 1.0 and 1.00, 'A' and 'a' under citext)
and cannot be redirected by a CAST. Hashes are summed, never xor-ed: pairs of equal rows would cancel out. The order of rows is
hashed by numbering them as they lie and seeding each row's hash with its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from probes.postgres.connection import identifier, literal

SEED = 7_046_029_254_386_353_131
TEXT = 'pg_catalog.textin(pg_catalog.record_out({0})) collate pg_catalog."C"'
# Masked, for they age without a change of content; and read apart, for they are the planner's and the storage's.
AGES = {"pg_class": ("relfrozenxid", "relminmxid")}
STORAGE = {"pg_class": ("relfilenode", "relpages", "reltuples", "relallvisible", "relallfrozen")}
PLANNER = ("pg_statistic", "pg_statistic_ext_data")
LARGE_OBJECTS = ("pg_largeobject", "pg_largeobject_metadata")


def rows_statement(field: str, relation: str, *, ordered: bool) -> str:
    """One row: field, count, sum of hashes, sum of hashes seeded by position (or null). `relation` is quoted already."""
    text = TEXT.format("t")
    if not ordered:
        return (
            f"select {literal(field)}::text, pg_catalog.count(*), pg_catalog.sum(pg_catalog.hashtextextended({text}, {SEED})), "
            f"null::numeric from only {relation} t"
        )
    return (
        f"select {literal(field)}::text, pg_catalog.count(*), pg_catalog.sum(pg_catalog.hashtextextended(s.x, {SEED})), "
        f"pg_catalog.sum(pg_catalog.hashtextextended(s.x, s.n)) from "
        f"(select {text} as x, pg_catalog.row_number() over () as n from only {relation} t) s"
    )


def columns_statement(field: str, relation: str, columns: Sequence[str]) -> str:
    """The same over some columns of a relation."""
    row = "row(" + ", ".join(f"t.{identifier(c)}" for c in columns) + ")"
    return (
        f"select {literal(field)}::text, pg_catalog.count(*), "
        f"pg_catalog.sum(pg_catalog.hashtextextended({TEXT.format(row)}, {SEED})), null::numeric from only {relation} t"
    )


def union(statements: Iterable[str]) -> bytes:
    return "\nunion all\n".join(f"({s})" for s in statements).encode()


def text_of(count: object, total: object) -> str:
    """Write a count and a hash as one text."""
    return f"{count} rows, {total or 0}"
