"""What a family of the shop's tasks is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from envs import drafting
from envs.drafting import Claim, Row, among, holds, lit

__all__ = ["Claim", "Draft", "Row", "World", "among", "holds", "lit"]

TABLES = (
    "shop.settings", "shop.countries", "shop.customers", "shop.addresses", "shop.categories", "shop.products", "shop.warehouses",
    "shop.stock", "shop.stock_movements", "shop.coupons", "shop.carts", "shop.cart_items", "shop.orders", "shop.order_items",
    "shop.payments", "shop.refunds", "shop.bank_lines", "shop.invoice_counter", "shop.invoices", "shop.shipments", "shop.staff",
    "shop.tickets", "shop.ticket_messages", "shop.attachments", "work.answers",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One task before it has an id and a split. `wrong` is a plausible mistake that the claims must refuse."""

    difficulty: str
    prompt: str
    claims: tuple[Claim, ...]
    solution: tuple[str, ...]
    wrong: tuple[str, ...]


class World(drafting.World):
    """The shop's golden state."""

    TABLES: ClassVar[tuple[str, ...]] = TABLES
