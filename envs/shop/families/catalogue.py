"""Prices and stock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

from envs.shop.draft import Draft, Row, World, among, holds, lit

CENT = Decimal("0.01")


def price(world: World) -> Iterator[Draft]:
    """Set prices: one, a category's, or those that lie below cost."""
    easy = (
        "select id, sku, name, price, category_id from shop.products where status = 'active' and category_id in (select"
        " category_id from shop.products group by 1 having count(*) > 5) order by 1"
    )
    for row in world.pick("price easy", easy, 10):
        new = row["price"] + Decimal(world.say("by", row["id"], "1.50", "2.00", "-1.25", "3.10"))
        said = world.say(
            "price", row["id"],
            f"The price of {row['sku']} ({row['name']}) is wrong: it should be {new} EUR. Please correct it.",
            f"Set the price of the product {row['sku']} to {new}. Nothing else about it changes.",
        )  # fmt: skip
        yield _priced(world, "easy", said, {row["id"]: new}, f"update shop.products set price = {new} where id = {row['id']}",
                      f"update shop.products set price = {new} where category_id = {row['category_id']}")  # fmt: skip
    medium = """select g.id, g.name from shop.categories g join shop.products p on p.category_id = g.id
      group by g.id, g.name having count(*) filter (where p.status = 'active') > 3 and count(*) filter (where p.status <>
      'active') > 0 order by 1"""
    for row in world.pick("price medium", medium, 9):
        percent = int(world.say("percent", row["id"], "3", "4", "5", "6", "8"))
        products = world.rows(
            f"select id, price from shop.products where category_id = {row['id']} and status = 'active' order by id"
        )
        new_prices = {p["id"]: (p["price"] * (100 + percent) / 100).quantize(CENT, ROUND_HALF_UP) for p in products}
        change = f"update shop.products set price = round(price * {100 + percent} / 100, 2) where category_id = {row['id']}"
        said = (
            f"Raise the price of every active product in the category '{row['name']}' by {percent} % (rounded to the cent)."
            f" Discontinued and draft products keep their price."
        )
        yield _priced(world, "medium", said, new_prices, f"{change} and status = 'active'", change)
    hard = """select t.id, t.name from shop.categories t join shop.categories g on g.parent_id = t.id join shop.products p on
      p.category_id = g.id
      where p.status = 'active' and p.price < p.cost group by 1, 2 order by 1"""
    tops = world.pick("price hard", hard, 4)
    for n in range(7):
        row, factor = tops[n % 4], Decimal(("1.25", "1.40")[n // 4])
        yield _below_cost(world, row, factor)


def _below_cost(world: World, row: Row, factor: Decimal) -> Draft:
    within = f"category_id in (select id from shop.categories where parent_id = {row['id']}) and status = 'active' and price < cost"
    products = world.rows(f"select id, cost from shop.products where {within} order by id")
    new = {p["id"]: (p["cost"] * factor - Decimal("0.95")).to_integral_value(ROUND_CEILING) + Decimal("0.95") for p in products}
    formula = f"ceil(cost * {factor} - 0.95) + 0.95"
    said = (
        f"Some active products in the subcategories of '{row['name']}' are sold below cost. Give each of them the smallest"
        f" price that ends in .95 and is at"
        f" least {factor} times its cost. Products sold at or above cost, other categories, and products that are not active"
        f" keep their prices."
    )
    return _priced(world, "hard", said, new, f"update shop.products set price = {formula} where {within}",
                   f"update shop.products set price = {formula} where status = 'active' and price < cost")  # fmt: skip


def _priced(world: World, difficulty: str, prompt: str, prices: dict[int, Decimal], solution: str, wrong: str) -> Draft:
    ids = among(prices)
    return Draft(
        difficulty=difficulty,
        prompt=prompt,
        claims=(
            holds(
                "the new prices stand",
                f"(select count(*) from shop.products p join (values {', '.join(f'({i}, {v})' for i, v in prices.items())})"
                f" w(id, price)"
                f" on w.id = p.id and w.price = p.price) = {len(prices)}",
            ),
            holds(
                "the history knows each change once",
                f"(select count(*) = {len(prices)} and count(distinct product_id) = {len(prices)} from shop.price_history"
                f" where {world.new('shop.price_history')})",
            ),
            world.unchanged("shop.products", but=f"id in {ids}"),
            world.unchanged("shop.products", only=f"id in {ids}", without=("price",)),
            world.unchanged("shop.order_items"),
            world.unchanged("shop.stock"),
            world.same_counts(),
        ),
        solution=(solution,),
        wrong=(wrong,),
    )


def stock(world: World) -> Iterator[Draft]:
    """Correct, move and refill stock, always with movements."""
    easy = """select s.product_id * 10 + s.warehouse_id as key, s.product_id, s.warehouse_id, s.on_hand, p.sku, p.name, w.code,
      w.city
      from shop.stock s join shop.products p on p.id = s.product_id join shop.warehouses w on w.id = s.warehouse_id
      where s.on_hand - s.reserved > 20 order by 1"""
    for row in world.pick("stock easy", easy, 10):
        counted = row["on_hand"] + int(world.say("count", row["key"], "-7", "-3", "4", "9", "-12"))
        reference = f"stocktake {row['code']}"
        yield _moved(
            world, "easy",
            f"The stocktake in {row['city']} ({row['code']}) found {counted} units of {row['sku']} ({row['name']}). Correct"
                f" the stock, with an adjustment movement"
            f" whose reference is '{reference}'.",
            [(row["product_id"], row["warehouse_id"], counted - row["on_hand"])], "adjustment", reference,
            (f"select shop.move_stock({row['product_id']}, {row['warehouse_id']}, {counted - row['on_hand']}, 'adjustment',"
                f" {lit(reference)})",),
            (f"update shop.stock set on_hand = {counted} where product_id = {row['product_id']} and warehouse_id ="
                f" {row['warehouse_id']}",),
        )  # fmt: skip
    medium = """select s.product_id * 100 + s.warehouse_id * 10 + w2.id as key, s.product_id, s.warehouse_id, s.on_hand -
      s.reserved as free, p.sku, w.code, w2.id as target, w2.code as to_code
      from shop.stock s join shop.products p on p.id = s.product_id join shop.warehouses w on w.id = s.warehouse_id join
      shop.warehouses w2 on w2.id <> w.id
      where s.on_hand - s.reserved between 25 and 100 and p.status = 'active' order by 1"""
    for row in world.pick("stock medium", medium, 9):
        units, product, source, target = row["free"] // 2, row["product_id"], row["warehouse_id"], row["target"]
        yield _moved(
            world, "medium",
            f"Move half of the free stock of {row['sku']} (on hand minus reserved, rounded down) from warehouse {row['code']}"
                f" to {row['to_code']}, as a transfer"
            f" with the reference 'balance {row['sku']}'.",
            [(product, source, -units), (product, target, units)], "transfer", f"balance {row['sku']}",
            (f"select shop.transfer_stock({product}, {source}, {target}, {units}, {lit('balance ' + row['sku'])})",),
            (f"select shop.transfer_stock({product}, {source}, {target}, (select on_hand / 2 + 1 from shop.stock where"
                f" product_id = {product} and warehouse_id = {source}), {lit('balance ' + row['sku'])})",),
        )  # fmt: skip
    yield from _refills(world)


def _refills(world: World) -> Iterator[Draft]:
    found = world.rows("""select g.parent_id as top, c.name, a.warehouse_id as target, wa.code as to_code, b.warehouse_id as
      source, wb.code as from_code,
        a.product_id, 2 * a.reorder_at - (a.on_hand - a.reserved) as units,
        b.on_hand - b.reserved - (2 * a.reorder_at - (a.on_hand - a.reserved)) >= 50 as allowed
      from shop.stock a join shop.stock b on b.product_id = a.product_id and b.warehouse_id <> a.warehouse_id
      join shop.products p on p.id = a.product_id join shop.categories g on g.id = p.category_id join shop.categories c on c.id
      = g.parent_id
      join shop.warehouses wa on wa.id = a.warehouse_id join shop.warehouses wb on wb.id = b.warehouse_id
      where p.status = 'active' and a.on_hand - a.reserved < a.reorder_at order by 1, 3, 5, 7""")
    groups: dict[tuple[int, int, int], list[Row]] = {}
    for r in found:
        groups.setdefault((r["top"], r["target"], r["source"]), []).append(r)
    fit = [rows for rows in groups.values() if any(r["allowed"] for r in rows) and not all(r["allowed"] for r in rows)]
    if len(fit) < 7:
        raise ValueError(f"stock hard: {len(fit)} candidates")
    for rows in world.order("stock hard", fit, key=lambda rows: f"{rows[0]['top']}{rows[0]['target']}{rows[0]['source']}")[:7]:
        yield _refill(world, rows)


def _refill(world: World, rows: Sequence[Row]) -> Draft:
    first, reference = rows[0], f"refill {rows[0]['to_code']}"
    allowed = [r for r in rows if r["allowed"]]
    call = "select shop.transfer_stock({product_id}, {source}, {target}, {units}, " + lit(reference) + ")"
    moves = [m for r in allowed for m in ((r["product_id"], r["source"], -r["units"]), (r["product_id"], r["target"], r["units"]))]
    enough = [
        r
        for r in rows
        if world.value(
            f"select on_hand >= {r['units']} from shop.stock where product_id = {r['product_id']} and warehouse_id = {r['source']}"
        )
    ]
    careless = enough if len(enough) > len(allowed) else allowed[1:]
    return _moved(
        world, "hard",
        f"Refill warehouse {first['to_code']} from {first['from_code']}: for every active product in the subcategories of"
            f" '{first['name']}' whose free stock (on hand minus"
        f" reserved) in {first['to_code']} is below its reorder level there, transfer as many units as bring the free stock to"
            f" twice that level, but only where"
        f" {first['from_code']} keeps at least 50 free units of the product afterwards. Leave the others. The reference of"
            f" every transfer is '{reference}'.",
        moves, "transfer", reference, tuple(call.format(**r) for r in allowed), tuple(call.format(**r) for r in careless),
    )  # fmt: skip


def _moved(
    world: World,
    difficulty: str,
    prompt: str,
    moves: Sequence[tuple[int, int, int]],
    reason: str,
    reference: str,
    solution: tuple[str, ...],
    wrong: tuple[str, ...],
) -> Draft:
    places = "(product_id, warehouse_id) in (" + ", ".join(f"({p}, {w})" for p, w, _ in moves) + ")"
    before = {
        (r["product_id"], r["warehouse_id"]): r["on_hand"]
        for r in world.rows(f"select product_id, warehouse_id, on_hand from shop.stock where {places}")
    }
    after = ", ".join(f"({p}, {w}, {before[p, w] + q})" for p, w, q in moves)
    told = ", ".join(f"({p}, {w}, {q})" for p, w, q in moves)
    return Draft(
        difficulty=difficulty,
        prompt=prompt,
        claims=(
            holds(
                "the stock is as asked",
                f"(select count(*) from shop.stock where (product_id, warehouse_id, on_hand) in ({after})) = {len(moves)}",
            ),
            holds(
                "each change has its movement",
                f"(select count(distinct (product_id, warehouse_id)) from shop.stock_movements where"
                f" {world.new('shop.stock_movements')}"
                f" and (product_id, warehouse_id, quantity) in ({told}) and reason = {lit(reason)} and reference ="
                f" {lit(reference)}) = {len(moves)}",
            ),
            *world.added("shop.stock_movements", len(moves)),
            world.unchanged("shop.stock", but=places),
            world.unchanged("shop.stock", only=places, without=("on_hand",)),
            world.unchanged("shop.products"),
            world.same_counts("shop.stock_movements"),
        ),
        solution=solution,
        wrong=wrong,
    )
