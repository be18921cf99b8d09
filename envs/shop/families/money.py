"""Paying back."""

from __future__ import annotations

from collections.abc import Iterator

from envs.shop.draft import Claim, Draft, Row, World, among, holds, lit

DELIVERED = """
  from shop.orders o join shop.payments p on p.order_id = o.id join shop.customers c on c.id = o.customer_id
  where o.status = 'delivered' and p.status = 'captured' and p.refunded = 0 and o.placed_at >= '2026-01-01' and c.status =
      'active'"""
REASONS = ("damaged", "wrong item", "late", "changed mind")


def refund(world: World) -> Iterator[Draft]:
    """Pay back an order, a line of it, or what the prompt's condition finds."""
    for row in world.pick("refund easy", f"select o.id, o.reference, c.name, p.id as payment, p.amount {DELIVERED} order by 1", 10):
        yield _whole(world, row)
    lines = f"""select o.id * 10 + i.line as key, o.id, o.reference, c.name, p.id as payment, i.line, i.quantity, g.name as product,
      i.quantity * i.unit_price as amount
      {DELIVERED.replace("where", "join shop.order_items i on i.order_id = o.id join shop.products g on g.id = i.product_id where")}
      and i.quantity * i.unit_price < p.amount and o.discount = 0 order by 1"""
    for row in world.pick("refund medium", lines, 9):
        yield _line(world, row)
    latest = """select distinct on (o.customer_id) o.customer_id as key, o.id, o.reference, o.warehouse_id, c.email, p.id as
      payment, p.amount as paid, o.discount
      from shop.orders o join shop.payments p on p.order_id = o.id join shop.customers c on c.id = o.customer_id
      where o.status = 'delivered' and c.status = 'active' and c.id <= 2900
        and (select count(*) from shop.orders x where x.customer_id = c.id and x.status = 'delivered') > 1
      order by o.customer_id, o.placed_at desc"""
    mixed = f"""select k.*, g.category_id, n.name as category from ({latest}) k
      join lateral (select min(p.category_id) as category_id, count(distinct p.category_id) as kinds
                    from shop.order_items i join shop.products p on p.id = i.product_id where i.order_id = k.id) g on g.kinds > 1
      join shop.categories n on n.id = g.category_id where k.discount = 0 order by 1"""
    for row in world.pick("refund hard", mixed, 7):
        yield _category(world, row)


def _whole(world: World, row: Row) -> Draft:
    reason = world.say("reason", row["id"], *REASONS)
    prompt = world.say(
        "refund", row["id"],
        f"{row['name']} sent back everything from order {row['reference']}. Refund the whole payment with the reason"
            f" '{reason}' and mark every unit"
        " of its lines as refunded. The goods do not go back into stock.",
        f"Please refund order {row['reference']} ({row['name']}) in full, reason '{reason}'. All units of all its lines count"
            f" as refunded afterwards;"
        " stock stays as it is.",
    )  # fmt: skip
    return Draft(
        difficulty="easy",
        prompt=prompt,
        claims=(
            holds("the order is refunded", f"(select status = 'refunded' from shop.orders where id = {row['id']})"),
            holds(
                "the payment is paid back",
                f"(select status = 'refunded' and refunded = amount from shop.payments where id = {row['payment']})",
            ),
            holds("one refund says why", _refund_row(world, row["id"], row["amount"], reason)),
            holds(
                "every unit is marked",
                f"(select bool_and(refunded_quantity = quantity) from shop.order_items where order_id = {row['id']})",
            ),
            *_rest(world, row),
            world.unchanged("shop.stock"),
            world.same_counts("shop.refunds"),
        ),
        solution=(
            f"select shop.place_refund({row['id']}, {row['amount']}, {lit(reason)})",
            f"update shop.order_items set refunded_quantity = quantity where order_id = {row['id']}",
        ),
        wrong=(
            f"update shop.orders set status = 'refunded' where id = {row['id']}",
            f"update shop.order_items set refunded_quantity = quantity where order_id = {row['id']}",
        ),
    )


def _line(world: World, row: Row) -> Draft:
    reason = world.say("reason", row["key"], *REASONS)
    return Draft(
        difficulty="medium",
        prompt=f"In order {row['reference']} of {row['name']} only the '{row['product']}' is to be refunded (reason"
        f" '{reason}'): all of its units at the"
        " price that the order paid for them. Mark those units as refunded. Nothing returns to stock.",
        claims=(
            holds("the order is partly refunded", f"(select status = 'partly_refunded' from shop.orders where id = {row['id']})"),
            holds(
                "the payment is partly paid back",
                f"(select status = 'captured' and refunded = {row['amount']} from shop.payments where id = {row['payment']})",
            ),
            holds("one refund says why", _refund_row(world, row["id"], row["amount"], reason)),
            holds(
                "that line's units are marked and no others",
                f"(select bool_and(refunded_quantity = case when line = {row['line']} then quantity else 0 end) from"
                f" shop.order_items where order_id = {row['id']})",
            ),
            *_rest(world, row),
            world.unchanged("shop.stock"),
            world.same_counts("shop.refunds"),
        ),
        solution=(
            f"select shop.place_refund({row['id']}, {row['amount']}, {lit(reason)})",
            f"update shop.order_items set refunded_quantity = quantity where order_id = {row['id']} and line = {row['line']}",
        ),
        wrong=(
            f"select shop.place_refund({row['id']}, (select amount from shop.payments where order_id = {row['id']}),"
            f" {lit(reason)})",
            f"update shop.order_items set refunded_quantity = quantity where order_id = {row['id']}",
        ),
    )


def _category(world: World, row: Row) -> Draft:
    lines = world.rows(
        f"select i.line, i.product_id, i.quantity, i.quantity * i.unit_price as amount from shop.order_items i join"
        f" shop.products p on p.id = i.product_id"
        f" where i.order_id = {row['id']} and p.category_id = {row['category_id']} order by 1"
    )
    amount = sum(x["amount"] for x in lines)
    numbers = among(x["line"] for x in lines)
    wanted = f"order_id = {row['id']} and line in {numbers}"
    kept = f"warehouse_id = {row['warehouse_id']} and product_id in {among(x['product_id'] for x in lines)}"
    back = [
        f"select shop.restock({x['product_id']}, {row['warehouse_id']}, {x['quantity']}, {lit(row['reference'])})" for x in lines
    ]
    pay = (
        f"select shop.place_refund({row['id']}, {amount}, 'changed mind')",
        f"update shop.order_items set refunded_quantity = quantity where {wanted}",
    )
    before = {
        x["product_id"]: world.value(
            f"select on_hand from shop.stock where warehouse_id = {row['warehouse_id']} and product_id = {x['product_id']}"
        )
        for x in lines
    }
    stocked = " and ".join(
        f"(select on_hand = {before[x['product_id']] + x['quantity']} from shop.stock where warehouse_id ="
        f" {row['warehouse_id']} and product_id = {x['product_id']})"
        for x in lines
    )
    return Draft(
        difficulty="hard",
        prompt=f"The customer with the address {row['email']} returned everything of the category '{row['category']}' from the"
        f" latest order that was delivered to"
        " them (latest by the time it was placed). Refund those lines at the price paid, as one refund with the reason"
        " 'changed mind', mark their units as"
        " refunded, and put the units back into the warehouse that the order came from, each with a restock movement whose"
        " reference is the order's reference."
        " The other lines are kept by the customer.",
        claims=(
            holds("the order is partly refunded", f"(select status = 'partly_refunded' from shop.orders where id = {row['id']})"),
            holds(
                "the payment is partly paid back",
                f"(select status = 'captured' and refunded = {amount} from shop.payments where id = {row['payment']})",
            ),
            holds("one refund says why", _refund_row(world, row["id"], amount, "changed mind")),
            holds(
                "those lines' units are marked and no others",
                f"(select bool_and(refunded_quantity = case when line in {numbers} then quantity else 0 end) from"
                f" shop.order_items where order_id = {row['id']})",
            ),
            holds("the units are back", stocked),
            holds(
                "each has its movement",
                f"(select count(*) from shop.stock_movements where {world.new('shop.stock_movements')} and reason = 'restock'"
                f" and reference = {lit(row['reference'])} and {kept}) = {len(lines)}",
            ),
            *_rest(world, row),
            *world.added("shop.stock_movements", len(lines)),
            world.unchanged("shop.stock", but=kept),
            world.same_counts("shop.refunds", "shop.stock_movements"),
        ),
        solution=(*pay, *back),
        wrong=pay,
    )


def _refund_row(world: World, order: int, amount: object, reason: str) -> str:
    return (
        f"(select count(*) = 1 and bool_and(order_id = {order} and amount = {amount} and reason = {lit(reason)})"
        f" from shop.refunds where {world.new('shop.refunds')})"
    )


def _rest(world: World, row: Row) -> tuple[Claim, ...]:
    return (
        world.added("shop.refunds", 1)[1],
        world.unchanged("shop.orders", but=f"id = {row['id']}"),
        world.unchanged("shop.orders", only=f"id = {row['id']}", without=("status",)),
        world.unchanged("shop.payments", but=f"id = {row['payment']}"),
        world.unchanged("shop.order_items", but=f"order_id = {row['id']}"),
    )
