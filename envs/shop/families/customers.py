"""Double records and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envs.shop.draft import Claim, Draft, Row, World, among, holds, lit

OWNED = ("shop.orders", "shop.addresses", "shop.tickets", "shop.carts")
OPEN = "('pending', 'paid', 'packed')"


def merge(world: World) -> Iterator[Draft]:
    """Make one record of two or three."""
    triples = """select lower(c.email) as email, min(c.id) as keep, array_agg(c.id order by c.id) as ids, min(c.name) as name,
      sum(c.credit) as credit
      from shop.customers c group by 1
      having count(*) = 3 and bool_and(c.status = 'active') and sum(c.credit) filter (where c.id > 2900) > 0
        and (select count(distinct o.customer_id) from shop.orders o where o.customer_id = any(array_agg(c.id)) and
      o.customer_id > 2900) = 2 order by 1"""
    hard = world.pick("merge hard", triples, 7)
    others = triples.replace(
        "sum(c.credit) filter (where c.id > 2900) > 0", f"lower(c.email) not in {among(r['email'] for r in hard)}"
    )
    rest = world.pick("merge other", others, 19)
    for row in rest[:10]:
        yield _pair(world, row)
    for row in rest[10:]:
        yield _three(world, row, credit=False)
    for row in hard:
        yield _three(world, row, credit=True)


def _pair(world: World, row: Row) -> Draft:
    keep, other = row["keep"], row["ids"][1]
    said = world.say(
        "merge", keep,
        f"Customer {other} is a double of customer {keep} ({row['name']}).",
        f"{row['name']} exists twice: the record {keep} is the right one, {other} the double.",
    )  # fmt: skip
    return Draft(
        difficulty="easy",
        prompt=f"{said} Merge {other} into {keep}: its orders, addresses, tickets and carts move over, the moved addresses are"
        f" no longer default, and the double"
        f" gets the status merged with merged_into = {keep}. Leave third records and credits alone.",
        claims=_merged(world, keep, [other], "credit = credit"),
        solution=_merge_sql(keep, [other]),
        wrong=(f"update shop.orders set customer_id = {keep} where customer_id = {other}", _mark(keep, [other])),
    )


def _three(world: World, row: Row, *, credit: bool) -> Draft:
    keep, doubles = row["keep"], row["ids"][1:]
    prompt = (
        f"There are several customer records with the e-mail address {row['email']} (in different upper and lower case). Merge"
        f" the younger ones into the oldest (the"
        " smallest id): their orders, addresses, tickets and carts move over, the moved addresses are no longer default, and"
        " each merged record gets the status merged"
        " with merged_into set."
    )
    solution = _merge_sql(keep, doubles)
    if not credit:
        return Draft(
            difficulty="medium",
            prompt=prompt + " Credits stay where they are.",
            claims=_merged(world, keep, doubles, "credit = credit"),
            solution=solution,
            wrong=_merge_sql(keep, doubles[:1]),
        )
    return Draft(
        difficulty="hard",
        prompt=prompt
        + " Their credit moves too: the oldest record ends with the sum of all, the merged ones with 0. Nothing else about the"
        " oldest record changes.",
        claims=(
            *_merged(world, keep, doubles, "credit = 0"),
            holds("the credit is added up", f"(select credit = {row['credit']} from shop.customers where id = {keep})"),
        ),
        solution=(
            *solution,
            f"update shop.customers set credit = {row['credit']} where id = {keep}",
            f"update shop.customers set credit = 0 where id in {among(doubles)}",
        ),
        wrong=(*solution, f"update shop.customers set credit = {row['credit']} where id = {keep}"),
    )


def _mark(keep: int, doubles: Sequence[int]) -> str:
    return f"update shop.customers set status = 'merged', merged_into = {keep} where id in {among(doubles)}"


def _merge_sql(keep: int, doubles: Sequence[int]) -> tuple[str, ...]:
    ids = among(doubles)
    return (
        f"update shop.addresses set customer_id = {keep}, is_default = false where customer_id in {ids}",
        *(f"update {t} set customer_id = {keep} where customer_id in {ids}" for t in OWNED if t != "shop.addresses"),
        _mark(keep, doubles),
    )


def _merged(world: World, keep: int, doubles: Sequence[int], money: str) -> tuple[Claim, ...]:
    ids = among(doubles)
    claims = [
        holds(
            "the doubles say so",
            f"(select bool_and(status = 'merged' and merged_into = {keep} and {money}) from shop.customers where id in {ids})",
        ),
    ]
    for table in OWNED:
        moved = [r["id"] for r in world.rows(f"select id from {table} where customer_id in {ids} order by 1")]
        scope = f"id in {among(moved)}" if moved else "false"
        claims.append(holds(f"nothing of {table} is left behind", f"not exists (select from {table} where customer_id in {ids})"))
        claims.append(world.unchanged(table, but=scope))
        if moved:
            free = ("customer_id", "is_default") if table == "shop.addresses" else ("customer_id",)
            extra = " and not is_default" if table == "shop.addresses" else ""
            claims.append(
                holds(f"{table} moved over", f"(select bool_and(customer_id = {keep}{extra}) from {table} where {scope})")
            )
            claims.append(world.unchanged(table, only=scope, without=free))
    touched = f"id in {among([keep, *doubles])}" if money == "credit = 0" else f"id in {ids}"
    return (
        *claims,
        world.unchanged("shop.customers", but=touched),
        world.unchanged(
            "shop.customers", only=touched, without=("status", "merged_into", *(["credit"] if money == "credit = 0" else []))
        ),
        world.same_counts(),
    )


def address(world: World) -> Iterator[Draft]:
    """Correct addresses, and move what has not been sent yet."""
    twice = """select c.id, c.name, a.id as address, a.street, a.postcode, a.city from shop.customers c join shop.addresses a on
      a.customer_id = c.id and a.is_default
      where c.id <= 2900 and c.status = 'active' and (select count(*) from shop.addresses x where x.customer_id = c.id) > 1
      order by 1"""
    for row in world.pick("address easy", twice, 10):
        digits = row["postcode"]
        new = digits[:3] + digits[4] + digits[3] if digits[3] != digits[4] else digits[:4] + str((int(digits[4]) + 1) % 10)
        said = world.say(
            "address", row["id"],
            f"{row['name']} (customer {row['id']}) says the postcode of their default address is wrong: it is {new}, not"
                f" {digits}. Correct it there and nowhere else.",
            f"Typo in the default address of customer {row['id']}, {row['name']}: the postcode must be {new}. Their other"
                f" addresses are right.",
        )  # fmt: skip
        yield Draft(
            difficulty="easy",
            prompt=said,
            claims=(
                holds("the postcode is right", f"(select postcode = {lit(new)} from shop.addresses where id = {row['address']})"),
                world.unchanged("shop.addresses", but=f"id = {row['address']}"),
                world.unchanged("shop.addresses", only=f"id = {row['address']}", without=("postcode",)),
                world.unchanged("shop.customers"),
                world.unchanged("shop.orders"),
                world.same_counts(),
            ),
            solution=(f"update shop.addresses set postcode = {lit(new)} where id = {row['address']}",),
            wrong=(f"update shop.addresses set postcode = {lit(new)} where customer_id = {row['id']}",),
        )
    moving = f"""select c.id, c.name, lower(c.email) as email, c.country,
        array_agg(o.id order by o.id) filter (where o.status in {OPEN}) as waiting,
        array_agg(o.id order by o.id) filter (where o.status in {OPEN} and not o.is_gift and o.status <> 'packed') as free,
        array_agg(o.id order by o.id) filter (where o.status = 'packed' and not o.is_gift) as packed, array_agg(o.id order by
      o.id) as every_order
      from shop.customers c join shop.orders o on o.customer_id = c.id where c.id <= 2900 and c.status = 'active' group by c.id"""
    hard = world.pick("address hard", f"{moving} having count(*) filter (where o.status in {OPEN}) > count(*) filter (where"
        f" o.status in {OPEN} and not o.is_gift and o.status <> 'packed')"
                      f" and count(*) filter (where o.status in {OPEN} and not o.is_gift and o.status <> 'packed') > 0 order"
                          f" by 1", 7)  # fmt: skip
    medium = (
        f"{moving} having count(*) filter (where o.status in {OPEN}) between 1 and count(*) - 1 and c.id not in"
        f" {among(r['id'] for r in hard)} order by 1"
    )
    for row in world.pick("address medium", medium, 9):
        yield _move(world, row, row["waiting"], [], "medium")
    for row in hard:
        yield _move(world, row, row["free"], row["packed"] or [], "hard")


def _move(world: World, row: Row, moved: Sequence[int], noted: Sequence[int], difficulty: str) -> Draft:
    street, postcode, city = world.say(
        "to",
        row["id"],
        "Gartenweg 12|28195|Bremen",
        "Rue Verte 4|44000|Nantes",
        "Via Nuova 31|40121|Bologna",
        "Havenkade 7|3511|Utrecht",
    ).split("|")
    new, note = world.new("shop.addresses"), "address change: call carrier"
    prompt = (
        f"The customer with the e-mail address {row['email']} has moved to {street}, {postcode} {city}, {row['country']}. Add"
        f" that as a shipping address and make it their"
        " default instead of the present one (which stays, not default)."
    )
    if difficulty == "medium":
        prompt += (
            " Orders that have not left yet (pending, paid or packed) go to the new address; all others keep the address"
            " they were sent to."
        )
    else:
        prompt += (
            " Pending and paid orders go to the new address, unless they are gifts: gifts keep theirs. Packed orders keep"
            " theirs too; those of them that are not gifts get the"
            f" note '{note}' in place of what was there. Everything else stays as it is."
        )
    ids = among(moved)
    insert = (
        "insert into shop.addresses (customer_id, kind, street, postcode, city, country, is_default)"
        f" values ({row['id']}, 'shipping', {lit(street)}, {lit(postcode)}, {lit(city)}, {lit(row['country'])}, true)"
    )
    off = f"update shop.addresses set is_default = false where customer_id = {row['id']}"
    to = "update shop.orders set shipping_address_id = (select max(id) from shop.addresses) where id in {}"
    mark = [f"update shop.orders set note = {lit(note)} where id in {among(noted)}"] if noted else []
    claims = [
        holds(
            "the new address is there",
            f"(select count(*) = 1 and bool_and(customer_id = {row['id']} and kind = 'shipping' and street = {lit(street)} and"
            f" postcode = {lit(postcode)}"
            f" and city = {lit(city)} and country = {lit(row['country'])} and is_default) from shop.addresses where {new})",
        ),
        holds(
            "it is the only default", f"(select count(*) = 1 from shop.addresses where customer_id = {row['id']} and is_default)"
        ),
        holds(
            "the orders go there",
            f"(select bool_and(shipping_address_id = (select id from shop.addresses where {new})) from shop.orders where id in"
            f" {ids})",
        ),
        world.unchanged("shop.addresses", but=f"{new} or customer_id = {row['id']}"),
        world.unchanged("shop.addresses", only=f"customer_id = {row['id']} and not ({new})", without=("is_default",)),
        world.unchanged("shop.orders", but=f"id in {among([*moved, *noted])}"),
        world.unchanged("shop.orders", only=f"id in {ids}", without=("shipping_address_id",)),
        world.unchanged("shop.customers"),
        world.same_counts("shop.addresses"),
    ]
    if noted:
        claims.append(
            holds(
                "packed orders carry the note", f"(select bool_and(note = {lit(note)}) from shop.orders where id in {among(noted)})"
            )
        )
        claims.append(world.unchanged("shop.orders", only=f"id in {among(noted)}", without=("note",)))
    careless = row["every_order"] if difficulty == "medium" else row["waiting"]
    return Draft(
        difficulty=difficulty,
        prompt=prompt,
        claims=tuple(claims),
        solution=(off, insert, to.format(ids), *mark),
        wrong=(off, insert, to.format(among(careless)), *mark),
    )
