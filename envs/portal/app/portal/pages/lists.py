"""Lists of products that people keep."""

from __future__ import annotations

from ..http import Problem, Request, Response, redirect
from ..layout import crumbs, money, page, token_field
from ..markup import checked, h
from ..routes import route
from ..wire import Row
from .cart import put
from .catalogue import by_sku, stock

_ALL = """<h1>Lists</h1><div class="columns">
<section class="card"><h2>My lists</h2><ul class="lines">{mine}</ul></section>
<section class="card"><h2>New list</h2><form method="post" action="/lists/new" class="stack">{token}
<label>Name <input name="name" maxlength="60" required></label><button class="primary">Create list</button></form></section>
<section class="card"><h2>Shared by my department</h2><ul class="lines">{shared}</ul></section></div>"""
_LINE = """<li><a href="/lists/{id}">{name}</a> <span>{count} products</span> <span>{owner}</span></li>"""


@route("GET", "/lists")
def lists(request: Request) -> Response:
    assert request.person is not None
    query = (
        "select l.id, l.name, l.shared, p.name as owner, (select count(*) from list_items i where "
        "i.list_id = l.id) as count from lists l join people p on p.id = l.person_id where "
    )
    mine = request.db.rows(query + "l.person_id = $1 order by l.name", request.me)
    shared = request.db.rows(
        query + "l.shared and l.person_id <> $1 and p.department_id = $2 order by p.name, l.name",
        request.me,
        request.person["department_id"],
    )
    own = [h(_LINE, **{**x, "owner": "shared" if x["shared"] else ""}) for x in mine]
    return page(
        request,
        "Lists",
        h(
            _ALL,
            mine=own or h("<li>None yet.</li>"),
            shared=[h(_LINE, **x) for x in shared] or h("<li>None.</li>"),
            token=token_field(request),
        ),
    )


@route("POST", "/lists/new")
def create(request: Request) -> Response:
    name = request.text("name", limit=60, needed=True)
    if request.db.value("select id from lists where person_id = $1 and name = $2", request.me, name):
        raise Problem(409, f"You have a list “{name}” already.")
    found = request.db.value("insert into lists (person_id, name) values ($1, $2) returning id", request.me, name)
    return redirect(f"/lists/{found}", f"The list “{name}” is there.")


@route("POST", "/lists/put")
def put_on(request: Request) -> Response:
    product = by_sku(request, request.text("sku"))
    found = _list(request, request.text("list"), own=True)
    request.db.rows(
        "insert into list_items (list_id, product_id, note) values ($1, $2, $3) on conflict (list_id, "
        "product_id) do update set note = excluded.note",
        found["id"],
        product["id"],
        request.text("note", limit=80),
    )
    return redirect(f"/lists/{found['id']}", f"{product['name']} is on the list.")


def _list(request: Request, number: str, *, own: bool) -> Row:
    assert request.person is not None
    if not number.isdigit() or len(number) > 9:
        raise Problem(404, "There is no such list.")
    found = request.db.row(
        "select l.*, p.name as owner, p.department_id from lists l join people p on p.id = l.person_id where l.id = $1", number
    )
    if found is None or (
        found["person_id"] != request.me
        and (own or not found["shared"] or found["department_id"] != request.person["department_id"])
    ):
        raise Problem(404, "There is no such list.")
    return found


_ONE = """{crumbs}<h1>{name}</h1><p class="muted">{owner}{shared_text}</p>
<section class="card"><div class="table-wrap"><table class="grid"><thead><tr><th>Product</th><th>Note</th><th>Stock</th>
<th>Lead time</th><th class="num">Price</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>
<div class="actions"><form method="post" action="/lists/{id}/cart">{token}
<button>Put one of each in the cart</button></form></div></section>
{manage}"""
_ITEM = """<tr data-sku="{sku}"><td data-label="Product"><a href="/product/{sku}">{name}</a> <small>{sku}</small></td>
<td data-label="Note">{note}</td><td data-label="Stock">{stock}</td>
<td data-label="Lead time">{lead_days} days</td><td data-label="Price" class="num">{price}</td>
<td class="actions">{remove}</td></tr>"""
_MANAGE = """<section class="card"><h2>This list</h2><form method="post" action="/lists/{id}/edit" class="inline">{token}
<label>Name <input name="name" value="{name}" maxlength="60" required></label>
<label class="check"><input type="checkbox" name="shared" value="1"{shared_checked}> Shared with my department</label>
<button>Save</button></form>
<form method="post" action="/lists/{id}/delete">{token}<button class="danger">Delete this list</button></form></section>"""


@route("GET", "/lists/{number}")
def one(request: Request, number: str) -> Response:
    found = _list(request, number, own=False)
    own = found["person_id"] == request.me
    items = request.db.rows(
        "select i.note, p.* from list_items i join products p on p.id = i.product_id where i.list_id = "
        "$1 order by i.added_at, p.id",
        found["id"],
    )
    remove = (
        '<form method="post" action="/lists/{id}/remove">{t}<input type="hidden" name="sku" '
        'value="{sku}"><button aria-label="Remove {name}">Remove</button></form>'
    )
    rows = [
        h(
            _ITEM,
            **{**i, "price": money(i["price"]), "stock": stock(i)},
            remove=h(remove, id=found["id"], t=token_field(request), sku=i["sku"], name=i["name"]) if own else "",
        )
        for i in items
    ]
    shared_text = " · shared with the department" if found["shared"] else ""
    manage = h(_MANAGE, token=token_field(request), shared_checked=checked(found["shared"]), **found) if own else ""
    return page(
        request,
        found["name"],
        h(
            _ONE,
            crumbs=crumbs(("/lists", "Lists")),
            rows=rows,
            shared_text=shared_text,
            manage=manage,
            token=token_field(request),
            **found,
        ),
    )


@route("POST", "/lists/{number}/{what}")
def change(request: Request, number: str, what: str) -> Response:
    found = _list(request, number, own=what != "cart")
    if what == "cart":
        with request.db.transaction():
            for item in request.db.rows(
                "select product_id as id from list_items where list_id = $1 order by added_at, product_id", found["id"]
            ):
                put(request, item, 1)
        return redirect("/cart", f"Everything of “{found['name']}” is in your cart.")
    if what == "delete":
        request.db.rows("delete from lists where id = $1", found["id"])
        return redirect("/lists", f"The list “{found['name']}” is deleted.")
    if what == "remove":
        product = by_sku(request, request.text("sku"))
        request.db.rows("delete from list_items where list_id = $1 and product_id = $2", found["id"], product["id"])
        return redirect(f"/lists/{number}", f"{product['name']} is off the list.")
    if what != "edit":
        raise Problem(404, "There is no such page.")
    name = request.text("name", limit=60, needed=True)
    request.db.rows("update lists set name = $2, shared = $3 where id = $1", found["id"], name, request.text("shared") == "1")
    return redirect(f"/lists/{number}", "The list is saved.")
