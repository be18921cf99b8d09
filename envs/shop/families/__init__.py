"""The families of tasks. Each module offers functions from the golden state to drafts, in a fixed order.

The rule of difficulty, the same in every family:
easy    the rows are named by their keys and every value is given;
medium  the rows or the values must be found by a condition, or two things must change together;
hard    a condition with an exception, or three or more tables that must agree at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from envs.shop.draft import Draft, World
from envs.shop.families import bank, catalogue, customers, desk, money, orders, promotions

FAMILIES: Mapping[str, Callable[[World], Iterable[Draft]]] = {
    "refund": money.refund,
    "reconcile": bank.reconcile,
    "price": catalogue.price,
    "stock": catalogue.stock,
    "promotion": promotions.promotion,
    "merge": customers.merge,
    "address": customers.address,
    "cancel": orders.cancel,
    "ticket": desk.ticket,
    "answer": desk.answer,
}
COUNTS = {"easy": 10, "medium": 9, "hard": 7}

__all__ = ["COUNTS", "FAMILIES"]
