"""Orders: what was ordered, cancelling it, ordering it again."""

from __future__ import annotations

from ..http import Problem, Request, Response, redirect
from ..layout import badge, crumbs, day, money, page, token_field
from ..markup import h, options
from ..routes import route
from ..wire import Row
from .cart import put

STATES = ("placed", "packed", "shipped", "delivered", "cancelled")
_ALL = """<h1>Orders</h1>
<form class="card filters" action="/orders"><label>Status <select name="status">{states}</select></label>
<button>Show</button></form>
<div class="table-wrap"><table class="grid"><thead><tr><th>Number</th><th>Placed</th><th>Status</th><th>Reference</th>
<th class="num">Lines</th><th class="num">Total</th></tr></thead><tbody>{rows}</tbody></table></div>"""
_ROW = """<tr><td data-label="Number"><a href="/orders/{number}">{number}</a></td><td data-label="Placed">{day}</td>
<td data-label="Status">{badge}</td>
<td data-label="Reference">{reference}</td><td data-label="Lines" class="num">{lines}</td>
<td data-label="Total" class="num">{money}</td></tr>"""


@route("GET", "/orders")
def orders(request: Request) -> Response:
    status = request.query.get("status", "")
    found = request.db.rows(
        "select o.*, (select count(*) from order_lines l where l.order_id = o.id) as lines from orders o"
        " where o.person_id = $1 and ($2 = '' or o.status = $2) order by o.id desc",
        request.me,
        status,
    )
    rows = [h(_ROW, day=day(o["placed_at"]), badge=badge(o["status"]), money=money(o["total"]), **o) for o in found]
    return page(
        request, "Orders", h(_ALL, rows=rows, states=options([("", "All"), *((s, s.capitalize()) for s in STATES)], status))
    )


def mine(request: Request, number: str) -> Row:
    """Return one of the person's own orders."""
    found = request.db.row(
        "select o.*, p.code, p.name as place, p.street, p.city from orders o join places p on p.id = o.place_id"
        " where o.number = $1 and o.person_id = $2",
        number,
        request.me,
    )
    if found is None:
        raise Problem(404, f"You have no order {number}.")
    return found


_ONE = """{crumbs}<h1>{number} {badge}</h1>
<section class="card"><dl class="facts"><dt>Placed</dt><dd>{day}</dd><dt>Deliver to</dt>
<dd>{code} {place}, {street}, {city}</dd><dt>Cost centre</dt><dd>{cost_centre}</dd>
<dt>Reference</dt><dd>{reference}</dd><dt>Note</dt><dd>{note}</dd></dl>
<div class="table-wrap"><table class="grid"><thead><tr><th>Product</th><th>Category</th><th class="num">Quantity</th>
<th class="num">Price</th><th class="num">Sum</th></tr></thead><tbody>{rows}</tbody>
<tfoot><tr><th colspan="4">Total</th><td class="num">{money}</td></tr></tfoot></table></div>
<div class="actions"><form method="post" action="/orders/{number}/again">{token}
<button>Put everything in the cart</button></form>{cancel}
<a class="button" href="/documents/new?order={number}">Add a document</a></div></section>
<section class="card"><h2>Documents</h2><ul class="lines">{documents}</ul></section>"""
_LINE = """<tr><td data-label="Product"><a href="/product/{sku}">{name}</a> <small>{sku}</small></td>
<td data-label="Category">{category}</td><td data-label="Quantity" class="num">{quantity}</td>
<td data-label="Price" class="num">{price}</td><td data-label="Sum" class="num">{sum}</td></tr>"""


@route("GET", "/orders/{number}")
def order(request: Request, number: str) -> Response:
    found = mine(request, number)
    lines = request.db.rows(
        "select l.*, p.sku, p.name, c.name as category, l.price * l.quantity as sum from order_lines l "
        "join products p on p.id = l.product_id"
        " join categories c on c.id = p.category_id where l.order_id = $1 order by l.position",
        found["id"],
    )
    documents = request.db.rows("select id, title, kind from documents where order_id = $1 order by id", found["id"])
    cancel = h(
        '<form method="post" action="/orders/{n}/cancel">{t}<button class="danger">Cancel this order</button></form>',
        n=number,
        t=token_field(request),
    )
    return page(
        request,
        number,
        h(
            _ONE,
            crumbs=crumbs(("/orders", "Orders")),
            day=day(found["placed_at"]),
            badge=badge(found["status"]),
            money=money(found["total"]),
            rows=[h(_LINE, **{**line, "price": money(line["price"]), "sum": money(line["sum"])}) for line in lines],
            documents=[h('<li><a href="/documents/{id}">{title}</a> {b}</li>', b=badge(d["kind"]), **d) for d in documents]
            or h("<li>None.</li>"),
            cancel=cancel if found["status"] in ("placed", "packed") else "",
            token=token_field(request),
            **found,
        ),
    )


@route("POST", "/orders/{number}/cancel")
def cancel(request: Request, number: str) -> Response:
    found = mine(request, number)
    with request.db.transaction():
        done = request.db.rows(
            "update orders set status = 'cancelled' where id = $1 and status in ('placed', 'packed') returning id", found["id"]
        )
        if not done:
            raise Problem(409, f"Order {number} is {found['status']} and cannot be cancelled.")
        request.db.rows(
            "update products p set stock = p.stock + l.quantity from order_lines l where l.order_id = $1 and l.product_id = p.id",
            found["id"],
        )
        request.db.rows("insert into events (person_id, what, detail) values ($1, 'order cancelled', $2)", request.me, number)
    return redirect(f"/orders/{number}", f"Order {number} is cancelled.")


@route("POST", "/orders/{number}/again")
def again(request: Request, number: str) -> Response:
    found = mine(request, number)
    with request.db.transaction():
        for line in request.db.rows(
            "select product_id, quantity from order_lines where order_id = $1 order by position", found["id"]
        ):
            put(request, {"id": line["product_id"]}, line["quantity"])
    return redirect("/cart", f"Everything of {number} is in your cart.")
