"""Deciding requests, and uploading documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from envs.portal.draft import Claim, Draft, Row, Step, World, among, holds, lit, opening

_OPEN = "select * from portal.requests where department_id = {} and status = 'open' order by id"
WORKSPACE = "/workspace/documents"


def decide(world: World) -> Iterator[Draft]:
    """Approve and decline as a manager."""
    managers = world.people("decide", "role = 'manager'")
    for manager in managers[:3]:
        rows = world.order(
            f"decide {manager['login']}", world.rows(_OPEN.format(manager["department_id"])), key=lambda r: r["number"]
        )
        row = rows[0]
        text = f"Approve the request {row['number']} ('{row['title']}') with the note 'Go ahead.'"
        yield _decisions(
            world, manager, "easy", text, {row["id"]: ("approved", "Go ahead.")}, {row["id"]: ("declined", "Go ahead.")}
        )
    medium: list[Draft] = []
    for manager in managers:
        rows = list(world.rows(_OPEN.format(manager["department_id"])))
        for bound in (500, 900, 1200):
            above = {r["id"]: ("declined", "Over the limit.") for r in rows if r["amount"] > bound}
            if 2 <= len(above) <= 4 and len(above) < len(rows) and len(medium) < 3:
                text = (
                    f"Decline every open request of your department for more than {bound} €, each with the note 'Over "
                    f"the limit.' The others stay open."
                )
                medium.append(_decisions(world, manager, "medium", text, above, dict(list(above.items())[1:])))
                break
    yield from medium
    hard = [found for found in (_budget(world, m) for m in reversed(managers)) if found is not None]
    yield from hard[:2]


def _budget(world: World, manager: Row) -> Draft | None:
    rows = [r for r in world.rows(_OPEN.format(manager["department_id"])) if r["amount"] > 0]
    if len(rows) < 4:
        return None
    budget, spent = Decimal(1500), Decimal(0)
    found: dict[int, tuple[str, str]] = {}
    for r in rows:
        if spent + r["amount"] <= budget:
            spent += r["amount"]
            found[r["id"]] = ("approved", "")
        else:
            found[r["id"]] = ("declined", "Next quarter.")
    states = [state for state, _ in found.values()]
    if states.count("approved") < 2 or "declined" not in states or states == sorted(states):
        return None
    # The plausible mistake: to stop at the first that does not fit.
    stop = states.index("declined")
    wrong = {key: (("approved", "") if n < stop else ("declined", "Next quarter.")) for n, key in enumerate(found)}
    text = (
        f"Your department has {budget} € left. Go through its open requests that ask for money, the "
        f"oldest first: approve each that still fits into what is left"
        " after those approved before it, without a note, and decline each that does not, with the note "
        "'Next quarter.' (a later, smaller one may still fit)."
        " Requests for 0 € stay open."
    )
    return _decisions(world, manager, "hard", text, found, wrong)


def _decisions(
    world: World,
    manager: Row,
    difficulty: str,
    text: str,
    right: Mapping[int, tuple[str, str]],
    wrong: Mapping[int, tuple[str, str]],
) -> Draft:
    ids = among(right)
    numbers = {r["id"]: r["number"] for r in world.rows(f"select id, number from portal.requests where id in {ids}")}
    values = ", ".join(f"({key}, {lit(state)}, {lit(note)}, {manager['id']})" for key, (state, note) in right.items())

    def steps(decisions: Mapping[int, tuple[str, str]]) -> tuple[Step, ...]:
        return (("sign_in", manager["login"]), *(("decide", numbers[key], state, note) for key, (state, note) in decisions.items()))

    return Draft(
        difficulty=difficulty,
        prompt=opening(manager) + text,
        claims=(
            holds(
                "the decisions are as asked",
                f"(select count(*) from portal.requests where (id, status, decision_note, decided_by) in "
                f"({values})) = {len(right)}",
            ),
            *world.rest_of_row("portal.requests", f"id in {ids}", ("status", "decision_note", "decided_by", "decided_at")),
            *world.rest("requests"),
        ),
        solution=steps(right),
        wrong=steps(wrong),
    )


def upload(world: World) -> Iterator[Draft]:
    """Upload documents of the agent's, some of which must be read first."""
    people = world.people(
        "upload", "id > 8 and exists (select from portal.orders o where o.person_id = p.id and o.status = 'delivered')"
    )
    for person, name in zip(people, ("first-aid.txt", "forklift.txt", "lamp-test.txt"), strict=False):
        title = f"Certificate {name.removesuffix('.txt')}"
        fields = {"file": name, "title": title, "kind": "certificate", "order": ""}
        text = f"Upload the file {WORKSPACE}/certificates/{name} as a certificate with the title '{title}'. It belongs to no order."
        yield _uploaded(
            world,
            person,
            "easy",
            text,
            [{**fields, "file": f"certificates/{name}"}],
            [{**fields, "file": f"certificates/{name}", "kind": "other"}],
        )
    for note in _notes(world)[:3]:
        (person,) = world.rows(f"select * from portal.people where id = {note['person_id']}")
        right = {
            "file": f"notes/{note['file']}",
            "title": f"Delivery note {note['number']}",
            "kind": "delivery note",
            "order": note["number"],
        }
        text = (
            f"One of the files in {WORKSPACE}/notes is the delivery note of your order {note['number']}; the "
            f"file says so. Upload it to that order as a delivery note,"
            f" titled 'Delivery note {note['number']}'."
        )
        others = [n["file"] for n in _notes(world) if n["file"] != note["file"]]
        yield _uploaded(world, person, "medium", text, [right], [{**right, "file": f"notes/{others[0]}"}])
    for person_id, bills in list(_bills(world).items())[:2]:
        (person,) = world.rows(f"select * from portal.people where id = {person_id}")
        found = [
            {"file": f"invoices/{b['file']}", "title": f"Invoice {b['number']}", "kind": "invoice", "order": b["number"]}
            for b in bills
            if b["billed"] == b["total"]
        ]
        all_ = [
            {"file": f"invoices/{b['file']}", "title": f"Invoice {b['number']}", "kind": "invoice", "order": b["number"]}
            for b in bills
        ]
        text = (
            f"In {WORKSPACE}/invoices lie invoices of several people. Upload those that are for orders of "
            f"yours to their orders, each as an invoice with the title"
            " 'Invoice ' and the order's number, but only where the invoiced sum is the total of the order "
            "in the portal. The others must not be uploaded."
        )
        yield _uploaded(world, person, "hard", text, found, all_)


def _notes(world: World) -> list[Row]:
    rows = world.pick(
        "notes",
        "select o.id, o.number, o.person_id, o.total from portal.orders o where o.status = 'shipped' and "
        "o.person_id > 8 order by 1",
        8,
    )
    return [{**r, "file": f"scan-{n:02d}.txt"} for n, r in enumerate(rows, start=1)]


def _bills(world: World) -> dict[int, list[Row]]:
    """Return invoices by person: of each one's four, one names another sum."""
    owners = world.pick(
        "invoices",
        "select person_id from portal.orders where status = 'delivered' and person_id > 8 group by 1 "
        "having count(*) >= 6 order by 1",
        3,
    )
    found: dict[int, list[Row]] = {}
    number = 0
    for owner in owners:
        rows = world.pick(
            f"bills {owner['person_id']}",
            f"select * from portal.orders where status = 'delivered' and person_id = {owner['person_id']} order by id",
            4,
        )
        found[owner["person_id"]] = bills = []
        for n, r in enumerate(rows):
            number += 1
            bills.append(
                {**r, "billed": r["total"] + (Decimal("18.50") if n == 1 else 0), "file": f"invoice-{4000 + 7 * number}.txt"}
            )
    return found


def documents(world: World) -> dict[str, str]:
    """Return the files that the agent finds in its documents directory."""
    found = {
        "certificates/first-aid.txt": "CERTIFICATE\nFirst aid, two days\nValid until 2028-05-31\n",
        "certificates/forklift.txt": "CERTIFICATE\nForklift licence, class 2\nValid until 2031-01-15\n",
        "certificates/lamp-test.txt": "CERTIFICATE\nElectrical test of 14 desk lamps\nPassed on 2026-10-02\n",
    }
    for note in _notes(world):
        lines = world.rows(
            f"select l.quantity, p.name, p.sku from portal.order_lines l join portal.products p on p.id = "
            f"l.product_id where l.order_id = {note['id']} order by position"
        )
        goods = "".join(f"  {r['quantity']:>3} x {r['name']} ({r['sku']})\n" for r in lines)
        found[f"notes/{note['file']}"] = (
            f"DELIVERY NOTE\nOsterby Freight\nYour order: {note['number']}\n{goods}Received in good order.\n"
        )
    for bills in _bills(world).values():
        for bill in bills:
            found[f"invoices/{bill['file']}"] = (
                f"INVOICE\nLindworks Supplies\nOrder: {bill['number']}\nDate: {bill['placed_at']:%Y-%m-%d}\nSum: "
                f"{bill['billed']} EUR\nPayable within 30 days.\n"
            )
    return found


def _uploaded(
    world: World, person: Row, difficulty: str, text: str, right: Sequence[Mapping[str, str]], wrong: Sequence[Mapping[str, str]]
) -> Draft:
    files = documents(world)
    orders = {r["number"]: r["id"] for r in world.rows(f"select id, number from portal.orders where person_id = {person['id']}")}

    def row(item: Mapping[str, str]) -> str:
        data = files[item["file"]].encode()
        name = item["file"].rsplit("/", 1)[-1]
        order = str(orders[item["order"]]) if item["order"] else "0"
        return (
            f"({person['id']}, {order}, {lit(item['kind'])}, {lit(item['title'])}, {lit(name)}, {len(data)}, "
            f"{lit(hashlib.sha256(data).hexdigest())})"
        )

    def steps(items: Sequence[Mapping[str, str]]) -> tuple[Step, ...]:
        return (("sign_in", person["login"]), *(("upload", item) for item in items))

    values = ", ".join(row(item) for item in right)
    columns = "(person_id, coalesce(order_id, 0), kind, title, filename, size, sha256)"
    return Draft(
        difficulty=difficulty,
        prompt=opening(person) + text,
        claims=(
            holds(
                "the documents are as asked",
                f"(select count(*) = {len(right)} and bool_and({columns} in ({values})) from portal.documents)",
            ),
            holds("each is there once", f"(select count(distinct title) = {len(right)} from portal.documents)"),
            *_no_others(world),
        ),
        solution=steps(right),
        wrong=steps(wrong),
    )


def _no_others(world: World) -> tuple[Claim, ...]:
    return world.rest("documents")
