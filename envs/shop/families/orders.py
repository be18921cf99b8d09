"""Cancelling, with what hangs on it: money and reserved stock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from envs.shop.draft import Claim, Draft, Row, World, among, holds, lit
from envs.shop.families.promotions import NAMES

RESERVED = (
    " Give the reserved units of its lines back in the warehouse that the order belongs to (stock.reserved goes down;"
    " on_hand stays)."
)


def cancel(world: World) -> Iterator[Draft]:
    """Cancel one order, a paid one, or those that nobody paid."""
    one = """select o.id, o.reference, o.warehouse_id, c.name, p.id as payment, p.status as pay from shop.orders o join
      shop.customers c on c.id = o.customer_id
      join shop.payments p on p.order_id = o.id where {} order by 1"""
    for row in world.pick("cancel easy", one.format("o.status = 'pending' and p.status = 'pending'"), 10):
        note = world.say("note", row["id"], "customer called", "ordered twice", "wrong address")
        yield Draft(
            difficulty="easy",
            prompt=f"Cancel order {row['reference']} of {row['name']} with the note '{note}' (shop.cancel_order voids the"
            f" pending payment)." + RESERVED,
            claims=(
                holds(
                    "the order is cancelled",
                    f"(select status = 'cancelled' and note = {lit(note)} from shop.orders where id = {row['id']})",
                ),
                holds("the payment is void", f"(select status = 'voided' from shop.payments where id = {row['payment']})"),
                *_released(world, [row["id"]]),
                *_others(world, [row["id"]], ("status",)),
                world.unchanged("shop.refunds"),
                world.same_counts(),
            ),
            solution=(f"select shop.cancel_order({row['id']}, {lit(note)})", *_release([row["id"]])),
            wrong=(f"select shop.cancel_order({row['id']}, {lit(note)})",),
        )
    for row in world.pick(
        "cancel medium", one.format("o.status in ('paid', 'packed') and p.status = 'captured' and p.refunded = 0"), 9
    ):
        yield _paid(world, row)
    yield from _unpaid(world)


def _paid(world: World, row: Row) -> Draft:
    amount = world.value(f"select amount from shop.payments where id = {row['payment']}")
    back = f"select shop.place_refund({row['id']}, {amount}, 'cancelled')"
    return Draft(
        difficulty="medium",
        prompt=f"{row['name']} wants order {row['reference']} cancelled although it is paid. Refund the whole payment (reason"
        f" 'cancelled') and leave the order with the"
        " status cancelled and the note 'paid back'. The lines' refunded_quantity stays 0, since nothing was sent." + RESERVED,
        claims=(
            holds(
                "the order is cancelled",
                f"(select status = 'cancelled' and note = 'paid back' from shop.orders where id = {row['id']})",
            ),
            holds(
                "the money is back",
                f"(select status = 'refunded' and refunded = amount from shop.payments where id = {row['payment']})",
            ),
            holds(
                "one refund says why",
                f"(select count(*) = 1 and bool_and(order_id = {row['id']} and amount = {amount} and reason = 'cancelled')"
                f" from shop.refunds where {world.new('shop.refunds')})",
            ),
            world.added("shop.refunds", 1)[1],
            *_released(world, [row["id"]]),
            *_others(world, [row["id"]], ("status", "refunded")),
            world.same_counts("shop.refunds"),
        ),
        solution=(
            f"select shop.cancel_order({row['id']}, 'paid back')",
            back,
            f"update shop.orders set status = 'cancelled' where id = {row['id']}",
            *_release([row["id"]]),
        ),
        wrong=(f"select shop.cancel_order({row['id']}, 'paid back')", back, *_release([row["id"]])),
    )


def _unpaid(world: World) -> Iterator[Draft]:
    query = """select o.id, exists (select from shop.bank_lines b where b.payment_reference = p.reference and
      b.matched_payment_id is null) as money
      from shop.orders o join shop.payments p on p.order_id = o.id join shop.customers c on c.id = o.customer_id
      where o.status = 'pending' and c.country = {} and o.placed_at < {} order by 1"""
    found: dict[tuple[int, ...], tuple[str, str, list[Any]]] = {}
    for country, day in product(NAMES, ("2025-11-01", "2026-01-01", "2026-02-01", "2026-03-15")):
        rows = list(world.rows(query.format(lit(country), lit(f"{day} 00:00+00"))))
        kept = sum(r["money"] for r in rows)
        if kept >= 1 and 2 <= len(rows) - kept <= 15:
            found.setdefault(tuple(r["id"] for r in rows), (country, day, rows))
    for country, day, rows in world.order("unpaid", found.values(), key=lambda f: f"{f[0]} {f[1]}")[:7]:
        chosen = [r["id"] for r in rows if not r["money"]]
        calls = "select shop.cancel_order(id, 'unpaid') from shop.orders where id in {}"
        yield Draft(
            difficulty="hard",
            prompt=f"Clean up unpaid orders from {NAMES[country]} (the customer's country): cancel every pending order placed"
            f" before {day} (UTC) with the note 'unpaid',"
            " except where a bank line that is not matched yet names its payment's reference, because money may have come."
            " Pending payments of the cancelled orders become"
            " voided, failed ones stay failed. Give the reserved units of the cancelled orders' lines back in the warehouse"
            " that each order belongs to"
            " (stock.reserved goes down; on_hand stays).",
            claims=(
                holds(
                    "the orders are cancelled",
                    f"(select bool_and(status = 'cancelled' and note = 'unpaid') from shop.orders where id in {among(chosen)})",
                ),
                holds(
                    "no payment is left open",
                    f"(select bool_and(status in ('voided', 'failed')) from shop.payments where order_id in {among(chosen)})",
                ),
                world.unchanged("shop.payments", only=f"order_id in {among(chosen)} and status = 'failed'"),
                *_released(world, chosen),
                *_others(world, chosen, ("status",)),
                world.unchanged("shop.bank_lines"),
                world.same_counts(),
            ),
            solution=(calls.format(among(chosen)), *_release(chosen)),
            wrong=(calls.format(among(r["id"] for r in rows)), *_release([r["id"] for r in rows])),
        )


def _needed(orders: Sequence[int]) -> str:
    return (
        "(select i.product_id, o.warehouse_id, sum(i.quantity)::int as units from shop.order_items i join shop.orders o on"
        " o.id = i.order_id"
        f" where o.id in {among(orders)} group by 1, 2)"
    )


def _release(orders: Sequence[int]) -> tuple[str, ...]:
    return (
        f"update shop.stock s set reserved = s.reserved - n.units from {_needed(orders)} n"
        " where n.product_id = s.product_id and n.warehouse_id = s.warehouse_id",
    )


def _released(world: World, orders: Sequence[int]) -> tuple[Claim, ...]:
    rows = world.rows(
        f"select s.product_id, s.warehouse_id, s.reserved - n.units as left_over from shop.stock s join {_needed(orders)} n"
        " on n.product_id = s.product_id and n.warehouse_id = s.warehouse_id order by 1, 2"
    )
    places = "(product_id, warehouse_id) in (" + ", ".join(f"({r['product_id']}, {r['warehouse_id']})" for r in rows) + ")"
    after = ", ".join(f"({r['product_id']}, {r['warehouse_id']}, {r['left_over']})" for r in rows)
    return (
        holds(
            "the reserved units are free",
            f"(select count(*) from shop.stock where (product_id, warehouse_id, reserved) in ({after})) = {len(rows)}",
        ),
        world.unchanged("shop.stock", but=places),
        world.unchanged("shop.stock", only=places, without=("reserved",)),
    )


def _others(world: World, orders: Sequence[int], free: tuple[str, ...]) -> tuple[Claim, ...]:
    ids = among(orders)
    return (
        world.unchanged("shop.orders", but=f"id in {ids}"),
        world.unchanged("shop.orders", only=f"id in {ids}", without=("status", "note")),
        world.unchanged("shop.payments", but=f"order_id in {ids}"),
        world.unchanged("shop.payments", only=f"order_id in {ids}", without=free),
        world.unchanged("shop.order_items"),
    )
