"""Placing orders, and keeping a cart in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from envs.portal.draft import Claim, Draft, Row, Step, World, among, cart_is, holds, lit, opening, product

_NO_CART = "not exists (select from portal.cart_lines c where c.person_id = p.id)"


def order(world: World) -> Iterator[Draft]:
    """Order one thing, the right things, or most of an earlier order again."""
    people = world.people("order", _NO_CART)
    goods = world.pick("order easy", "select * from portal.products where stock >= 30 order by id", 3)
    for person, row, units in zip(people, goods, (3, 5, 12), strict=False):
        yield _simple(world, person, row, units)
    cheapest = """select min(id) as key, article, (array_agg(id order by price, id))[1] as tempting,
        (array_agg(id order by price, id) filter (where stock >= 10))[1] as right
        from portal.products group by article
        having (array_agg(stock order by price, id))[1] = 0 and count(*) filter (where stock >= 10) > 1 order by 1"""
    articles = world.pick("order medium", cheapest, 3)
    for person, row, other in zip(people[3:], articles, world.people("colleague", "id > 8"), strict=False):
        yield _cheapest(world, person, row, other)
    lines = "portal.order_lines l join portal.products q on q.id = l.product_id where l.order_id = o.id"
    earlier = f"""select o.id, o.number, o.person_id, o.place_id, o.reference
        from portal.orders o join portal.people p on p.id = o.person_id
        where {_NO_CART} and o.reference <> '' and o.status = 'delivered'
        and (select count(*) from portal.order_lines l where l.order_id = o.id) between 4 and 5
        and (select count(distinct q.category_id) from {lines}) between 3 and 4
        and not exists (select from {lines} and q.stock < 20)
        order by 1"""
    for row in world.pick("order hard", earlier, 2):
        yield _again(world, row)


def _placed(
    world: World, person: int, units: Mapping[int, int], place: int, centre: str, reference: str, note: str
) -> tuple[Claim, ...]:
    """Say that exactly one order was placed, and what follows from it."""
    ids = among(units)
    goods = {r["id"]: r for r in world.rows(f"select * from portal.products where id in {ids} order by id")}
    total = sum((goods[i]["price"] * n for i, n in units.items()), Decimal(0))
    left = ", ".join(f"({i}, {goods[i]['stock'] - n})" for i, n in units.items())
    lines = ", ".join(f"({i}, {n}, {goods[i]['price']})" for i, n in units.items())
    new = f"order_id > {world.value('select max(id) from portal.orders')}"
    wanted = f"({person}, {place}, {lit(centre)}, {lit(reference)}, {lit(note)}, 'placed', {total})"
    columns = "(person_id, place_id, cost_centre, reference, note, status, total)"
    return (
        holds(
            "the order is as asked",
            f"(select bool_and({columns} = {wanted}) from portal.orders where {world.new('portal.orders')})",
        ),
        *world.added("portal.orders", 1),
        holds(
            "its lines are as asked",
            f"(select count(*) = {len(units)} and bool_and((product_id, quantity, price) in ({lines})) from "
            f"portal.order_lines where {new})",
        ),
        world.unchanged("portal.order_lines", but=new),
        holds("the stock went down", f"(select count(*) from portal.products where (id, stock) in ({left})) = {len(units)}"),
        *world.rest_of_row("portal.products", f"id in {ids}", ("stock",)),
        *world.rest("orders", "order_lines", "products"),
    )


def _simple(world: World, person: Row, row: Row, units: int) -> Draft:
    place = world.order(
        f"place {row['sku']}",
        world.rows(f"select * from portal.places where id <> {person['place_id']} order by id"),
        key=lambda r: r["code"],
    )[0]
    centre = _centre(world, person)
    reference = f"DESK {100 + row['id']}"
    details = {"place": place["code"], "reference": reference}
    return Draft(
        difficulty="easy",
        prompt=opening(person)
        + f"Order {units} × {product(row)}, delivered to {place['code']} {place['name']}, with the reference '{reference}'."
        " The cost centre stays what the portal suggests.",
        claims=_placed(world, person["id"], {row["id"]: units}, place["id"], centre, reference, ""),
        solution=(("sign_in", person["login"]), ("add", row["sku"], units), ("check_out", details)),
        wrong=(("sign_in", person["login"]), ("add", row["sku"], units)),
    )


def _centre(world: World, person: Row) -> str:
    return str(world.value(f"select cost_centre from portal.departments where id = {person['department_id']}"))


def _cheapest(world: World, person: Row, row: Row, colleague: Row) -> Draft:
    (right,) = world.rows(f"select * from portal.products where id = {row['right']}")
    (dearer, *_) = world.rows(
        f"select * from portal.products where article = {lit(row['article'])} and stock >= 10 and id <> "
        f"{right['id']} order by price desc, id"
    )
    department = world.order(
        f"department {row['article']}",
        world.rows(f"select * from portal.departments where id <> {person['department_id']} order by id"),
        key=lambda r: r["code"],
    )[0]
    place = world.value(f"select code from portal.places where id = {colleague['place_id']}")
    details = {"place": place, "cost_centre": department["cost_centre"], "note": "For a visitor."}

    def steps(chosen: Row) -> tuple[Step, ...]:
        return (("sign_in", person["login"]), ("add", chosen["sku"], 4), ("check_out", details))

    return Draft(
        difficulty="medium",
        prompt=opening(person) + f"Order 4 of the cheapest '{row['article']}' that is in stock, whichever variant that is. It goes "
        f"where {colleague['name']}"
        f" gets deliveries (the directory says where), at the cost of {department['name']}, with the note 'For a visitor.'",
        claims=_placed(
            world, person["id"], {right["id"]: 4}, colleague["place_id"], department["cost_centre"], "", "For a visitor."
        ),
        solution=steps(right),
        wrong=steps(dearer),
    )


def _again(world: World, row: Row) -> Draft:
    (person,) = world.rows(f"select * from portal.people where id = {row['person_id']}")
    lines = world.rows(
        f"select q.id, q.sku, q.name, l.quantity, c.name as category from portal.order_lines l join "
        f"portal.products q on q.id = l.product_id"
        f" join portal.categories c on c.id = q.category_id where l.order_id = {row['id']} order by l.position"
    )
    without = world.order(f"without {row['number']}", sorted({r["category"] for r in lines}))[0]
    kept = [r for r in lines if r["category"] != without]
    twice = world.order(f"twice {row['number']}", kept, key=lambda r: r["sku"])[0]
    units = {r["id"]: r["quantity"] * (2 if r is twice else 1) for r in kept}
    code = world.value(f"select code from portal.places where id = {row['place_id']}")
    remove = [("remove", r["sku"]) for r in lines if r["category"] == without]
    doubled = ("quantity", twice["sku"], twice["quantity"] * 2)
    details = {"place": code, "reference": row["reference"]}
    return Draft(
        difficulty="hard",
        prompt=opening(person) + f"Order again what you ordered with {row['number']}, but leave out everything of the category "
        f"'{without}', and take twice as"
        f" many of {product(twice)}. Delivery place and reference are those of the old order; the cost "
        f"centre stays what the portal suggests, and there is no note.",
        claims=_placed(world, person["id"], units, row["place_id"], _centre(world, person), row["reference"], ""),
        solution=(("sign_in", person["login"]), ("again", row["number"]), *remove, doubled, ("check_out", details)),
        wrong=(("sign_in", person["login"]), ("again", row["number"]), *remove, ("check_out", details)),
    )


def cart(world: World) -> Iterator[Draft]:
    """Change a cart without ordering."""
    owners = [(p, _cart(world, p["id"])) for p in world.people("cart", f"not ({_NO_CART})")]
    easy = [(p, lines) for p, lines in owners if sum(not r["later"] for r in lines) >= 3]
    for person, lines in easy[:3]:
        yield _change(person, lines, world)
    rest = easy[3:]
    tidy = [found for found in (_tidy(world, p, lines) for p, lines in rest) if found is not None][:3]
    yield from tidy
    used = {step[1] for found in tidy for step in found.solution if step[0] == "sign_in"}
    greener = (_greener(world, p, lines) for p, lines in rest if p["login"] not in used)
    yield from [found for found in greener if found is not None][:2]


def _cart(world: World, person: int) -> list[Row]:
    return list(
        world.rows(
            f"select p.*, c.quantity, c.later from portal.cart_lines c join portal.products p on p.id = "
            f"c.product_id where c.person_id = {person} order by c.added_at, p.id"
        )
    )


def _as_lines(lines: list[Row]) -> dict[int, tuple[int, bool]]:
    return {r["id"]: (r["quantity"], r["later"]) for r in lines}


def _cart_claims(world: World, person: Row, lines: Mapping[int, tuple[int, bool]]) -> tuple[Claim, ...]:
    return (
        cart_is(person["id"], lines),
        world.unchanged("portal.cart_lines", but=f"person_id = {person['id']}"),
        *world.rest("cart_lines"),
    )


def _change(person: Row, lines: list[Row], world: World) -> Draft:
    more, gone = world.order(f"change {person['login']}", [r for r in lines if not r["later"]], key=lambda r: r["sku"])[:2]
    after = _as_lines(lines)
    after[more["id"]] = (more["quantity"] + 11, False)
    del after[gone["id"]]
    first: tuple[Any, ...] = ("sign_in", person["login"])
    return Draft(
        difficulty="easy",
        prompt=opening(person) + f"In your cart, set the quantity of {product(more)} to {more['quantity'] + 11} and remove "
        f"{product(gone)}. Do not order yet.",
        claims=_cart_claims(world, person, after),
        solution=(first, ("quantity", more["sku"], more["quantity"] + 11), ("remove", gone["sku"])),
        wrong=(first, ("quantity", more["sku"], more["quantity"] + 11), ("later", gone["sku"])),
    )


def _tidy(world: World, person: Row, lines: list[Row]) -> Draft | None:
    now = [r for r in lines if not r["later"]]
    gone = [r for r in now if r["stock"] == 0]
    prices = sorted(r["price"] for r in now if r["stock"] > 0)
    if not gone or len(prices) < 3:
        return None
    bound = int(prices[-2])
    dear = [r for r in now if r["stock"] > 0 and r["price"] > bound]
    if not 0 < len(dear) < len(prices):
        return None
    after = _as_lines(lines)
    for r in gone:
        del after[r["id"]]
    for r in dear:
        after[r["id"]] = (r["quantity"], True)
    first: tuple[Any, ...] = ("sign_in", person["login"])
    later = [("later", r["sku"]) for r in dear]
    return Draft(
        difficulty="medium",
        prompt=opening(person)
        + f"Tidy your cart: remove what is out of stock, and of the rest save for later whatever costs more than {bound} € apiece."
        " What is saved for later already stays as it is.",
        claims=_cart_claims(world, person, after),
        solution=(first, *(("remove", r["sku"]) for r in gone), *later),
        wrong=(first, *later),
    )


def _greener(world: World, person: Row, lines: list[Row]) -> Draft | None:
    after = _as_lines(lines)
    swapped: list[tuple[Row, Row]] = []
    for r in lines:
        if r["later"] or r["variant"] == "Eco":
            continue
        (eco,) = world.rows(f"select * from portal.products where article = {lit(r['article'])} and variant = 'Eco'")
        if eco["stock"] >= r["quantity"] and eco["id"] not in after:
            del after[r["id"]]
            after[eco["id"]] = (r["quantity"], False)
            swapped.append((r, eco))
        elif eco["stock"] > 0:
            return None
    if not 2 <= len(swapped) <= 4 or len(swapped) == sum(not r["later"] for r in lines):
        return None
    first: tuple[Any, ...] = ("sign_in", person["login"])
    steps = [step for old, new in swapped for step in (("add", new["sku"], old["quantity"]), ("remove", old["sku"]))]
    return Draft(
        difficulty="hard",
        prompt=opening(person) + "Make your cart greener: replace everything in it that is not the Eco variant by the Eco variant "
        "of the same article, in the"
        " same quantity, where that one is in stock. Where it is not, the line stays. Leave alone what "
        "is saved for later, and do not order.",
        claims=_cart_claims(world, person, after),
        solution=(first, *steps),
        wrong=(first, *steps[:-1]),
    )
