"""Lists of products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envs.portal.draft import Claim, Draft, Row, World, as_json, holds, listed, lit, opening, product

_ITEMS = (
    "(select coalesce(jsonb_object_agg(product_id, note order by product_id), '{{}}') from portal.list_items where list_id {0})"
)


def lists(world: World) -> Iterator[Draft]:
    """Make a list, tidy one, or make one of everything that meets conditions."""
    people = world.people("list")
    names = world.order("list names", ("Spring move", "Spare parts", "Open day", "First week"))
    goods = world.pick("list easy", "select * from portal.products order by id", 6)
    for n in range(3):
        yield _new(world, people[n], names[n], goods[2 * n : 2 * n + 2])
    chosen: list[Draft] = []
    for row in world.order("list medium", world.rows("select * from portal.lists order by id"), key=lambda r: str(r["id"])):
        found = _tidy(world, row)
        if found is not None and len(chosen) < 3:
            chosen.append(found)
    yield from chosen
    wide = """select c.slug as key, c.name, b.rating, b.most, array_agg(p.id order by p.id) as ids from portal.categories c
        join portal.products p on p.category_id = c.id cross join (values (4.0, 40), (4.2, 60), (3.8, 30)) b (rating, most)
        where p.stock > 0 and p.rating >= b.rating and p.price <= b.most
        group by 1, 2, 3, 4 having count(*) between 4 and 6 order by 1, 3"""
    categories = world.order("list hard", {r["key"]: r for r in world.rows(wide)}.values(), key=lambda r: str(r["key"]))
    for person, row in zip(people[3:], categories[:2], strict=False):
        yield _collect(world, person, row)


def _made(world: World, person: Row, name: str, shared: bool, items: Mapping[int, str]) -> tuple[Claim, ...]:
    last = world.value("select max(id) from portal.lists")
    return (
        *world.added("portal.lists", 1),
        holds(
            "the list is there",
            f"(select bool_and((person_id, name, shared) = ({person['id']}, {lit(name)}, {lit(shared)})) from "
            f"portal.lists where id > {last})",
        ),
        holds("what is on it", f"{_ITEMS.format(f'> {last}')} = {as_json({str(i): note for i, note in items.items()})}"),
        world.unchanged("portal.list_items", but=f"list_id > {last}"),
        *world.rest("lists", "list_items"),
    )


def _new(world: World, person: Row, name: str, goods: list[Row]) -> Draft:
    first, second = goods
    steps = (("sign_in", person["login"]), ("new_list", name), ("put_on_list", first["sku"], name, ""))
    return Draft(
        difficulty="easy",
        prompt=opening(person) + f"Make a list called '{name}' and put {product(first)} and {product(second)} on it, the latter "
        f"with the note 'two colours'.",
        claims=_made(world, person, name, False, {first["id"]: "", second["id"]: "two colours"}),
        solution=(*steps, ("put_on_list", second["sku"], name, "two colours")),
        wrong=(*steps, ("put_on_list", second["sku"], name, "")),
    )


def _tidy(world: World, row: Row) -> Draft | None:
    items = world.rows(
        f"select p.*, i.note from portal.list_items i join portal.products p on p.id = i.product_id where "
        f"i.list_id = {row['id']} order by i.added_at, p.id"
    )
    slow = [r for r in items if r["lead_days"] > 14]
    if not 2 <= len(slow) < len(items) or row["shared"]:
        return None
    (person,) = world.rows(f"select * from portal.people where id = {row['person_id']}")
    name = f"{row['name']} (fast)"
    kept = {str(r["id"]): r["note"] for r in items if r not in slow}
    steps = [("sign_in", person["login"]), *(("off_list", row["name"], r["sku"]) for r in slow)]
    edit = ("edit_list", row["name"], {"name": name, "shared": True})
    return Draft(
        difficulty="medium",
        prompt=opening(person) + f"On your list '{row['name']}', remove everything with a lead time of more than 14 days. Then "
        f"rename the list to '{name}' and"
        " share it with your department.",
        claims=(
            holds(
                "the list has its name and is shared",
                f"exists (select from portal.lists where id = {row['id']} and name = {lit(name)} and shared)",
            ),
            *world.rest_of_row("portal.lists", f"id = {row['id']}", ("name", "shared")),
            holds("what is on it", f"{_ITEMS.format('= ' + str(row['id']))} = {as_json(kept)}"),
            world.unchanged("portal.list_items", but=f"list_id = {row['id']}"),
            *world.rest("lists", "list_items"),
        ),
        solution=(*steps, edit),
        wrong=(*steps[:-1], edit),
    )


def _collect(world: World, person: Row, row: Row) -> Draft:
    name = f"Best of {row['name'].split(' ')[0].lower()}"
    goods = world.rows(f"select * from portal.products where id = any (array{list(row['ids'])}) order by id")
    steps = [("sign_in", person["login"]), ("new_list", name), *(("put_on_list", g["sku"], name, "checked") for g in goods)]
    share = ("edit_list", name, {"shared": True})
    conditions = listed((f"are rated {row['rating']} or better", f"cost at most {row['most']} €", "are in stock"))
    return Draft(
        difficulty="hard",
        prompt=opening(person) + f"Make a list called '{name}', shared with your department, of all products of the category "
        f"'{row['name']}' that {conditions}."
        " Give each the note 'checked'.",
        claims=_made(world, person, name, True, dict.fromkeys(row["ids"], "checked")),
        solution=(*steps, share),
        wrong=(*steps[:-1], share),
    )
