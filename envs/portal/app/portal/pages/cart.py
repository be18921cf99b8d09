"""The cart, and turning it into an order."""

from __future__ import annotations

from ..http import Problem, Request, Response, redirect
from ..layout import crumbs, money, page, token_field
from ..markup import Html, h, options
from ..routes import route
from ..wire import Row
from .catalogue import by_sku, stock

_LINES = (
    "select l.*, p.sku, p.name, p.price, p.stock, p.price * l.quantity as sum from cart_lines l join "
    "products p on p.id = l.product_id"
    " where l.person_id = $1 order by l.added_at, p.id"
)
_CART = """<h1>Cart</h1>
{now}
{later}"""
_NOW = """<section class="card"><div class="table-wrap"><table class="grid"><thead><tr><th>Product</th><th>Stock</th>
<th class="num">Price</th><th>Quantity</th><th class="num">Sum</th><th></th></tr></thead>
<tbody>{rows}</tbody><tfoot><tr><th colspan="4">Total</th><td class="num" id="total">{total}</td>
<td></td></tr></tfoot></table></div>
<p class="actions"><a class="button primary" href="/checkout">Check out</a></p></section>"""
_ROW = """<tr data-sku="{sku}"><td data-label="Product"><a href="/product/{sku}">{name}</a> <small>{sku}</small></td>
<td data-label="Stock">{stock}</td><td data-label="Price" class="num">{price}</td>
<td data-label="Quantity"><form method="post" action="/cart/change" class="inline">{token}
<input type="hidden" name="sku" value="{sku}">
<input name="quantity" type="number" min="1" max="999" value="{quantity}" aria-label="Quantity of {name}">
<button>Update</button></form></td>
<td data-label="Sum" class="num">{sum}</td><td class="actions">{moves}</td></tr>"""
_MOVE = """<form method="post" action="/cart/{what}">{token}<input type="hidden" name="sku" value="{sku}">
<button aria-label="{text}: {name}">{text}</button></form>"""


@route("GET", "/cart")
def cart(request: Request) -> Response:
    lines = request.db.rows(_LINES, request.me)
    now = [line for line in lines if not line["later"]]
    later = [line for line in lines if line["later"]]
    table = (
        h(_NOW, rows=[_row(request, line) for line in now], total=money(sum(line["sum"] for line in now)))
        if now
        else h(
            '<section class="card"><p>Your cart is empty.</p><p><a class="button" href="/catalogue">To the '
            "catalogue</a></p></section>"
        )
    )
    kept = h(
        '<section class="card"><h2>Saved for later</h2><ul class="lines">{l}</ul></section>',
        l=[
            h(
                '<li data-sku="{sku}"><a href="/product/{sku}">{name}</a> <span>{q} ×</span> {m}</li>',
                q=line["quantity"],
                m=[_move(request, line, "now", "Move to cart"), _move(request, line, "remove", "Remove")],
                **line,
            )
            for line in later
        ],
    )
    return page(request, "Cart", h(_CART, now=table, later=kept if later else ""))


def _row(request: Request, line: Row) -> Html:
    shown = {**line, "price": money(line["price"]), "sum": money(line["sum"]), "stock": stock(line)}
    return h(
        _ROW,
        token=token_field(request),
        moves=[_move(request, line, "later", "Save for later"), _move(request, line, "remove", "Remove")],
        **shown,
    )


def _move(request: Request, line: Row, what: str, text: str) -> Html:
    return h(_MOVE, what=what, text=text, token=token_field(request), sku=line["sku"], name=line["name"])


def put(request: Request, product: Row, quantity: int) -> None:
    """Add to the cart; what is there already becomes more."""
    request.db.rows(
        "insert into cart_lines (person_id, product_id, quantity) values ($1, $2, $3) on conflict (person_id, product_id)"
        " do update set quantity = least(999, case when cart_lines.later then 0 else cart_lines.quantity "
        "end + excluded.quantity), later = false",
        request.me,
        product["id"],
        quantity,
    )


@route("POST", "/cart/add")
def add(request: Request) -> Response:
    product = by_sku(request, request.text("sku"))
    put(request, product, request.number("quantity", 1, 999))
    return redirect("/cart", f"{product['name']} is in your cart.")


@route("POST", "/cart/change")
def change(request: Request) -> Response:
    product = by_sku(request, request.text("sku"))
    request.db.rows(
        "update cart_lines set quantity = $3 where person_id = $1 and product_id = $2",
        request.me,
        product["id"],
        request.number("quantity", 1, 999),
    )
    return redirect("/cart", f"The quantity of {product['name']} is changed.")


@route("POST", "/cart/{what}")
def move(request: Request, what: str) -> Response:
    product = by_sku(request, request.text("sku"))
    if what == "remove":
        request.db.rows("delete from cart_lines where person_id = $1 and product_id = $2", request.me, product["id"])
        return redirect("/cart", f"{product['name']} is removed.")
    if what not in ("later", "now"):
        raise Problem(404, "There is no such page.")
    request.db.rows(
        "update cart_lines set later = $3 where person_id = $1 and product_id = $2", request.me, product["id"], what == "later"
    )
    return redirect("/cart", f"{product['name']} is {'saved for later' if what == 'later' else 'in your cart'}.")


_CHECKOUT = """{crumbs}<h1>Check out</h1><section class="card"><ul class="lines">{lines}</ul>
<p class="price">Total {total}</p></section>
<form method="post" action="/checkout" class="card stack">{token}
<label>Deliver to <select name="place">{places}</select></label>
<label>Cost centre <select name="cost_centre">{centres}</select></label>
<label>Reference <input name="reference" maxlength="40"></label>
<label>Note for the driver <textarea name="note" maxlength="200" rows="2"></textarea></label>
<button class="primary">Place order</button></form>"""


@route("GET", "/checkout")
def checkout_form(request: Request) -> Response:
    assert request.person is not None
    lines = [line for line in request.db.rows(_LINES, request.me) if not line["later"]]
    if not lines:
        return redirect("/cart", "Your cart is empty.")
    places = request.db.rows("select code, name, city from places order by id")
    centres = request.db.rows("select cost_centre, name from departments order by 1")
    return page(
        request,
        "Check out",
        h(
            _CHECKOUT,
            crumbs=crumbs(("/cart", "Cart")),
            token=token_field(request),
            total=money(sum(line["sum"] for line in lines)),
            lines=[
                h('<li>{quantity} × {name} {s} <span class="right">{m}</span></li>', m=money(line["sum"]), s=stock(line), **line)
                for line in lines
            ],
            places=options(
                ((p["code"], f"{p['code']} {p['name']}, {p['city']}") for p in places),
                request.db.value("select code from places where id = $1", request.person["place_id"]),
            ),
            centres=options(
                ((c["cost_centre"], f"{c['cost_centre']} {c['name']}") for c in centres), request.person["cost_centre"]
            ),
        ),
    )


@route("POST", "/checkout")
def checkout(request: Request) -> Response:
    place = request.db.value("select id from places where code = $1", request.text("place", needed=True))
    centre = request.db.value(
        "select cost_centre from departments where cost_centre = $1", request.text("cost_centre", needed=True)
    )
    if place is None or centre is None:
        raise Problem(400, "Choose a place and a cost centre from the lists.")
    with request.db.transaction():
        lines = request.db.rows(
            "select l.product_id, l.quantity, p.price, p.stock, p.name from cart_lines l join products p on p.id = l.product_id"
            " where l.person_id = $1 and not l.later order by l.added_at, p.id for update of p",
            request.me,
        )
        short = [line["name"] for line in lines if line["stock"] < line["quantity"]]
        if not lines or short:
            raise Problem(409, f"Not enough in stock: {', '.join(short)}." if short else "Your cart is empty.")
        number = place_order(request, lines, place, centre, request.text("reference", limit=40), request.text("note"))
    return redirect(f"/orders/{number}", f"Order {number} is placed.")


def place_order(request: Request, lines: list[Row], place: int, centre: str, reference: str, note: str) -> str:
    """Write an order from cart lines, inside a transaction; return its number."""
    order = request.db.value("select nextval(pg_get_serial_sequence('portal.orders', 'id'))")
    number = str(request.db.value("select next_number('ORD', $1)", order))
    request.db.rows(
        "insert into orders (id, number, person_id, place_id, cost_centre, reference, note, status, "
        "total) values ($1, $2, $3, $4, $5, $6, $7, 'placed', $8)",
        order,
        number,
        request.me,
        place,
        centre,
        reference,
        note,
        sum(line["price"] * line["quantity"] for line in lines),
    )
    for position, line in enumerate(lines, start=1):
        request.db.rows(
            "insert into order_lines (order_id, position, product_id, quantity, price) values ($1, $2, $3, $4, $5)",
            order,
            position,
            line["product_id"],
            line["quantity"],
            line["price"],
        )
        request.db.rows("update products set stock = stock - $2 where id = $1", line["product_id"], line["quantity"])
    request.db.rows("delete from cart_lines where person_id = $1 and not later", request.me)
    request.db.rows("insert into events (person_id, what, detail) values ($1, 'order placed', $2)", request.me, number)
    return number
