"""What a family of the portal's tasks is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from envs import drafting
from envs.drafting import Claim, Row, among, holds, lit
from envs.portal.people import password

__all__ = ["CART", "DEFAULTS", "ORIGIN", "Claim", "DeviceClaim", "Draft", "Row", "Step", "World", "among", "holds", "lit"]

ORIGIN = "http://portal.test"
DEFAULTS: Mapping[str, Any] = {
    "theme": "system",
    "text": "normal",
    "spacing": "normal",
    "size": "24",
    "start": "home",
    "columns": ["pack", "rating", "lead"],
    "save_data": False,
}
CART = "jsonb_object_agg(product_id, jsonb_build_array(quantity, later) order by product_id)"
Step = Sequence[Any]  # a verb of `envs.portal.driver` and its arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    """What must lie in the browser's storage of the portal's origin; `rule` is one of `envs.success.BrowserClaim`."""

    name: str
    path: tuple[str, ...]
    rule: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One task before it has an id and a split. `wrong` is a plausible mistake that the claims must refuse."""

    difficulty: str
    prompt: str
    claims: tuple[Claim, ...]
    device: tuple[DeviceClaim, ...] = ()
    solution: tuple[Step, ...]
    wrong: tuple[Step, ...]


class World(drafting.World):
    """The portal's golden state."""

    TABLES: ClassVar[tuple[str, ...]] = (
        "portal.departments",
        "portal.places",
        "portal.people",
        "portal.categories",
        "portal.products",
        "portal.lists",
        "portal.list_items",
        "portal.cart_lines",
        "portal.orders",
        "portal.order_lines",
        "portal.requests",
        "portal.request_comments",
        "portal.documents",
        "portal.guides",
    )

    def rest(self, *changing: str) -> tuple[Claim, ...]:
        """Say that every table but the named ones is as it was; signing in adds a session, and so much is allowed."""
        same = tuple(self.unchanged(table) for table in self.TABLES if table.removeprefix("portal.") not in changing)
        return same if "sessions" in changing else (*same, self.earlier_sessions())

    def earlier_sessions(self, but: str = "false") -> Claim:
        last = self.value("select max(id) from portal.sessions")
        return self.unchanged("portal.sessions", only=f"id <= {last}", but=but)

    def people(self, label: str, where: str = "true") -> list[Row]:
        """Return people in an order of the seed's."""
        return self.order(label, self.rows(f"select * from portal.people p where {where} order by id"), key=lambda r: r["login"])

    def rest_of_row(self, table: str, row: str, without: Sequence[str]) -> tuple[Claim, Claim]:
        """Say that one row changed in some columns only, and the others not at all."""
        return self.unchanged(table, but=row), self.unchanged(table, only=row, without=without)


def opening(person: Row) -> str:
    """How every prompt begins."""
    return f"Sign in at {ORIGIN} as {person['login']} with the password {password(person['login'])}. "


def as_json(value: Any) -> str:
    """Return a value as a jsonb literal."""
    return lit(json.dumps(value, ensure_ascii=False)) + "::jsonb"


def cart_is(person: int, lines: Mapping[int, tuple[int, bool]]) -> Claim:
    """Say what is in somebody's cart, saved lines included."""
    expected = as_json({str(product): list(line) for product, line in lines.items()})
    return holds(
        "the cart is as asked", f"(select coalesce({CART}, '{{}}') from portal.cart_lines where person_id = {person}) = {expected}"
    )


def product(row: Row) -> str:
    return f"{row['name']} ({row['sku']})"


def listed(parts: Iterable[str]) -> str:
    """Return `a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
