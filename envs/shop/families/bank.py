"""Matching the bank statement with payments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from envs.shop.draft import Claim, Draft, Row, World, among, holds, lit

OPEN = """select b.id, b.booked_on, b.payment_reference as reference, p.id as payment, p.amount, o.id as order_id, o.customer_id,
    b.amount = p.amount as fits
  from shop.bank_lines b join shop.payments p on p.reference = b.payment_reference join shop.orders o on o.id = p.order_id
  where b.matched_payment_id is null and p.status = 'pending' and o.status = 'pending'"""
MATCH = (
    "the line gets the payment's id, the payment becomes captured and settled on the day that the line was booked, and its"
    " order becomes paid."
)
INVOICE = (
    " For each matched order, in the order of the bank lines' ids, write an invoice with the next number of 2026"
    " (shop.next_invoice_number),"
    " issued on the day that the line was booked, its total the payment's amount."
)
SHORT = (
    " Where the amounts differ, leave the line unmatched, set the payment to disputed, and open a billing ticket of priority 2"
    " for the customer and"
    " the order, with the subject 'Short payment ' and the payment's reference."
)


def reconcile(world: World) -> Iterator[Draft]:
    """Match bank lines with payments."""
    for row in world.pick("reconcile easy", f"{OPEN} and b.amount = p.amount order by 1", 10):
        prompt = f"The bank line {row['id']} is the money for payment {row['reference']}. Match it: {MATCH}"
        yield Draft(
            difficulty="easy",
            prompt=prompt,
            claims=_claims(world, [row], [], invoices=False),
            solution=_match([row]),
            wrong=_match([row])[1:],
        )
    found = world.rows(f"{OPEN} order by b.booked_on, b.id")
    for first, last, rows in _spans(world, "medium", found, 9):
        good = [r for r in rows if r["fits"]]
        yield Draft(
            difficulty="medium",
            prompt=f"{_span_prompt(first, last)} Where the amounts differ, change nothing.",
            claims=_claims(world, good, [], invoices=False),
            solution=_match(good),
            wrong=_match(rows),
        )
    for first, last, rows in _spans(world, "hard", found, 7):
        good = [r for r in rows if r["fits"]]
        short = [r for r in rows if not r["fits"]]
        yield Draft(
            difficulty="hard",
            prompt=_span_prompt(first, last) + INVOICE + SHORT,
            claims=_claims(world, good, short, invoices=True),
            solution=(*_match(good), *_invoice(good), *_dispute(short)),
            wrong=(*_match(good), *_invoice(good)),
        )


def _span_prompt(first: date, last: date) -> str:
    return (
        f"Go through the bank lines booked from {first} to {last} that are not matched yet. Where a line names a pending"
        f" payment and the amounts are"
        f" equal, match it: {MATCH}"
    )


def _spans(world: World, label: str, found: Sequence[Row], count: int) -> list[tuple[date, date, list[Row]]]:
    days = sorted({r["booked_on"] for r in found})
    spans: dict[tuple[int, ...], tuple[date, date, list[Row]]] = {}
    for i, first in enumerate(days):
        for last in days[i + 1 :]:
            rows = [r for r in found if first <= r["booked_on"] <= last]
            fitting = sum(r["fits"] for r in rows)
            if 2 <= fitting < len(rows) <= 8:
                spans.setdefault(tuple(r["id"] for r in rows if r["fits"]), (first, last, rows))
    return world.order(f"spans {label}", spans.values(), key=lambda s: f"{s[0]} {s[1]}")[:count]


def _match(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(
        sql
        for r in rows
        for sql in (
            f"update shop.bank_lines set matched_payment_id = {r['payment']} where id = {r['id']}",
            f"update shop.payments set status = 'captured', settled_on = {lit(r['booked_on'])} where id = {r['payment']}",
            f"update shop.orders set status = 'paid' where id = {r['order_id']}",
        )
    )


def _invoice(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(
        "insert into shop.invoices (number, order_id, issued_on, total)"
        f" values (shop.next_invoice_number(2026), {r['order_id']}, {lit(r['booked_on'])}, {r['amount']})"
        for r in sorted(rows, key=lambda r: int(r["id"]))
    )


def _dispute(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(
        sql
        for r in rows
        for sql in (
            f"update shop.payments set status = 'disputed' where id = {r['payment']}",
            "insert into shop.tickets (customer_id, order_id, topic, priority, status, subject, opened_at)"
            f" values ({r['customer_id']}, {r['order_id']}, 'billing', 2, 'open',"
            f" {lit('Short payment ' + str(r['reference']))}, now())",
        )
    )


def _claims(world: World, good: Sequence[Row], short: Sequence[Row], *, invoices: bool) -> tuple[Claim, ...]:
    payments = among(r["payment"] for r in (*good, *short))
    orders = among(r["order_id"] for r in good)
    lines = among(r["id"] for r in good)
    claims = [
        holds(f"line {r['id']} is matched with payment {r['payment']}",
              f"(select b.matched_payment_id = p.id and p.status = 'captured' and p.settled_on = b.booked_on and o.status = 'paid'"
              f" from shop.bank_lines b, shop.payments p, shop.orders o where b.id = {r['id']} and p.id = {r['payment']} and"
                  f" o.id = {r['order_id']})")
        for r in good
    ]  # fmt: skip
    for r in short:
        claims.append(
            holds(
                f"payment {r['payment']} is disputed", f"(select status = 'disputed' from shop.payments where id = {r['payment']})"
            )
        )
        claims.append(
            holds(
                f"a ticket asks about payment {r['payment']}",
                f"(select count(*) = 1 and bool_and(customer_id = {r['customer_id']} and topic = 'billing' and priority = 2"
                f" and status = 'open'"
                f" and subject = {lit('Short payment ' + str(r['reference']))}) from shop.tickets"
                f" where {world.new('shop.tickets')} and order_id = {r['order_id']})",
            )
        )
    claims += world.added("shop.tickets", len(short))
    if invoices:
        claims += _numbered(world, good)
    else:
        claims += [world.unchanged("shop.invoices"), world.unchanged("shop.invoice_counter")]
    changing = (*(["shop.tickets"] if short else []), *(["shop.invoices"] if invoices else []))
    return (
        *claims,
        world.unchanged("shop.bank_lines", but=f"id in {lines}"),
        world.unchanged("shop.bank_lines", only=f"id in {lines}", without=("matched_payment_id",)),
        world.unchanged("shop.payments", but=f"id in {payments}"),
        world.unchanged("shop.payments", only=f"id in {payments}", without=("status", "settled_on")),
        world.unchanged("shop.orders", but=f"id in {orders}"),
        world.unchanged("shop.orders", only=f"id in {orders}", without=("status",)),
        world.unchanged("shop.refunds"),
        world.same_counts(*changing),
    )


def _numbered(world: World, good: Sequence[Row]) -> list[Claim]:
    start = world.value("select last_number from shop.invoice_counter where year = 2026")
    claims = [
        holds(
            f"order {r['order_id']} has invoice {start + n}",
            f"(select order_id = {r['order_id']} and issued_on = {lit(r['booked_on'])} and total = {r['amount']}"
            f" from shop.invoices where number = 'INV-2026-{start + n:06d}')",
        )
        for n, r in enumerate(sorted(good, key=lambda r: int(r["id"])), start=1)
    ]
    orders = among(r["order_id"] for r in good)
    counter = f"(select last_number = {start + len(good)} from shop.invoice_counter where year = 2026)"
    return [
        *claims,
        holds("the counter stands at the last number", counter),
        world.unchanged("shop.invoices", but=f"order_id in {orders}"),
    ]
