"""Coupons and loyalty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from envs.shop.draft import Draft, Row, World, among, holds, lit

NAMES = {
    "AT": "Austria",
    "BE": "Belgium",
    "DE": "Germany",
    "DK": "Denmark",
    "ES": "Spain",
    "FR": "France",
    "IT": "Italy",
    "NL": "the Netherlands",
    "PL": "Poland",
    "PT": "Portugal",
}


def promotion(world: World) -> Iterator[Draft]:
    """Make a coupon, put one on carts, or raise loyal customers."""
    words = world.order("coupon words", ("BLOOM", "RAIN", "MOON", "RIVER", "MAPLE", "COAST", "EMBER", "FROST", "HARBOUR", "MEADOW"))
    for n, word in enumerate(words):
        yield _coupon(world, f"{word}{26 + n}", 5 + n, 20 + 5 * n, f"2026-04-{10 + n:02d}", f"2026-05-{10 + n:02d}", 100 + 20 * n)
    valid = """select k.code || ' ' || c.country as key, k.code, k.min_total, c.country,
        array_agg(t.id order by t.id) filter (where shop.cart_total(t.id) >= k.min_total) as carts, array_agg(t.id order by
      t.id) as all_carts
      from shop.coupons k cross join shop.carts t join shop.customers c on c.id = t.customer_id
      where k.active and shop.business_date() between k.valid_from and k.valid_to and k.min_total > 0 and t.status = 'open'
      group by k.code, k.min_total, c.country
      having count(*) filter (where shop.cart_total(t.id) >= k.min_total) between 3 and 40 and count(*) filter (where
      shop.cart_total(t.id) < k.min_total) > 0 order by 1"""
    for row in world.pick("promotion medium", valid, 9):
        yield _carts(world, row)
    choices = world.order(
        "loyal", product(("DE", "FR", "NL", "IT", "ES", "AT", "BE"), (300, 500, 800)), key=lambda c: f"{c[0]}{c[1]}"
    )
    drafts = (_loyal(world, country, bound) for country, bound in choices)
    yield from [d for d in drafts if d is not None][:7]


def _coupon(world: World, code: str, percent: int, minimum: int, first: str, last: str, uses: int) -> Draft:
    columns = "code, description, percent_off, min_total, valid_from, valid_to, max_uses, active"
    row = f"({lit(code)}, {lit('Campaign ' + code)}, {percent}, {minimum}, '{first}', '{last}', {uses}, true)"
    return Draft(
        difficulty="easy",
        prompt=f"Create the coupon {code} ('Campaign {code}'): {percent} % off orders of at least {minimum} EUR, valid from"
        f" {first} to {last}, at most {uses} uses,"
        " active from the start.",
        claims=(
            holds("the coupon is there", f"exists (select from shop.coupons where ({columns}) = {row} and amount_off is null)"),
            world.unchanged("shop.coupons", but=f"code = {lit(code)}"),
            world.unchanged("shop.carts"),
            world.unchanged("shop.orders"),
            world.same_counts("shop.coupons"),
            holds(
                "one coupon was added",
                f"(select count(*) from shop.coupons) = {world.value('select count(*) from shop.coupons') + 1}",
            ),
        ),
        solution=(f"insert into shop.coupons ({columns}) values {row}",),
        wrong=(f"insert into shop.coupons ({columns.replace('percent_off', 'amount_off')}) values {row}",),
    )


def _carts(world: World, row: Row) -> Draft:
    call = "select shop.apply_coupon({0}, {1})"
    return Draft(
        difficulty="medium",
        prompt=f"Put the coupon {row['code']} on every open cart of customers from {NAMES[row['country']]} whose total reaches"
        f" the coupon's minimum. The other"
        " carts stay as they are.",
        claims=(
            holds(
                "the carts carry it",
                f"(select bool_and(coupon_code = {lit(row['code'])}) from shop.carts where id in {among(row['carts'])})",
            ),
            world.unchanged("shop.carts", but=f"id in {among(row['carts'])}"),
            world.unchanged("shop.carts", only=f"id in {among(row['carts'])}", without=("coupon_code", "updated_at")),
            world.unchanged("shop.cart_items"),
            world.unchanged("shop.coupons"),
            world.same_counts(),
        ),
        solution=tuple(call.format(cart, lit(row["code"])) for cart in row["carts"]),
        wrong=(f"update shop.carts set coupon_code = {lit(row['code'])} where id in {among(row['all_carts'])}",),
    )


def _loyal(world: World, country: str, bound: int) -> Draft | None:
    spent = f"""(select coalesce(sum(p.amount - p.refunded), 0) from shop.orders o join shop.payments p on p.order_id = o.id
        where o.customer_id = c.id and p.status = 'captured' and o.placed_at >= '2026-01-01') >= {bound}"""
    wide = f"c.country = {lit(country)} and {spent}"
    narrow = f"{wide} and c.tier = 'standard' and c.status = 'active'"
    chosen = [r["id"] for r in world.rows(f"select c.id from shop.customers c where {narrow} order by 1")]
    everyone = [r["id"] for r in world.rows(f"select c.id from shop.customers c where {wide} order by 1")]
    if not 3 <= len(chosen) < len(everyone):
        return None
    ids = among(chosen)
    credit = ", ".join(
        f"({r['id']}, {r['credit'] + 10})"
        for r in world.rows(f"select id, credit from shop.customers where id in {ids} order by 1")
    )
    change = "update shop.customers set tier = 'silver', credit = credit + 10 where id in {}"
    return Draft(
        difficulty="hard",
        prompt=f"Loyalty round for {NAMES[country]}: active customers of the tier 'standard' who since 2026-01-01 paid at"
        f" least {bound} EUR (captured payments minus what was"
        " refunded on them, by the time their orders were placed) become silver and get 10 EUR of credit on top of what they"
        " have. Blocked and merged customers,"
        " and those who are already silver or gold, get nothing.",
        claims=(
            holds("they are silver", f"(select bool_and(tier = 'silver') from shop.customers where id in {ids})"),
            holds(
                "they have their credit", f"(select count(*) from shop.customers where (id, credit) in ({credit})) = {len(chosen)}"
            ),
            world.unchanged("shop.customers", but=f"id in {ids}"),
            world.unchanged("shop.customers", only=f"id in {ids}", without=("tier", "credit")),
            world.unchanged("shop.payments"),
            world.same_counts(),
        ),
        solution=(change.format(ids),),
        wrong=(change.format(among(everyone)),),
    )
