"""What the browser keeps, and the server never sees: display settings, drafts, guides for reading without a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from envs.portal.draft import DEFAULTS, DeviceClaim, Draft, Row, Step, World, listed, lit, opening

_DRAFTS = ("indexed_db", "portal", "drafts")
_GUIDES = ("caches", "portal-guides-v1")


def display(world: World) -> Iterator[Draft]:
    """Set up how the portal looks on this device."""
    people = world.people("display")
    for person, changes in zip(people, ({"theme": "dark"}, {"text": "large"}, {"spacing": "compact"}), strict=False):
        yield _shown(
            world, person, "easy", changes, "On this device, set the display to " + _words(changes) + ". The rest stays as it is."
        )
    medium: tuple[dict[str, Any], ...] = (
        {"theme": "dark", "size": "48", "columns": ["rating"]},
        {"text": "small", "start": "orders", "columns": ["pack", "lead"]},
        {"theme": "light", "spacing": "relaxed", "save_data": True},
    )
    for person, changes in zip(people[3:], medium, strict=False):
        yield _shown(
            world, person, "medium", changes, "On this device, set the display to " + _words(changes) + ". The rest stays as it is."
        )
    guides: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Screen and eyes", {"theme": "dark", "text": "large", "spacing": "relaxed"}),
        ("Remote access", {"size": "12", "start": "orders", "save_data": True}),
    )
    for person, (title, changes) in zip(people[6:], guides, strict=False):
        text = (
            f"The guide '{title}' recommends display settings. Set up the display of this device as it says, "
            f"and leave the rest as it is."
        )
        yield _shown(world, person, "hard", changes, text)


def _words(changes: Mapping[str, Any]) -> str:
    names = {
        "theme": "theme {}",
        "text": "text size {}",
        "spacing": "row spacing {}",
        "size": "{} products a page",
        "start": "start page {}",
    }
    parts = [names[key].format(str(value).capitalize()) for key, value in changes.items() if key in names]
    if "columns" in changes:
        shown = [{"pack": "Pack", "rating": "Rating", "lead": "Lead time"}[c] for c in changes["columns"]]
        parts.append(f"only the optional {'columns' if len(shown) > 1 else 'column'} {listed(shown)} in the catalogue")
    if "save_data" in changes:
        parts.append("saving data")
    return listed(parts)


def _shown(world: World, person: Row, difficulty: str, changes: Mapping[str, Any], text: str) -> Draft:
    last = list(changes)[-1]
    spoiled = {"dark": "light", "large": "small", "compact": "relaxed"}.get(str(changes[last]), DEFAULTS[last])
    return Draft(
        difficulty=difficulty,
        prompt=opening(person) + text,
        claims=world.rest(),
        device=(
            DeviceClaim(
                name="the display is as asked", path=("local_storage", "portal.display"), rule={"document": {**DEFAULTS, **changes}}
            ),
        ),
        solution=(("sign_in", person["login"]), ("display", changes)),
        wrong=(("sign_in", person["login"]), ("display", {**changes, last: spoiled})),
    )


def draft(world: World) -> Iterator[Draft]:
    """Prepare a request and leave it unsent."""
    people = world.people("draft", "id > 8")
    easy = (
        ("training", "Ladder safety course", "240"),
        ("travel", "Visit to the north warehouse", "95"),
        ("equipment", "Whiteboard for the hallway", "130"),
    )
    for person, (kind, title, amount) in zip(people, easy, strict=False):
        fields = {"kind": kind, "title": title, "body": "", "amount": amount, "needed_by": ""}
        text = (
            f"Prepare a request of the kind {kind}, titled '{title}', for {amount} €. Save it as a draft on "
            f"this device; do not send it."
        )
        yield _kept(world, person, "easy", fields, text)
    goods = world.pick("draft medium", "select * from portal.products where price > 20 order by id", 3)
    for n, (person, row) in enumerate(zip(people[3:], goods, strict=False)):
        units, needed = 3 + n, f"2027-0{n + 1}-15"
        fields = {
            "kind": "equipment",
            "title": f"{row['name']} for the team",
            "body": f"We need {units} of {row['sku']}.",
            "amount": str(row["price"] * units),
            "needed_by": needed,
        }
        text = (
            f"Prepare, but do not send, an equipment request titled '{fields['title']}'. The reason is "
            f"'{fields['body']}' The amount is what {units} of them cost"
            f" in the catalogue, needed by {needed}. Save it as a draft on this device."
        )
        yield _kept(world, person, "medium", fields, text)
    declined = """select distinct on (r.person_id) r.person_id, r.* from portal.requests r
        where r.status = 'declined' and r.amount > 100 order by r.person_id, r.id desc"""
    for row in world.pick("draft hard", declined, 2):
        yield _copied(world, row)


def _record(person: Row, fields: Mapping[str, str]) -> dict[str, str]:
    return {"person": person["login"], **fields, "amount": f"{Decimal(fields['amount']):.2f}"}


def _only(record: Mapping[str, str]) -> tuple[DeviceClaim, ...]:
    return (DeviceClaim(name="the draft, and no other, is kept", path=_DRAFTS, rule={"records": [record]}),)


def _kept(world: World, person: Row, difficulty: str, fields: Mapping[str, str], text: str) -> Draft:
    return Draft(
        difficulty=difficulty,
        prompt=opening(person) + text,
        claims=world.rest(),
        device=_only(_record(person, fields)),
        solution=(("sign_in", person["login"]), ("draft", fields)),
        wrong=(("sign_in", person["login"]), ("request", fields)),
    )


def _copied(world: World, row: Row) -> Draft:
    (person,) = world.rows(f"select * from portal.people where id = {row['person_id']}")
    half = f"{row['amount'] / 2:.2f}"
    fields = {
        "kind": row["kind"],
        "title": row["title"],
        "body": f"{row['body']} Half of it would do.",
        "amount": half,
        "needed_by": str(row["needed_by"]),
    }
    changes = {"body": fields["body"], "amount": half}
    return Draft(
        difficulty="hard",
        prompt=opening(person) + "Find your latest request that was declined and copy it into a new draft. Ask for half the amount,"
        " and add the sentence 'Half of it would do.' at the end of the reason, after a space. Keep it "
        "as a draft on this device, do not send it.",
        claims=world.rest(),
        device=_only(_record(person, fields)),
        solution=(("sign_in", person["login"]), ("copy_request", row["number"], changes)),
        wrong=(("sign_in", person["login"]), ("copy_request", row["number"], {"body": fields["body"]})),
    )


def offline(world: World) -> Iterator[Draft]:
    """Keep guides for reading without a connection."""
    people = world.people("offline")
    for person, row in zip(people, world.pick("offline easy", "select slug, title from portal.guides order by 1", 3), strict=False):
        another = world.value(f"select min(slug) from portal.guides where slug <> {lit(row['slug'])}")
        yield _guides(world, person, "easy", [row["slug"]], [another], f"Keep the guide '{row['title']}' on this device.")
    sections = world.order("offline medium", ("Safety", "Travel", "Workplace", "Purchasing", "Computing"))
    for person, section in zip(people[3:], sections[:3], strict=False):
        slugs = [r["slug"] for r in world.rows(f"select slug from portal.guides where section = {lit(section)} order by slug")]
        yield _guides(
            world,
            person,
            "medium",
            slugs,
            slugs[:-1],
            f"You will be without a connection: keep all guides of the section '{section}' on this device, and no others.",
        )
    for person, words in zip(people[6:], ("green cabinet", "extension 55"), strict=False):
        slugs = [r["slug"] for r in world.rows(f"select slug from portal.guides where body like '%{words}%' order by slug")]
        if not 2 <= len(slugs) <= 12:
            raise ValueError(f"{len(slugs)} guides mention {words}")
        yield _guides(
            world,
            person,
            "hard",
            slugs,
            slugs[1:],
            f"Keep every guide on this device that mentions the words '{words}', whatever its section, and no others.",
        )


def _guides(world: World, person: Row, difficulty: str, slugs: list[str], wrong: list[str], text: str) -> Draft:
    def steps(chosen: list[str]) -> tuple[Step, ...]:
        return (("sign_in", person["login"]), *(("keep", slug) for slug in chosen))

    return Draft(
        difficulty=difficulty,
        prompt=opening(person) + text,
        claims=world.rest(),
        device=(
            DeviceClaim(name="these guides are kept", path=_GUIDES, rule={"items": [f"/guides/{slug}" for slug in slugs]}),
            DeviceClaim(
                name="the portal's worker serves them",
                path=("service_workers",),
                rule={"records": [{"scope": "/", "script": "/sw.js"}]},
            ),
        ),
        solution=steps(slugs),
        wrong=steps(wrong),
    )
