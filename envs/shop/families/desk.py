"""The service desk: tickets, and questions that are answered in writing."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

from envs.shop.draft import Claim, Draft, Row, World, among, holds, lit
from envs.shop.families.promotions import NAMES

MONTHS = ("2025-09", "2025-10", "2025-11", "2025-12", "2026-01", "2026-02", "2026-03")


def ticket(world: World) -> Iterator[Draft]:
    """Resolve, hand out and tidy up tickets."""
    easy = (
        "select t.id, t.subject, c.name from shop.tickets t join shop.customers c on c.id = t.customer_id where t.status ="
        " 'open' order by 1"
    )
    for row in world.pick("ticket easy", easy, 10):
        yield _resolved(world, row)
    for topic, priority in world.order("ticket medium", product(("billing", "delivery", "products"), (1, 2, 3)), key=str)[:9]:
        yield _assigned(world, topic, priority)
    drafts = (
        _tidied(world, topic, month)
        for topic, month in world.order("ticket hard", product(("delivery", "products", "billing"), MONTHS), key=str)
    )
    yield from [d for d in drafts if d is not None][:7]


def _resolved(world: World, row: Row) -> Draft:
    resolution = world.say("resolution", row["id"], "answered", "replaced", "duplicate")
    body = world.say(
        "reply",
        row["id"],
        "We have looked into it and solved it.",
        "Thank you for your patience, this is done.",
        "Solved today; please write again if not.",
    )
    reply = f"insert into shop.ticket_messages (ticket_id, author, body) values ({row['id']}, 'desk', {lit(body)})"
    close = f"update shop.tickets set status = 'resolved', resolution = {lit(resolution)} where id = {row['id']}"
    return Draft(
        difficulty="easy",
        prompt=f"Ticket {row['id']} ('{row['subject']}', {row['name']}) is done: set it to resolved with the resolution"
        f" '{resolution}' and write the customer a message as 'desk':"
        f" '{body}'",
        claims=(
            holds(
                "the ticket is resolved",
                f"(select status = 'resolved' and resolution = {lit(resolution)} from shop.tickets where id = {row['id']})",
            ),
            holds(
                "the message is written",
                f"(select count(*) = 1 and bool_and(ticket_id = {row['id']} and author = 'desk' and body = {lit(body)})"
                f" from shop.ticket_messages where {world.new('shop.ticket_messages')})",
            ),
            world.unchanged("shop.tickets", but=f"id = {row['id']}"),
            world.unchanged("shop.tickets", only=f"id = {row['id']}", without=("status", "resolution")),
            world.added("shop.ticket_messages", 1)[1],
            world.same_counts("shop.ticket_messages"),
        ),
        solution=(close, reply),
        wrong=(close,),
    )


def _assigned(world: World, topic: str, priority: int) -> Draft:
    (person,) = world.order(
        "staff",
        world.rows(f"select id, name from shop.staff where team = {lit(topic)} order by 1"),
        key=lambda r: f"{topic}{priority}{r['id']}",
    )[:1]
    scope = f"status = 'open' and topic = {lit(topic)} and priority <= {priority}"
    ids = [r["id"] for r in world.rows(f"select id from shop.tickets where {scope} and assignee_id is null order by 1")]
    change = f"update shop.tickets set assignee_id = {person['id']} where {scope}"
    return Draft(
        difficulty="medium",
        prompt=f"Give every open {topic} ticket of priority {priority} or more urgent (1 is the most urgent) that nobody has"
        f" yet to {person['name']}. Tickets that somebody has stay"
        " with them.",
        claims=(
            holds(
                "they are assigned", f"(select bool_and(assignee_id = {person['id']}) from shop.tickets where id in {among(ids)})"
            ),
            world.unchanged("shop.tickets", but=f"id in {among(ids)}"),
            world.unchanged("shop.tickets", only=f"id in {among(ids)}", without=("assignee_id",)),
            world.unchanged("shop.staff"),
            world.unchanged("shop.ticket_messages"),
            world.same_counts(),
        ),
        solution=(change + " and assignee_id is null",),
        wrong=(change,),
    )


def _tidied(world: World, topic: str, month: str) -> Draft | None:
    rows = world.rows(f"""select t.id, c.tier = 'gold' as gold, t.assignee_id from shop.tickets t join shop.customers c on c.id
      = t.customer_id
      join shop.orders o on o.id = t.order_id join shop.shipments s on s.order_id = o.id
      where t.status in ('open', 'waiting') and t.topic = {lit(topic)} and to_char(t.opened_at at time zone 'UTC', 'YYYY-MM') =
      {lit(month)}
        and o.status = 'delivered' and s.delivered_at is not null order by 1""")
    people = {lit(r["name"]): r["id"] for r in world.rows(f"select id, name from shop.staff where team = {lit(topic)} order by 1")}
    name = world.order("person", people, key=lambda n: f"{topic}{month}{n}")[0]
    gold = [r["id"] for r in rows if r["gold"]]
    plain = [r["id"] for r in rows if not r["gold"]]
    if not gold or len(plain) < 2:
        return None
    body = "Your order has arrived, so we close this ticket."
    close = "update shop.tickets set status = 'closed', resolution = 'answered' where id in {}"
    tell = (
        "insert into shop.ticket_messages (ticket_id, author, body) select id, 'desk', "
        + lit(body)
        + " from shop.tickets where id in {} order by id"
    )
    return Draft(
        difficulty="hard",
        prompt=f"Tidy up the {topic} tickets opened in {month} (UTC) that are open or waiting and whose order has the status"
        f" delivered and a delivered shipment. Close each with the"
        f" resolution 'answered' and one message by 'desk': '{body}' Except for gold customers: their tickets stay as they are"
        f" and go to {name[1:-1]} instead. No other ticket changes.",
        claims=(
            holds(
                "the tickets are closed",
                f"(select bool_and(status = 'closed' and resolution = 'answered') from shop.tickets where id in {among(plain)})",
            ),
            holds(
                "gold customers' tickets are assigned",
                f"(select bool_and(assignee_id = {people[name]}) from shop.tickets where id in {among(gold)})",
            ),
            holds(
                "each customer was told once",
                f"(select count(*) = {len(plain)} and count(distinct ticket_id) = {len(plain)} and bool_and(ticket_id in"
                f" {among(plain)} and author = 'desk'"
                f" and body = {lit(body)}) from shop.ticket_messages where {world.new('shop.ticket_messages')})",
            ),
            world.added("shop.ticket_messages", len(plain))[1],
            world.unchanged("shop.tickets", but=f"id in {among([*plain, *gold])}"),
            world.unchanged("shop.tickets", only=f"id in {among(plain)}", without=("status", "resolution")),
            world.unchanged("shop.tickets", only=f"id in {among(gold)}", without=("assignee_id",)),
            world.unchanged("shop.orders"),
            world.same_counts("shop.ticket_messages"),
        ),
        solution=(
            close.format(among(plain)),
            tell.format(among(plain)),
            f"update shop.tickets set assignee_id = {people[name]} where id in {among(gold)}",
        ),
        wrong=(close.format(among([*plain, *gold])), tell.format(among([*plain, *gold]))),
    )


def answer(world: World) -> Iterator[Draft]:
    """Answer a question by writing one row into work.answers."""
    channels = world.order("channel", product(("web", "phone", "partner"), MONTHS), key=str)[:10]
    for n, (channel, month) in enumerate(channels, start=1):
        count = (
            f"select count(*)::text from shop.orders where channel = {lit(channel)} and to_char(placed_at at time zone"
            f" 'UTC', 'YYYY-MM') = {lit(month)}"
        )
        yield _answered(world, "easy", f"orders-{n}", f"How many orders (of any status) came in through the channel"
            f" '{channel}' in {month} (UTC)? The answer is the number alone.",
                        count, count.replace(f"channel = {lit(channel)} and ", ""))  # fmt: skip
    for n, (country, month) in enumerate(
        world.order("refunded", product(("DE", "FR", "NL", "IT", "ES", "AT", "BE"), MONTHS), key=str)[:9], start=1
    ):
        net = f"""select coalesce(sum(p.amount - p.refunded), 0)::numeric(12, 2)::text from shop.payments p join shop.orders o
      on o.id = p.order_id
          join shop.customers c on c.id = o.customer_id where c.country = {lit(country)} and p.status = 'captured'
          and to_char(o.placed_at at time zone 'UTC', 'YYYY-MM') = {lit(month)}"""
        yield _answered(world, "medium", f"revenue-{n}", f"What did customers from {NAMES[country]} pay for orders placed in"
            f" {month} (UTC), counting captured payments and taking off what was"
                        " refunded on them? The answer is the amount in EUR with two decimals, such as 1234.50.",
                        net, net.replace("p.status = 'captured'", "true").replace("p.amount - p.refunded", "p.amount"))  # fmt: skip
    best: list[Draft] = []
    for top, quarter in world.order("best", product(range(1, 7), ("2025-07-01", "2025-10-01", "2026-01-01")), key=str):
        draft = _best(world, f"best-{len(best) + 1}", top, quarter)
        if draft is not None and len(best) < 7:
            best.append(draft)
    yield from best


def _best(world: World, key: str, top: int, start: str) -> Draft | None:
    name = world.value(f"select name from shop.categories where id = {top}")
    ranked = f"""select p.sku::text from shop.order_items i join shop.orders o on o.id = i.order_id join shop.products p on p.id
      = i.product_id
      join shop.categories c on c.id = p.category_id where c.parent_id = {top} and o.status not in ('pending', 'cancelled')
      and o.placed_at >= '{start} 00:00+00' and o.placed_at < timestamptz '{start} 00:00+00' + interval '3 months'
      group by p.sku order by sum((i.quantity - i.refunded_quantity) * i.unit_price) desc, p.sku limit 1"""
    careless = ranked.replace("(i.quantity - i.refunded_quantity) * i.unit_price", "i.quantity")
    tie = world.rows(
        ranked.replace("p.sku::text", "sum((i.quantity - i.refunded_quantity) * i.unit_price) as turnover").replace(
            "limit 1", "limit 2"
        )
    )
    if world.value(ranked) == world.value(careless) or Decimal(tie[0]["turnover"]) == Decimal(tie[1]["turnover"]):
        return None
    question = (
        f"Which product in the subcategories of '{name}' had the highest turnover (units that were not refunded times the"
        f" price paid) on orders placed in the three months from {start}"
        " (UTC), leaving out orders that are pending or cancelled? The answer is its SKU."
    )
    return _answered(world, "hard", key, question, ranked, careless)


def _answered(world: World, difficulty: str, key: str, question: str, query: str, careless: str) -> Draft:
    answer_text = world.value(query)
    insert = "insert into work.answers (question, answer) values ({}, ({}))"
    return Draft(
        difficulty=difficulty,
        prompt=f"{question} Write it into work.answers, as the one row with question '{key}'. Change nothing else.",
        claims=(
            holds(
                "the answer is right",
                f"(select count(*) = 1 and bool_and(btrim(answer) = {lit(answer_text)}) from work.answers where question ="
                f" {lit(key)})",
            ),
            holds("there is no other answer", "(select count(*) from work.answers) = 1"),
            *_read_only(world),
        ),
        solution=(insert.format(lit(key), query),),
        wrong=(insert.format(lit(key), careless),),
    )


def _read_only(world: World) -> tuple[Claim, ...]:
    tables = ("shop.orders", "shop.payments", "shop.products", "shop.customers", "shop.tickets")
    return (*(world.unchanged(t) for t in tables), world.same_counts("work.answers"))
